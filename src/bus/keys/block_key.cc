#include "bus/keys/block_key.h"

#include <openssl/evp.h>

#include <bit>
#include <memory>

#include "base/check.h"
#include "bus/keys/canonical_encoding.h"

namespace moonpool::bus {
namespace {

// Tokens are hashed as the little-endian words that they are in memory.
static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(TokenId) == 4);

// One context for the whole chain, and the algorithm looked up once: a block is so short that starting from
// scratch for each costs half as much again (bench/micro/block_keys_bench.cc).
class ChainHash {
 public:
  ChainHash() : context_(EVP_MD_CTX_new()) {
    MP_CHECK(context_ != nullptr);
    MP_CHECK(EVP_DigestInit_ex2(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  Digest256 Next(const Digest256& previous, std::span<const std::byte> block) {
    Digest256 digest;
    unsigned length = 0;
    MP_CHECK(EVP_DigestInit_ex2(context_.get(), nullptr, nullptr) == 1);
    MP_CHECK(EVP_DigestUpdate(context_.get(), previous.bytes.data(), previous.bytes.size()) == 1);
    MP_CHECK(EVP_DigestUpdate(context_.get(), block.data(), block.size()) == 1);
    MP_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.bytes.data()), &length) == 1);
    MP_CHECK(length == digest.bytes.size());
    return digest;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

Digest256 ChainRoot(const ModelFingerprint& fingerprint, std::string_view name_space) {
  CanonicalEncoding encoding(CanonicalEncoding::Kind::kChainRoot);
  encoding.Bytes(1, fingerprint.CanonicalEncoding());
  encoding.Bytes(2, name_space);
  return Sha256Of(std::move(encoding).Take());
}

std::vector<BlockKey> BlockKeys(const Digest256& root, std::span<const TokenId> tokens, uint32_t block_tokens) {
  MP_CHECK(block_tokens >= 1 && block_tokens <= kBlockTokensMax);
  std::vector<BlockKey> keys;
  keys.reserve(tokens.size() / block_tokens);
  ChainHash hash;
  const Digest256* previous = &root;
  for (size_t begin = 0; tokens.size() - begin >= block_tokens; begin += block_tokens) {
    keys.push_back(hash.Next(*previous, std::as_bytes(tokens.subspan(begin, block_tokens))));
    previous = &keys.back();  // no reallocation: the room was reserved
  }
  return keys;
}

}  // namespace moonpool::bus

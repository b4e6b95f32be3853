#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"
#include "base/hex.h"

namespace moonpool {

std::string Digest256::ToHex() const { return HexEncode(bytes); }

std::optional<Digest256> Digest256::FromHex(std::string_view text) {
  const auto decoded = HexDecode(text);
  if (!decoded || decoded->size() != 32) return std::nullopt;
  Digest256 digest;
  std::copy(decoded->begin(), decoded->end(), digest.bytes.begin());
  return digest;
}

struct Sha256::State {
  State() : context(EVP_MD_CTX_new()) { MP_CHECK(EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1); }
  ~State() { EVP_MD_CTX_free(context); }
  // The algorithm stays: looking it up again would cost as much as hashing a short input.
  void Restart() { MP_CHECK(EVP_DigestInit_ex(context, nullptr, nullptr) == 1); }
  EVP_MD_CTX* context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  MP_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

Digest256 Sha256::Finish() {
  Digest256 digest;
  unsigned length = 0;
  MP_CHECK(EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.bytes.data()), &length) == 1);
  MP_CHECK(length == digest.bytes.size());
  state_->Restart();
  return digest;
}

Digest256 Sha256Of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

}  // namespace moonpool

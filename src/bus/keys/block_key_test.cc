#include "bus/keys/block_key.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <fstream>
#include <locale>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/thread_cost.h"

namespace moonpool::bus {
namespace {

using nlohmann::json;

Digest256 DigestOf(const json& hex) { return Digest256::FromHex(hex.get<std::string>()).value(); }

ModelFingerprint FingerprintOf(const json& test) {
  const json& from = test.at("declared");
  DeclaredIdentity declared;
  declared.model_digest = DigestOf(from.at("model_digest"));
  declared.tokenizer_hash = DigestOf(from.at("tokenizer_hash"));
  declared.rope_hash = DigestOf(from.at("rope_hash"));
  declared.kv_types = from.at("kv_types");
  declared.layout = from.at("layout");
  if (!from.at("context_tokens").is_null()) declared.context_tokens = from.at("context_tokens").get<uint32_t>();
  declared.block_tokens = from.at("block_tokens");
  for (const json& adapter : from.at("adapters")) {
    declared.adapters.push_back({DigestOf(adapter.at("digest")), adapter.at("scale").get<double>()});
  }
  if (!from.at("projector_digest").is_null()) declared.projector_digest = DigestOf(from.at("projector_digest"));
  declared.sliding_window = from.at("sliding_window");
  declared.operator_epoch = from.at("operator_epoch");
  return {declared, DigestOf(test.at("canary_family"))};
}

std::vector<TokenId> TokensOf(const json& from) {
  std::vector<TokenId> tokens(from.at("count").get<size_t>());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>((i * 2654435761u + from.at("seed").get<uint64_t>()) % 151936);
  }
  return tokens;
}

void ExpectGoldenVectors() {
  std::ifstream file(MOONPOOL_SOURCE_DIR "/tests/golden/keys/block_keys.json");
  const json golden = json::parse(file);
  ASSERT_GE(golden.at("cases").size(), 5u);
  for (const json& test : golden.at("cases")) {
    SCOPED_TRACE(test.at("name"));
    const ModelFingerprint fingerprint = FingerprintOf(test);
    EXPECT_EQ(fingerprint.declared.Id().ToHex(), test.at("declared_id"));
    EXPECT_EQ(fingerprint.Id().ToHex(), test.at("fingerprint_id"));
    const Digest256 root = ChainRoot(fingerprint, test.at("namespace").get<std::string>());
    EXPECT_EQ(root.ToHex(), test.at("root"));
    std::vector<std::string> keys;
    for (const BlockKey& key : BlockKeys(root, TokensOf(test.at("tokens")), fingerprint.declared.block_tokens)) {
      keys.push_back(key.ToHex());
    }
    EXPECT_EQ(keys, test.at("keys").get<std::vector<std::string>>());
  }
}

// Field report B07: the same keys in every process, on every machine.
TEST(BlockKeyGolden, VectorsAreReproduced) { ExpectGoldenVectors(); }

TEST(BlockKeyGolden, LocaleHasNoSay) {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    char do_decimal_point() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new Grouping));
  ExpectGoldenVectors();
  std::locale::global(before);
}

TEST(BlockKeyGolden, FreshProcessesWithOtherEnvironmentsReproduceThem) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const char* environment :
       {"env -i", "env -i LC_ALL=tr_TR.UTF-8 LANG=de_DE TZ=Asia/Kathmandu", "env -i MALLOC_PERTURB_=85 HOME=/ TZ=:x"}) {
    const std::string command =
        std::string(environment) + " '" + self + "' --gtest_filter=BlockKeyGolden.VectorsAreReproduced 2>&1 >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

TEST(BlockKeys, OnlyWholeBlocksHaveKeys) {
  const Digest256 root = Sha256Of("root");
  const std::vector<TokenId> tokens(1000, 7);
  for (const uint32_t block : {1u, 2u, 255u, 256u, 999u, 1000u, 1001u, kBlockTokensMax}) {
    for (const size_t length : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{257}, tokens.size()}) {
      EXPECT_EQ(BlockKeys(root, std::span(tokens).first(length), block).size(), length / block);
    }
  }
}

TEST(BlockKeys, NegativeTokenIdsAreTokensLikeOthers) {
  const Digest256 root = Sha256Of("root");
  const TokenId placeholder[] = {-1}, largest[] = {INT32_MAX}, zero[] = {0};
  std::set<BlockKey> keys;
  for (const auto& tokens : {placeholder, largest, zero}) keys.insert(BlockKeys(root, std::span(tokens, 1), 1).at(0));
  EXPECT_EQ(keys.size(), 3u);
}

// Class C2 and field report B10: a key stands for exactly one fingerprint, namespace and beginning of tokens.
TEST(BlockKeys, AreSharedExactlyAsFarAsTheTokensAre) {
  EXPECT_TRUE(rc::check("key i is shared if and only if all tokens through block i are", [] {
    const uint32_t block = *rc::gen::inRange(1u, 6u);
    // Few different tokens and edited copies: many prompts that agree far in, or again after a difference.
    const auto token = rc::gen::inRange<TokenId>(0, 3);
    const auto a = *rc::gen::container<std::vector<TokenId>>(token);
    auto b = *rc::gen::arbitrary<bool>() ? *rc::gen::container<std::vector<TokenId>>(token) : a;
    if (!b.empty() && *rc::gen::arbitrary<bool>()) b[*rc::gen::inRange<size_t>(0, b.size())] = *token;
    if (*rc::gen::arbitrary<bool>()) b.push_back(*token);

    ModelFingerprint fingerprint;
    fingerprint.declared.block_tokens = block;
    const Digest256 root = ChainRoot(fingerprint, "n");
    const auto keys_a = BlockKeys(root, a, block);
    const auto keys_b = BlockKeys(root, b, block);
    for (size_t i = 0; i < std::min(keys_a.size(), keys_b.size()); ++i) {
      const size_t end = (i + 1) * block;
      const bool same_tokens = std::equal(a.begin(), a.begin() + end, b.begin());
      RC_ASSERT((keys_a[i] == keys_b[i]) == same_tokens);
    }
    // No two positions of one chain share a key, even where tokens repeat.
    RC_ASSERT(std::set<BlockKey>(keys_a.begin(), keys_a.end()).size() == keys_a.size());

    // Another fingerprint, another namespace: nothing in common.
    ModelFingerprint other = fingerprint;
    other.canary_family = Sha256Of("other");
    std::set<BlockKey> all(keys_a.begin(), keys_a.end());
    for (const Digest256& stranger : {ChainRoot(other, "n"), ChainRoot(fingerprint, "m"), ChainRoot(fingerprint, "")}) {
      for (const BlockKey& key : BlockKeys(stranger, a, block)) RC_ASSERT(all.insert(key).second);
    }
  }));
}

TEST(BlockKeys, APromptWithAnotherFirstTokenSharesNothing) {  // field report B11
  const Digest256 root = Sha256Of("root");
  std::vector<TokenId> tokens(2560, 5);
  const auto before = BlockKeys(root, tokens, 256);
  tokens[0] = 6;
  const auto after = BlockKeys(root, tokens, 256);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NE(before[i], after[i]);
}

// A chain costs one compression and one start per block more than a single pass: measured 1.2 here. The bar is
// the issue's, 2; thread time and medians keep other processes out of it.
TEST(BlockKeys, CostAtMostTwiceOnePassOfSha256) {
  static_assert(sizeof(BlockKey) >= 16, "a key has at least 128 bits");  // field report B10
  std::vector<TokenId> tokens(32768);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 7919 % 151936);
  const Digest256 root = Sha256Of("root");
  size_t keys = 0;
  double ratio = 1e9;
  // A machine that changes its pace between the two halves of one attempt gets another.
  for (int attempt = 0; attempt < 5 && ratio > 2; ++attempt) {
    const double once =
        testing::MedianSeconds(25, [&] { keys += Sha256Of(std::as_bytes(std::span(tokens))).bytes.size(); });
    const double chain =
        testing::MedianSeconds(25, [&] { keys += BlockKeys(root, tokens, kDefaultBlockTokens).size(); });
    ratio = chain / once;
  }
  EXPECT_GT(keys, 0u);
  EXPECT_LE(ratio, 2.0);
  RecordProperty("ratio", std::to_string(ratio));
}

}  // namespace
}  // namespace moonpool::bus

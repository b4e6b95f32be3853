#include "bus/keys/model_fingerprint.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>
#include <limits>
#include <map>
#include <set>

#include "bus/keys/block_key.h"

namespace moonpool::bus {
namespace {

DeclaredIdentity Identity() {
  DeclaredIdentity identity;
  identity.model_digest = Sha256Of("model");
  identity.tokenizer_hash = Sha256Of("tokenizer");
  identity.rope_hash = Sha256Of("rope");
  identity.kv_types = "f16/f16";
  identity.layout = "v3;plain";
  identity.block_tokens = 256;
  return identity;
}

// Field report B04: every unequal pair of settings misses. What a command line changes without a word in /props
// (RoPE base and scale) shows in the canary's family, flash attention in the layout.
TEST(ModelFingerprint, EveryPairOfSettingsHasKeysOfItsOwn) {
  std::map<Digest256, std::string> roots;
  int settings = 0;
  for (const char* k : {"f16", "q8_0"}) {
    for (const char* v : {"f16", "q8_0"}) {
      for (const char* flash : {"on", "off"}) {
        for (const uint32_t context : {4096u, 8192u}) {
          for (const uint32_t block : {128u, 256u}) {
            for (const char* rope : {"file", "base 101000", "scale 0.98"}) {
              ModelFingerprint fingerprint;
              fingerprint.declared = Identity();
              fingerprint.declared.kv_types = std::string(k) + "/" + v;
              fingerprint.declared.layout = std::string("v3;flash=") + flash;
              fingerprint.declared.context_tokens = context;
              fingerprint.declared.block_tokens = block;
              fingerprint.canary_family = Sha256Of(rope);
              const auto [at, fresh] = roots.emplace(ChainRoot(fingerprint, ""), fingerprint.Describe());
              EXPECT_TRUE(fresh) << fingerprint.Describe() << " has the keys of " << at->second;
              ++settings;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(roots.size(), static_cast<size_t>(settings));
}

TEST(ModelFingerprint, EveryFieldCounts) {
  using Change = std::function<void(DeclaredIdentity&)>;
  const std::map<std::string, Change> changes = {
      {"nothing", [](auto&) {}},
      {"model", [](auto& d) { d.model_digest.bytes[31] ^= std::byte{1}; }},
      {"tokenizer", [](auto& d) { d.tokenizer_hash.bytes[0] ^= std::byte{1}; }},
      {"rope", [](auto& d) { d.rope_hash.bytes[7] ^= std::byte{1}; }},
      {"kv types", [](auto& d) { d.kv_types = "f16/q8_0"; }},
      {"layout", [](auto& d) { d.layout += ";v_trans"; }},
      {"context 0", [](auto& d) { d.context_tokens = 0; }},
      {"context", [](auto& d) { d.context_tokens = 4096; }},
      {"block", [](auto& d) { d.block_tokens = 255; }},
      {"adapter",
       [](auto& d) {
         d.adapters = {{Sha256Of("a"), 1.0}};
       }},
      {"adapter scale",
       [](auto& d) {
         d.adapters = {{Sha256Of("a"), 0.5}};
       }},
      {"adapter off",
       [](auto& d) {
         d.adapters = {{Sha256Of("a"), 0.0}};
       }},
      {"two adapters",
       [](auto& d) {
         d.adapters = {{Sha256Of("a"), 1.0}, {Sha256Of("b"), 1.0}};
       }},
      {"adapters in another order",
       [](auto& d) {
         d.adapters = {{Sha256Of("b"), 1.0}, {Sha256Of("a"), 1.0}};
       }},
      {"projector", [](auto& d) { d.projector_digest = Digest256{}; }},
      {"window", [](auto& d) { d.sliding_window = 512; }},
      {"epoch", [](auto& d) { d.operator_epoch = "2"; }},
  };
  std::map<Digest256, std::string> seen;
  for (const auto& [name, change] : changes) {
    DeclaredIdentity identity = Identity();
    change(identity);
    const auto [at, fresh] = seen.emplace(identity.Id(), name);
    EXPECT_TRUE(fresh) << name << " has the id of " << at->second;
  }
  ModelFingerprint one{Identity(), Sha256Of("family 0")};
  ModelFingerprint other{Identity(), Sha256Of("family 1")};
  EXPECT_NE(one.Id(), other.Id());
  EXPECT_NE(ChainRoot(one, "a"), ChainRoot(one, "b"));
  EXPECT_NE(ChainRoot(one, ""), ChainRoot(one, std::string_view("\0", 1)));
  EXPECT_EQ(ChainRoot(one, "a"), ChainRoot(ModelFingerprint(one), "a"));
}

// Texts of few letters, so that one field's end often looks like the next one's beginning.
rc::Gen<DeclaredIdentity> AnyIdentity() {
  return rc::gen::exec([] {
    const auto digest = rc::gen::map(rc::gen::inRange(0, 2), [](int i) { return Sha256Of(i == 0 ? "0" : "1"); });
    const auto text =
        rc::gen::resize(3, rc::gen::container<std::string>(rc::gen::elementOf(std::string("\0\1a/;", 5))));
    DeclaredIdentity identity;
    identity.model_digest = *digest;
    identity.kv_types = *text;
    identity.layout = *text;
    identity.operator_epoch = *text;
    if (*rc::gen::arbitrary<bool>()) identity.context_tokens = *rc::gen::inRange(0u, 3u);
    if (*rc::gen::arbitrary<bool>()) identity.projector_digest = *digest;
    identity.block_tokens = *rc::gen::inRange(1u, 3u);
    identity.sliding_window = *rc::gen::inRange(0u, 2u);
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
      identity.adapters.push_back({*digest, *rc::gen::element(-0.0, 0.0, 0.5, 1.0)});
    }
    return identity;
  });
}

TEST(CanonicalEncoding, IsEqualExactlyForEqualIdentities) {
  EXPECT_TRUE(rc::check("same bytes if and only if same identity", [] {
    const DeclaredIdentity a = *AnyIdentity();
    DeclaredIdentity b = *rc::gen::arbitrary<bool>() ? *AnyIdentity() : a;
    // The classic mistake: bytes that move from one field into its neighbour.
    if (!b.layout.empty() && *rc::gen::arbitrary<bool>()) {
      b.kv_types += b.layout.front();
      b.layout.erase(0, 1);
    }
    RC_ASSERT((a.CanonicalEncoding() == b.CanonicalEncoding()) == (a == b));
    RC_ASSERT((a.Id() == b.Id()) == (a == b));
  }));
}

TEST(CanonicalEncoding, KindsNeverMeet) {
  // A fingerprint whose parts repeat an identity's bytes is still no identity: the kind comes before all fields.
  const ModelFingerprint fingerprint{Identity(), {}};
  EXPECT_NE(fingerprint.CanonicalEncoding()[4], fingerprint.declared.CanonicalEncoding()[4]);
  EXPECT_EQ(fingerprint.CanonicalEncoding().substr(0, 4), std::string("\1\0\0\0", 4)) << "the format version is first";
}

TEST(LoraIdentity, OneZeroAndOneNotANumber) {
  DeclaredIdentity a = Identity(), b = Identity();
  a.adapters = {{Sha256Of("a"), 0.0}};
  b.adapters = {{Sha256Of("a"), -0.0}};
  EXPECT_EQ(a.Id(), b.Id());
  a.adapters[0].scale = std::numeric_limits<double>::quiet_NaN();
  b.adapters[0].scale = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(a.Id(), b.Id());
}

TEST(Describe, IsOneLineThatTellsTheDifference) {
  ModelFingerprint fingerprint{Identity(), Sha256Of("family")};
  fingerprint.declared.operator_epoch = "line\nbreak \xc6)";
  fingerprint.declared.context_tokens = 4096;
  const std::string line = fingerprint.Describe();
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  for (const char* part : {"kv=f16/f16", "block=256", "context=4096", "model=", "family="}) {
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace moonpool::bus

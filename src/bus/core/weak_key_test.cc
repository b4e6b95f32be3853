// What becomes of a key that stands for several prompts (field report B10): keys cut to 12 bits, so that nearly every
// question meets a stranger's object. The store below answers like one whose hash function is broken.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "bus/core/prefix_finder.h"
#include "support/fake_clock.h"

namespace moonpool::bus {
namespace {

constexpr uint32_t kBlock = 4;
constexpr int kPrompts = 10'000;

class ShortKeyStore final : public BlobStore {
 public:
  void Put(const TicketPrompt& prompt, const EngineProfile& profile) {
    ObjectHeader header;
    header.id = std::to_string(headers_.size());
    header.fingerprint = profile.fingerprint_id;
    header.name_space = prompt.name_space;
    header.block_tokens = kBlock;
    header.tokens = prompt.tokens;
    header.keys = prompt.keys;
    for (uint32_t i = 0; i < prompt.keys.size(); ++i) aliases_[Cut(prompt.keys[i])] = {header.id, i + 1};
    headers_[header.id] = header;
  }
  Result<std::vector<std::optional<ObjectRef>>> BatchExists(std::span<const Digest256> keys) override {
    std::vector<std::optional<ObjectRef>> found;
    for (const Digest256& key : keys) {
      const auto alias = aliases_.find(Cut(key));
      found.push_back(alias == aliases_.end() ? std::nullopt : std::optional(alias->second));
      answered_ += found.back().has_value();
    }
    return found;
  }
  Result<ObjectHeader> ReadHeader(const ObjectId& object) override { return headers_.at(object); }
  uint64_t answered() const { return answered_; }

  // Not asked by PrefixFinder::Find.
  Result<std::unique_ptr<Reservation>> Reserve(uint64_t) override { return No(); }
  Result<PublishReceipt> Publish(PublishRequest, std::unique_ptr<Reservation>) override { return No(); }
  Result<FetchReceipt> Fetch(const ObjectHeader&, const Path&, const Deadline&) override { return No(); }
  void Touch(const ObjectId&, double) override {}
  Result<std::vector<ObjectSummary>> List() override { return No(); }
  Result<void> Remove(const ObjectId&) override { return No(); }
  Result<void> Verify(const ObjectId&) override { return No(); }
  void Quarantine(const ObjectId&, const std::string&) override {}
  Result<StoreStats> Stats() override { return No(); }
  Result<std::string> GetCanary(const Digest256&, int) override { return No(); }
  Result<void> PutCanary(const Digest256&, int, std::string_view) override { return No(); }
  void Tick() override {}

 private:
  static tl::unexpected<Error> No() { return Fail(ErrorCode::kUnsupported, "not part of this test"); }
  static uint32_t Cut(const Digest256& key) {
    return (static_cast<uint32_t>(key.bytes[0]) << 8 | static_cast<uint32_t>(key.bytes[1])) & 0xfffu;
  }
  std::map<uint32_t, ObjectRef> aliases_;
  std::map<ObjectId, ObjectHeader> headers_;
  uint64_t answered_ = 0;
};

TEST(WeakKeys, EveryCollisionIsACleanMiss) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  EngineProfile profile;
  profile.fingerprint.declared.block_tokens = kBlock;
  profile.fingerprint_id = profile.fingerprint.Id();
  const auto any_prompt = [&](TokenId first) {
    TicketPrompt prompt;
    prompt.tokens.resize(1 + random() % (4 * kBlock));
    for (TokenId& token : prompt.tokens) token = static_cast<TokenId>(random() % 50'000);
    prompt.tokens[0] = first;  // no prompt that is looked up begins like one that is stored
    prompt.keys = BlockKeys(ChainRoot(profile.fingerprint, ""), prompt.tokens, kBlock);
    return prompt;
  };
  ShortKeyStore store;
  std::vector<TicketPrompt> stored;
  for (int i = 0; i < kPrompts; ++i) stored.push_back(any_prompt(0));
  for (const TicketPrompt& prompt : stored) store.Put(prompt, profile);

  testing::FakeClock clock;
  PrefixIndex index{{}};
  PrefixFinder finder(store, index, clock);
  int collisions = 0;
  for (int i = 0; i < kPrompts; ++i) {
    const auto answer = finder.Find(profile, any_prompt(1)).value();
    EXPECT_FALSE(answer.object) << "somebody else's object";
    EXPECT_EQ(answer.restorable_tokens, 0u);
    collisions += answer.reason == "identity";
  }
  EXPECT_GT(collisions, kPrompts / 2) << "the keys are weak indeed";

  // The control: what is offered to those who did store is their own beginning.
  int offered = 0;
  for (const TicketPrompt& prompt : stored) {
    const auto answer = finder.Find(profile, prompt).value();
    if (!answer.object) continue;
    ++offered;
    ASSERT_LT(answer.restorable_tokens, prompt.tokens.size());
    ASSERT_TRUE(std::equal(prompt.tokens.begin(),
                           prompt.tokens.begin() + static_cast<std::ptrdiff_t>(answer.restorable_tokens),
                           answer.object->tokens.begin()));
  }
  EXPECT_GT(offered, 500);
}

}  // namespace
}  // namespace moonpool::bus

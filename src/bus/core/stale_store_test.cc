// A store that is not what the bus last saw of it: emptied, damaged, out of room (field reports B11, B26, B28, B54).
#include <gtest/gtest.h>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BusWorld;
using testing::Concat;
using testing::kWorldBlock;
using testing::Tokens;

uint64_t Sum(const std::map<std::string, uint64_t>& counts) {
  uint64_t sum = 0;
  for (const auto& [reason, count] : counts) sum += count;
  return sum;
}

// What stands on disk, whoever wrote it.
uint64_t BytesUnder(const Path& root) {
  uint64_t bytes = 0;
  std::error_code gone;  // files may go while they are counted
  for (auto entry = std::filesystem::recursive_directory_iterator(root, gone);
       entry != std::filesystem::recursive_directory_iterator(); entry.increment(gone)) {
    if (!entry->is_regular_file(gone)) continue;
    const auto size = entry->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

class StaleStore : public ::testing::Test {
 protected:
  StaleStore() {
    world.AddServer("a");
    world.AddServer("b");
    world.Settle();
  }
  std::vector<Path> Objects(const std::string& extension) const {
    std::vector<Path> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(world.dir / "store/objects")) {
      if (entry.is_regular_file() && (extension.empty() || entry.path().extension() == extension)) {
        found.push_back(entry.path());
      }
    }
    return found;
  }
  void ExpectCleanMiss(const PrepareReply& missed) {
    EXPECT_TRUE(missed.decision == Decision::kLead || missed.decision == Decision::kRecompute) << missed.reason;
    EXPECT_EQ(missed.restored_tokens, 0u);
    world.bus->Release(missed.ticket);
    EXPECT_EQ(world.SlotFiles("b"), 0u);
    for (const EngineStatus& engine : world.bus->Engines()) EXPECT_EQ(engine.tickets, 0u);
  }
  BusWorld world;
};

// Gone between Lookup and Prepare in every way that a file can go; then a thousand requests for the same prompt pay
// for it once.
TEST_F(StaleStore, WhatIsGoneCostsOneSlowFailure) {  // B26, B54
  const std::vector<std::pair<std::string, std::function<void()>>> ways = {
      {"everything deleted",
       [&] {
         for (const char* part : {"store/objects", "store/aliases"}) {
           for (const auto& entry : std::filesystem::directory_iterator(world.dir / part)) {
             std::filesystem::remove_all(entry.path());
           }
         }
       }},
      {"payload deleted", [&] { std::filesystem::remove(Objects(".kv").at(0)); }},
      {"payload renamed",
       [&] {
         const Path path = Objects(".kv").at(0);
         std::filesystem::rename(path, path.string() + ".away");
       }},
      {"payload a directory",
       [&] {
         const Path path = Objects(".kv").at(0);
         std::filesystem::remove(path);
         std::filesystem::create_directory(path);
       }},
      {"payload shorter", [&] { std::filesystem::resize_file(Objects(".kv").at(0), 100); }},
      {"every file deleted",
       [&] {
         for (const Path& path : Objects("")) std::filesystem::remove(path);
       }},
  };
  int seed = 10;
  for (const auto& [name, spoil] : ways) {
    SCOPED_TRACE(name);
    const auto objects = world.store->List().value();
    for (const ObjectSummary& object : objects) (void)world.store->Remove(object.id);
    const auto prompt = Tokens(100, ++seed);
    ASSERT_EQ(world.Run("a", prompt).committed.status, CommitStatus::kPublished);
    world.EraseSlots("b");
    ASSERT_EQ(world.bus->Lookup(world.Ask("b", prompt)).value().decision, Decision::kRestore);
    spoil();
    const uint64_t failures = Sum(world.bus->Counts().failures);
    ExpectCleanMiss(world.Prepare("b", prompt));
    uint64_t fetches = 0;
    world.on_file_call = [&](std::string_view call, const Path& path) {
      fetches += path.parent_path().filename() == "slots_b" && call != "remove";
    };
    for (int i = 0; i < 1000; ++i) {
      const auto looked = world.bus->Lookup(world.Ask("b", prompt)).value();
      ASSERT_EQ(looked.restorable_tokens, 0u) << i;
      if (i % 10 == 0) ExpectCleanMiss(world.Prepare("b", prompt));
    }
    world.on_file_call = nullptr;
    EXPECT_EQ(fetches, 0u) << "not tried again";
    EXPECT_LE(Sum(world.bus->Counts().failures), failures + 1) << "one slow failure, not a thousand";
    EXPECT_EQ(world.Run("b", prompt).committed.status, CommitStatus::kPublished) << "and it can be stored again";
  }
}

TEST_F(StaleStore, AnIndexThatKnowsMoreThanTheStoreIsCorrected) {  // B11, B54
  const auto ten = Tokens(10 * kWorldBlock, 3);
  const auto four = std::vector<TokenId>(ten.begin(), ten.begin() + 4 * kWorldBlock);
  const auto shared = Concat(four, Tokens(20, 4));  // another conversation that shares four blocks
  ASSERT_EQ(world.Run("a", shared).committed.status, CommitStatus::kPublished);
  const auto longer = world.Run("a", ten);
  ASSERT_EQ(longer.committed.status, CommitStatus::kPublished);
  const std::vector<TokenId> six(ten.begin(), ten.begin() + 6 * kWorldBlock);
  ASSERT_EQ(world.bus->Lookup(world.Ask("b", six)).value().stored_tokens, 6 * kWorldBlock);
  // Behind the bus's back: its index goes on claiming ten.
  ASSERT_TRUE(world.store->Remove(longer.committed.object));
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", six)).value().stored_tokens, 4 * kWorldBlock);
  const auto prepared = world.Prepare("b", Concat(six, Tokens(8, 5)));
  EXPECT_EQ(prepared.restored_tokens, 4 * kWorldBlock);
}

TEST_F(StaleStore, AThousandVolatileFirstBlocksStayBelowTheQuotaAndHitNothing) {  // B11
  BusWorld::Options options;
  options.quota_bytes = 400'000;
  BusWorld small(options);
  small.AddServer("a");
  small.Settle();
  const auto common = Tokens(48, 5);
  const int prompts = testing::kSanitized ? 100 : 1000;
  for (int i = 0; i < prompts; ++i) {
    auto prompt = Concat(Tokens(kWorldBlock, 6), common);
    prompt[0] = 100 + i;  // a clock in the system prompt
    const auto turn = small.Run("a", prompt, "", 1);
    ASSERT_NE(turn.prepared.decision, Decision::kRestore) << turn.prepared.reason;
    ASSERT_EQ(turn.prepared.reason, "no_prefix");
    ASSERT_LE(small.store->Stats()->bytes + small.store->Stats()->reserved_bytes, 400'000u);
    if (i % 50 == 0) small.Tick();
  }
  EXPECT_LE(BytesUnder(small.dir / "store/objects"), 400'000u);
  const auto counts = small.bus->Counts();
  EXPECT_EQ((counts.decisions.at({"LEAD", "no_prefix"})), static_cast<uint64_t>(prompts))
      << "an operator sees why nothing is shared";
  EXPECT_EQ(counts.prefill_tokens_saved_total, 0u);
}

// A conversation of 1 to 40 blocks, committed at each turn: at every call to the file system the bytes of store and
// slot directory together are within the quota.
TEST_F(StaleStore, AGrowingConversationStaysBelowTheQuotaAtEveryMoment) {  // B28 c
  BusWorld::Options options;
  options.quota_bytes = 1'100'000;
  BusWorld small(options);
  small.AddServer("a");
  small.Settle();
  uint64_t highest = 0, looks = 0;
  small.on_file_call = [&](std::string_view call, const Path&) {
    if (call == "read" || call == "info") return;  // changes nothing
    ++looks;
    highest = std::max(highest, BytesUnder(small.dir / "store/objects") + BytesUnder(small.dir / "slots_a"));
  };
  std::vector<TokenId> conversation;
  uint64_t written = 0;
  for (int turn = 1; turn <= 40; ++turn) {
    conversation = Concat(conversation, Tokens(kWorldBlock, 100 + turn));
    const auto done = small.Run("a", conversation, "", 1);
    ASSERT_EQ(done.committed.status, CommitStatus::kPublished) << turn << " " << done.committed.detail;
    written += small.store->Stats()->bytes;
    ASSERT_LE(highest, options.quota_bytes) << turn;
    ASSERT_LE(small.store->Stats()->bytes, options.quota_bytes) << turn;
  }
  small.on_file_call = nullptr;
  EXPECT_GT(looks, 400u);
  EXPECT_GT(written, options.quota_bytes * 2) << "all turns together would not have fitted";
  EXPECT_EQ(small.store->Stats()->objects, 1u);
}

}  // namespace
}  // namespace moonpool::bus

// Commit: what is stored, what is skipped and why, what it counts.
#include <gtest/gtest.h>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BusWorld;
using testing::Concat;
using testing::FakeServer;
using testing::kWorldBlock;
using testing::Tokens;

class Commits : public ::testing::Test {
 protected:
  Commits() {
    server = world.AddServer("a");
    other = world.AddServer("b");
    world.Settle();
  }
  uint64_t Stored(const std::vector<TokenId>& tokens) {
    return world.bus->Lookup(world.Ask("b", tokens)).value().stored_tokens;
  }
  BusWorld world;
  std::shared_ptr<FakeServer> server, other;
};

TEST_F(Commits, ReturnAtOnceAndWorkInTheBackground) {
  const auto prompt = Tokens(40, 1);
  const auto prepared = world.Prepare("a", prompt);
  CommitRequest request;
  request.ticket = prepared.ticket;
  request.timings = BusWorld::Timings(world.Complete("a", prepared, prompt));
  const int saves = server->Calls("save");
  EXPECT_EQ(world.bus->Commit(request).value().status, CommitStatus::kAccepted);
  EXPECT_EQ(server->Calls("save"), saves) << "nothing happened in the reply's path";
  EXPECT_EQ(Stored(prompt), 0u);
  world.executor.RunAll();
  EXPECT_EQ(Stored(prompt), 32u);
  EXPECT_EQ(world.bus->Commit(request).value().reason, "unknown_ticket") << "the ticket has ended";
}

TEST_F(Commits, SkipWhatIsStoredAlready) {
  const auto prompt = Tokens(40, 1);
  world.Run("a", prompt, "", 2);
  const int saves = other->Calls("save");
  const auto again = world.Run("b", prompt, "", 2);
  EXPECT_EQ(again.committed.status, CommitStatus::kSkipped);
  EXPECT_EQ(again.committed.reason, "exists");
  EXPECT_EQ(other->Calls("save"), saves);
  EXPECT_EQ(world.Run("b", prompt, "", 12).committed.status, CommitStatus::kPublished)
      << "this reply completes a new block";
}

TEST_F(Commits, StoreNothingThatIsNotTheTicketsPromptAndReply) {
  const auto prompt = Tokens(40, 1);
  const auto try_with = [&](auto&& disturb) {
    const auto prepared = world.Prepare("a", prompt);
    CommitRequest request;
    request.ticket = prepared.ticket;
    request.wait = CommitWait::kPublished;
    request.timings = BusWorld::Timings(world.Complete("a", prepared, prompt));
    disturb(request);
    const auto reply = world.bus->Commit(request).value();
    world.executor.RunAll();
    EXPECT_EQ(reply.status, CommitStatus::kSkipped) << reply.detail;
    EXPECT_EQ(Stored(prompt), 0u);
    EXPECT_EQ(world.SlotFiles("a"), 0u);
    for (const EngineStatus& engine : world.bus->Engines()) EXPECT_EQ(engine.tickets, 0u);
    return reply.reason;
  };
  EXPECT_EQ(try_with([](CommitRequest& request) { request.truncated = true; }), "truncated");
  EXPECT_EQ(try_with([](CommitRequest& request) { request.timings->prompt_n += 1; }), "prompt_differs");
  EXPECT_EQ(try_with([&](CommitRequest&) { server->Overwrite(0, Tokens(60, 9)); }), "slot_changed");
  EXPECT_EQ(try_with([&](CommitRequest&) { server->Overwrite(0, Tokens(43, 9)); }), "slot_changed")
      << "same length, other tokens";
  EXPECT_EQ(try_with([&](CommitRequest&) { server->Overwrite(0, Concat(prompt, Tokens(40, 9))); }), "slot_changed")
      << "more than was predicted";
  EXPECT_EQ(try_with([&](CommitRequest&) { server->SetBusy(0, true); }), "slot_changed");
  server->SetBusy(0, false);
  EXPECT_EQ(try_with([&](CommitRequest& request) {
              server->Overwrite(0, {});
              request.timings.reset();
            }),
            "slot_changed")
      << "an empty slot (field report B24)";
}

TEST_F(Commits, StoreNothingAfterARestart) {
  const auto prompt = Tokens(40, 1);
  const auto prepared = world.Prepare("a", prompt);
  const auto completion = world.Complete("a", prepared, prompt);
  server->Restart();
  world.Settle();
  EXPECT_EQ(world.Commit(prepared, completion).reason, "unknown_ticket");
  EXPECT_EQ(Stored(prompt), 0u);
}

// Field reports B06: images behind identical placeholder tokens.
TEST_F(Commits, MediaIsBypassedBothWays) {
  auto request = world.Ask("a", Tokens(40, 1));
  request.has_media = true;
  const auto prepared = world.bus->Prepare(request).value();
  EXPECT_EQ(prepared.decision, Decision::kBypass);
  EXPECT_EQ(prepared.reason, "media");
  EXPECT_TRUE(prepared.ticket.empty());
  EXPECT_EQ(world.bus->Lookup(request).value().reason, "media");
}

// B06, the other way: the caller does not say so, but the slot holds an image. Two prompts with equal placeholders and
// different images would share a key.
TEST_F(Commits, MediaThatNobodyDeclaredIsNotStored) {
  const auto prompt = Tokens(40, 1);
  server->SetMediaWords(8);
  const auto turn = world.Run("a", prompt);
  EXPECT_EQ(turn.committed.status, CommitStatus::kSkipped);
  EXPECT_EQ(turn.committed.reason, "media");
  EXPECT_EQ(Stored(prompt), 0u);
  EXPECT_EQ(world.store->Stats()->objects, 0u);
  EXPECT_EQ(world.SlotFiles("a"), 0u);
}

TEST_F(Commits, ALeaderMayPublishBeforeItCompletesAndKeepItsSlot) {
  const auto prompt = Tokens(40, 1);
  const auto prepared = world.Prepare("a", prompt);
  ASSERT_EQ(prepared.decision, Decision::kLead);
  CommitRequest early;
  early.ticket = prepared.ticket;
  early.wait = CommitWait::kSaved;
  early.keep = true;
  early.timings = BusWorld::Timings(world.Complete("a", prepared, prompt, 0));
  EXPECT_EQ(world.bus->Commit(early).value().status, CommitStatus::kSaved);
  EXPECT_EQ(world.Prepare("a", Tokens(40, 2)).reason, "slot_busy") << "the slot is still its own";
  world.executor.RunAll();
  EXPECT_EQ(Stored(prompt), 32u);
  const auto completion = world.Complete("a", prepared, prompt);
  EXPECT_EQ(completion.timings.prompt_tokens_evaluated, 1u);
  EXPECT_EQ(world.Commit(prepared, completion).reason, "exists");
  EXPECT_EQ(world.Prepare("a", Tokens(40, 2)).decision, Decision::kLead) << "free again";
}

TEST_F(Commits, AreBoundedAndSayWhenTheBudgetIsSpent) {
  BusWorld::Options options;
  options.config.block_tokens = kWorldBlock;
  options.config.commits_max = 2;
  BusWorld small(options);
  FakeServer::Options four;
  four.slots = 4;
  small.AddServer("a", four);
  small.Settle();
  std::map<std::string, int> reasons;
  for (int i = 0; i < 4; ++i) {
    const auto prompt = Tokens(40, 10 + i);
    const auto prepared = small.Prepare("a", prompt);
    CommitRequest request;
    request.ticket = prepared.ticket;
    request.timings = BusWorld::Timings(small.Complete("a", prepared, prompt));
    ++reasons[small.bus->Commit(request).value().reason];
  }
  EXPECT_EQ(reasons["accepted"], 2);
  EXPECT_EQ(reasons["budget"], 2);
  small.executor.RunAll();
  EXPECT_EQ(small.bus->Engines().at(0).tickets, 0u) << "skipped commits end their tickets, too";
}

TEST_F(Commits, CountSavingsOnlyFromWhatCompletionsReport) {
  const auto prompt = Tokens(40, 1);
  world.Run("a", prompt);
  const auto prepared = world.Prepare("b", prompt);
  ASSERT_EQ(prepared.decision, Decision::kRestore);
  EXPECT_EQ(world.bus->Counts().prefill_tokens_saved_total, 0u) << "a restore reply proves nothing";
  world.Commit(prepared, world.Complete("b", prepared, prompt));
  EXPECT_EQ(world.bus->Counts().prefill_tokens_saved_total, 39u);
}

TEST_F(Commits, AWrittenFileShorterThanTheServerSaidIsRefused) {  // field report B25
  const auto prompt = Tokens(40, 1);
  server->DamageSaves(-100);
  const auto turn = world.Run("a", prompt);
  EXPECT_EQ(turn.committed.status, CommitStatus::kFailed);
  EXPECT_EQ(turn.committed.reason, "no_space");
  server->DamageSaves(3);
  EXPECT_EQ(world.Run("a", Tokens(40, 2)).committed.status, CommitStatus::kFailed);
  EXPECT_EQ(Stored(prompt), 0u);
  EXPECT_EQ(world.SlotFiles("a"), 0u);
}

TEST_F(Commits, FailByNameWhenTheQuotaIsSpent) {
  BusWorld::Options options;
  options.quota_bytes = 200'000;
  BusWorld small(options);
  small.AddServer("a");
  small.Settle();
  const auto turn = small.Run("a", Tokens(2000, 1));
  EXPECT_EQ(turn.committed.status, CommitStatus::kFailed);
  EXPECT_EQ(turn.committed.reason, "quota");
  EXPECT_LE(small.store->Stats()->bytes, 200'000u);
}

}  // namespace
}  // namespace moonpool::bus

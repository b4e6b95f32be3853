// Every fault at every step ends as a miss, and nothing is left: no slot, ticket, file, lease or lock
// (field reports C4).
#include "base/fault.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BusWorld;
using testing::Concat;
using testing::FakeServer;
using testing::Tokens;

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists() || true;
  return count;
}

class Faults : public ::testing::Test {
 protected:
  Faults() {
    a = world.AddServer("a");
    b = world.AddServer("b");
    world.Settle();
  }
  ~Faults() override { fault::Disarm(); }

  void ExpectNothingLeft(const std::string& where) {
    world.executor.RunAll();
    EXPECT_EQ(world.SlotFiles("a") + world.SlotFiles("b"), 0u) << where;
    for (const EngineStatus& engine : world.bus->Engines()) EXPECT_EQ(engine.tickets, 0u) << where;
    world.store->Tick();  // the end of a reservation that could not be written is written at the next chance
    EXPECT_EQ(world.store->Stats()->reserved_bytes, 0u) << where;
  }
  BusWorld world;
  std::shared_ptr<FakeServer> a, b;
};

// Field report B17: whatever fails, the reply is "recompute" and the text that of a run without the bus.
TEST_F(Faults, EveryStepOfARestoreMayFail) {
  const auto prompt = Tokens(100, 1);
  const auto reference = world.Run("a", prompt);
  ASSERT_EQ(reference.committed.status, CommitStatus::kPublished);
  std::set<std::string> fired;
  const size_t descriptors = OpenDescriptors();
  for (uint64_t n = 1; n < 500; ++n) {
    world.EraseSlots("b");
    world.Settle();  // a server that was suspected is probed again
    ASSERT_EQ(world.StateOf("b"), "ready");
    fault::FailNth(n, ErrorCode::kIo);
    const auto prepared = world.Prepare("b", prompt);
    const auto where = fault::Fired();
    fault::Disarm();
    if (!where) {
      EXPECT_EQ(prepared.decision, Decision::kRestore);
      world.bus->Release(prepared.ticket);
      break;
    }
    fired.insert(*where);
    SCOPED_TRACE(*where + " as number " + std::to_string(n));
    const auto completion = world.Complete("b", prepared, prompt);
    EXPECT_EQ(completion.tokens, reference.completion.tokens);
    if (prepared.decision == Decision::kRestore) {
      EXPECT_GE(completion.timings.prompt_tokens_cached, prepared.restored_tokens) << "a promise is kept";
    } else {
      EXPECT_EQ(prepared.restored_tokens, 0u);
    }
    if (!prepared.ticket.empty()) world.bus->Release(prepared.ticket);
    ExpectNothingLeft(*where);
    ASSERT_LT(n, 499u) << "the loop must end";
  }
  EXPECT_GE(fired.size(), 6u) << "several different steps were hit";
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(world.Run("b", prompt).prepared.decision, Decision::kRestore) << "and the object is still there";
}

TEST_F(Faults, EveryStepOfACommitMayFail) {
  std::set<std::string> fired;
  const size_t descriptors = OpenDescriptors();
  for (uint64_t n = 1; n < 500; ++n) {
    const auto prompt = Tokens(64, static_cast<int>(1000 + n));
    const auto prepared = world.Prepare("a", prompt);
    ASSERT_FALSE(prepared.ticket.empty()) << prepared.reason;
    const auto completion = world.Complete("a", prepared, prompt);
    fault::FailNth(n, ErrorCode::kNoSpace);
    const auto committed = world.Commit(prepared, completion);
    const auto where = fault::Fired();
    fault::Disarm();
    if (!where) {
      EXPECT_EQ(committed.status, CommitStatus::kPublished);
      break;
    }
    fired.insert(*where);
    SCOPED_TRACE(*where + " as number " + std::to_string(n));
    ExpectNothingLeft(*where);
    const auto looked = world.bus->Lookup(world.Ask("b", prompt)).value();
    if (committed.status == CommitStatus::kPublished) {
      EXPECT_EQ(looked.stored_tokens, 64u);
    } else {
      EXPECT_TRUE(committed.status == CommitStatus::kFailed || committed.status == CommitStatus::kSkipped);
      EXPECT_NE(committed.reason, "");
      EXPECT_EQ(looked.restorable_tokens, 0u) << "nothing half-visible";
    }
    world.EraseSlots("a");
    ASSERT_LT(n, 499u) << "the loop must end";
  }
  EXPECT_GE(fired.size(), 10u);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

// Field report B15: a damaged object never reaches the server, and is met once.
TEST_F(Faults, ADamagedObjectNeverReachesTheServer) {
  const auto prompt = Tokens(100, 1);
  for (int i = 0; i < 40; ++i) {
    world.EraseSlots("a");
    const auto turn = world.Run("a", prompt);
    ASSERT_EQ(turn.committed.status, CommitStatus::kPublished) << i << " " << turn.committed.detail;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(world.dir / "store/objects")) {
      if (entry.path().extension() != ".kv") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto place = static_cast<std::streamoff>(entry.file_size() * static_cast<uint64_t>(i) / 40);
      file.seekg(place);
      const char byte = static_cast<char>(file.get() ^ 0x40);
      file.seekp(place);
      file.put(byte);
    }
    const auto missed = world.Run("b", prompt);
    EXPECT_NE(missed.prepared.decision, Decision::kRestore);
    EXPECT_EQ(missed.prepared.reason, "failed_corrupt");
    EXPECT_EQ(missed.completion.tokens, turn.completion.tokens);
    EXPECT_EQ(b->RestoredFiles().size(), 0u);
    // b computed and published it anew; take it away for the next round.
    const auto objects = world.store->List().value();
    for (const ObjectSummary& object : objects) {
      if (object.problem) continue;
      EXPECT_TRUE(world.store->Remove(object.id));
    }
    world.EraseSlots("b");
  }
  EXPECT_EQ(world.store->Stats()->quarantined, 40u);
}

// Field report B15, the other half: the server refuses a file that was checked.
TEST_F(Faults, AServerThatRefusesAGoodFileIsSuspectUntilACanaryProvesItSane) {
  const auto prompt = Tokens(100, 1);
  const auto reference = world.Run("a", prompt);
  b->FailNext("restore", {ErrorCode::kInvalidArgument, "Unable to restore slot"});
  const auto missed = world.Prepare("b", prompt);
  EXPECT_EQ(missed.decision, Decision::kRecompute);
  EXPECT_EQ(missed.restored_tokens, 0u);
  EXPECT_EQ(world.StateOf("b"), "suspect");
  world.bus->Release(missed.ticket);
  EXPECT_EQ(world.Prepare("b", prompt).reason, "suspect");
  world.Settle();
  EXPECT_EQ(world.StateOf("b"), "ready");
  EXPECT_EQ(world.Run("b", prompt).completion.tokens, reference.completion.tokens);
}

// Field report B20: a restore that comes late is not advertised, and the slot is erased before it is used again.
TEST_F(Faults, ALateRestoreLeavesTheSlotOutOfUseUntilItIsErased) {
  const auto prompt = Tokens(100, 1);
  world.Run("a", prompt);
  b->FailNext("restore", {ErrorCode::kDeadlineExceeded, "no answer in time"}, /*late=*/true);
  const auto missed = world.Prepare("b", prompt);
  EXPECT_EQ(missed.decision, Decision::kRecompute);
  EXPECT_FALSE(missed.slot) << "nobody is sent to the doubtful slot";
  EXPECT_TRUE(missed.ticket.empty());
  ExpectNothingLeft("late restore");
  EXPECT_EQ(world.Prepare("b", prompt).reason, "slot_in_doubt");
  world.Tick();
  EXPECT_TRUE(b->Tokens(0).empty()) << "erased";
  EXPECT_EQ(world.Run("b", prompt).prepared.reason, "hit");
}

// Field report B20: a save that comes late leaves no file, and its slot is out of use until it was erased.
TEST_F(Faults, ALateSaveLeavesNoFile) {
  const auto prompt = Tokens(100, 1);
  a->FailNext("save", {ErrorCode::kDeadlineExceeded, "no answer in time"}, /*late=*/true);
  EXPECT_EQ(world.Run("a", prompt).committed.reason, "deadline_exceeded");
  EXPECT_EQ(world.Prepare("a", prompt).reason, "slot_in_doubt");
  world.Tick();
  ExpectNothingLeft("late save");
  EXPECT_EQ(world.Run("a", prompt).committed.status, CommitStatus::kPublished);
}

// Field report B16: the server says "ok" and makes no use of it.
TEST_F(Faults, RestoresThatTheServerMakesNoUseOfEnd) {
  b->SetRestoresUseful(false);
  int restored = 0, stored = 0;
  for (int i = 0; i < 12; ++i) {
    const auto prompt = Tokens(100, 300 + i);
    const auto committed = world.Run("a", prompt).committed;
    stored += committed.status == CommitStatus::kPublished;
    if (committed.status != CommitStatus::kPublished) {
      EXPECT_EQ(committed.reason, "promises_broken");
    }
    world.EraseSlots("b");
    restored += world.Run("b", prompt).prepared.decision == Decision::kRestore;
  }
  EXPECT_EQ(restored, 3) << "as many as promises_broken_max";
  EXPECT_LE(stored, 4) << "nor is more stored than the later attempts need";
  EXPECT_EQ(world.bus->Counts().prefill_tokens_saved_total, 0u);
  EXPECT_EQ(world.bus->Counts().restores_ineffective_total, 3u);
  EXPECT_TRUE(world.bus->Engines().at(1).restores_declined);
  b->SetRestoresUseful(true);
  int until_recovered = 0;
  for (; until_recovered < 40; ++until_recovered) {
    const auto prompt = Tokens(100, 300 + until_recovered % 3);
    world.EraseSlots("b");
    world.Run("b", prompt);
    if (!world.bus->Engines().at(1).restores_declined) break;
  }
  EXPECT_LE(until_recovered, 16) << "tried again every 16th time";
}

TEST_F(Faults, ALostEngineIsAMissAndComesBack) {
  const auto prompt = Tokens(100, 1);
  world.Run("a", prompt);
  b->SetDown(true);
  EXPECT_EQ(world.Prepare("b", prompt).reason, "unreachable");
  world.Settle();
  EXPECT_EQ(world.StateOf("b"), "unreachable");
  EXPECT_TRUE(world.bus->Ready()) << "an engine that is not there is not waited for";
  b->Restart();
  b->SetDown(false);
  for (int i = 0; i < 40; ++i) world.Tick();
  EXPECT_EQ(world.StateOf("b"), "ready");
  EXPECT_EQ(world.Run("b", prompt).prepared.decision, Decision::kRestore);
}

TEST_F(Faults, ARestartIsNoticedByThePrepareThatMeetsIt) {
  const auto prompt = Tokens(100, 1);
  world.Run("a", prompt);
  b->Restart();
  const auto met = world.Prepare("b", prompt);
  EXPECT_EQ(met.decision, Decision::kBypass);
  EXPECT_EQ(met.reason, "restarted");
  world.Settle();
  EXPECT_EQ(world.Prepare("b", prompt).decision, Decision::kRestore);
}

// Between a Prepare and what follows, the server may be replaced by one that computes otherwise, unseen by any tick.
TEST_F(Faults, WhatARestartedServerHoldsIsNeitherPublishedNorPromised) {
  const auto prompt = Tokens(100, 1);
  const auto prepared = world.Prepare("a", prompt);
  a->Restart();
  a->SetSeed(77);
  EXPECT_EQ(world.Commit(prepared, world.Complete("a", prepared, prompt)).reason, "restarted");
  world.Settle();
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", prompt)).value().stored_tokens, 0u);

  const auto again = world.Prepare("b", prompt);
  b->RestartAfter("save");
  EXPECT_EQ(world.Commit(again, world.Complete("b", again, prompt)).reason, "restarted") << "after the save";
  world.Settle();
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", prompt)).value().stored_tokens, 0u);

  ASSERT_EQ(world.Run("b", prompt).committed.status, CommitStatus::kPublished);
  world.EraseSlots("b");
  b->RestartAfter("restore");
  const auto missed = world.Prepare("b", prompt);
  EXPECT_NE(missed.decision, Decision::kRestore);
  EXPECT_EQ(missed.restored_tokens, 0u);
  world.Settle();
  ExpectNothingLeft("restarts");
}

TEST_F(Faults, AfterARestoreThatWasNotAnsweredWellTheSlotIsEmptyOrOutOfUse) {
  const auto prompt = Tokens(100, 1);
  world.Run("a", prompt);
  for (const ErrorCode code : {ErrorCode::kInternal, ErrorCode::kPermission, ErrorCode::kUnsupported,
                               ErrorCode::kInvalidArgument, ErrorCode::kFailedPrecondition}) {
    b->Overwrite(0, Tokens(10, 9));
    b->FailNext("restore", {code, "no"});
    const auto missed = world.Prepare("b", prompt);
    EXPECT_NE(missed.decision, Decision::kRestore);
    EXPECT_TRUE(!missed.slot || b->Tokens(0).empty()) << ErrorCodeName(code);
    world.bus->Release(missed.ticket);
    world.Settle();
  }
  b->FailNext("restore", {ErrorCode::kInternal, "no"});
  b->FailNext("erase", {ErrorCode::kInternal, "no"});
  EXPECT_FALSE(world.Prepare("b", prompt).slot) << "not proved empty";
  world.Settle();
  EXPECT_EQ(world.Prepare("b", prompt).reason, "hit");
}

TEST_F(Faults, TimingsThatDoNotDescribeThePromptCountForNothing) {
  const auto prompt = Tokens(100, 1);
  const auto prepared = world.Prepare("a", prompt);
  CommitRequest request;
  request.ticket = prepared.ticket;
  request.timings = ObservedTimings{.prompt_n = 4'000'000'000, .cache_n = 4'000'000'000, .prompt_ms = 1};
  EXPECT_EQ(world.bus->Commit(request).value().reason, "prompt_differs");
  EXPECT_EQ(world.bus->Counts().prefill_tokens_evaluated_total, 0u);
}

// Field report B26 and B54: what was found is gone when it is fetched.
TEST_F(Faults, AnObjectThatVanishedIsACleanMiss) {
  const auto prompt = Tokens(100, 1);
  world.Run("a", prompt);
  ASSERT_EQ(world.bus->Lookup(world.Ask("b", prompt)).value().decision, Decision::kRestore);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(world.dir / "store/objects")) {
    if (entry.is_regular_file()) std::filesystem::remove(entry.path());
  }
  const auto missed = world.Prepare("b", prompt);
  EXPECT_TRUE(missed.decision == Decision::kLead || missed.decision == Decision::kRecompute);
  EXPECT_EQ(missed.restored_tokens, 0u);
  world.bus->Release(missed.ticket);
  ExpectNothingLeft("vanished");
}

// Field report B18: two agents, one slot.
TEST_F(Faults, TwoAgentsNeverOwnOneSlot) {
  const auto first_prompt = Tokens(40, 1);
  const auto second_prompt = Tokens(40, 2);
  world.Run("a", first_prompt);
  std::atomic<int> owners = 0, both = 0, got = 0;
  const auto agent = [&](const std::vector<TokenId>& prompt) {
    for (int i = 0; i < 300; ++i) {
      const auto reply = world.bus->Prepare(world.Ask("b", prompt)).value();
      if (reply.ticket.empty()) continue;
      if (++owners > 1) ++both;
      ++got;
      --owners;
      world.bus->Release(reply.ticket);
    }
  };
  std::thread one(agent, first_prompt), two(agent, second_prompt);
  one.join();
  two.join();
  EXPECT_EQ(both, 0);
  EXPECT_GT(got, 0);
  ExpectNothingLeft("two agents");
}

TEST_F(Faults, ACallerThatGoesAwayLeavesNothing) {
  const auto prompt = Tokens(100, 1);
  world.Run("a", prompt);
  const auto gone = world.bus->Prepare(world.Ask("b", prompt), [] { return true; });
  EXPECT_EQ(gone.error().code, ErrorCode::kUnavailable);
  ExpectNothingLeft("cancelled");
}

TEST_F(Faults, AnAbandonedTicketFreesItsSlotInTheEnd) {
  const auto held = world.Prepare("b", Tokens(40, 1));
  EXPECT_EQ(world.Prepare("b", Tokens(40, 2)).reason, "slot_busy");
  world.clock.Advance(std::chrono::seconds(31));
  const auto taken = world.Prepare("b", Tokens(40, 2));
  EXPECT_NE(taken.ticket, "") << "idle for ticket_idle and wanted, but: " << taken.reason << ": " << taken.detail;
  EXPECT_FALSE(world.bus->Release(held.ticket).released);
}

}  // namespace
}  // namespace moonpool::bus

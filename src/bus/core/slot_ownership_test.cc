// Whose slot it is, at every moment and in the end: agents that share one, servers that answer late, callers that
// go away (field reports B18 and B20).
#include <gtest/gtest.h>

#include <random>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::BusWorld;
using testing::FakeServer;
using testing::Tokens;

// Two agents with different prompts want slot 0, in any order of their steps, among others who use the server
// without the bus. At each moment one of them owns it, and "restored" is said only of what the slot really holds.
TEST(SlotOwnership, AThousandInterleavingsOfTwoAgentsOnOneSlot) {  // B18
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  BusWorld world;
  const auto server = world.AddServer("a");
  world.Settle();
  struct Agent {
    std::vector<TokenId> prompt;
    PrepareReply held;
    std::optional<Completion> completion;
    bool disturbed = false;  // somebody else wrote into the slot since its Prepare
    TimePoint last_step{};
  };
  Agent agents[2] = {{.prompt = Tokens(100, 1)}, {.prompt = Tokens(100, 2)}};
  for (const Agent& agent : agents) world.Run("a", agent.prompt);
  int restored = 0, busy = 0, vanished = 0;
  uint64_t spoiled = 0;  // promises that came to nothing because of the other client
  for (int interleaving = 0; interleaving < 1000; ++interleaving) {
    for (int step = 0; step < 6; ++step) {
      Agent& agent = agents[random() % 2];
      Agent& other = &agent == &agents[0] ? agents[1] : agents[0];
      switch (random() % 8) {
        case 0:  // another client of the server
          server->Overwrite(0, Tokens(30 + random() % 50, 50));
          agents[0].disturbed = agents[1].disturbed = true;
          break;
        case 1: world.Tick(milliseconds(random() % 1500)); break;
        case 2:  // it goes away without a word, with whatever it holds
          if (!agent.held.ticket.empty() && random() % 4 == 0) {
            if (!other.held.ticket.empty()) break;
            ++vanished;
            // The first who asks sees it idle; after ticket_idle the slot is free for whoever asks then.
            auto taken = world.Prepare("a", other.prompt);
            world.clock.Advance(seconds(31));
            if (taken.ticket.empty()) taken = world.Prepare("a", other.prompt);
            ASSERT_FALSE(taken.ticket.empty()) << taken.reason;
            ASSERT_FALSE(world.bus->Release(agent.held.ticket).released);
            agent.held = {};
            agent.completion.reset();
            world.bus->Release(taken.ticket);
          }
          break;
        default:
          if (agent.held.ticket.empty()) {
            auto request = world.Ask("a", agent.prompt);
            request.slot = 0;
            auto reply = world.bus->Prepare(request).value();
            if (reply.ticket.empty()) {
              ASSERT_EQ(reply.reason, "slot_busy");
              ASSERT_FALSE(other.held.ticket.empty());
              ++busy;
              break;
            }
            // The other one's ticket may have been idle for so long that it was taken over; otherwise it is alone.
            if (!other.held.ticket.empty()) {
              ASSERT_GE(world.clock.Now() - other.last_step, seconds(30));
              ASSERT_FALSE(world.bus->Release(other.held.ticket).released);
              other.held = {};
              other.completion.reset();
            }
            if (reply.decision == Decision::kRestore) {
              ++restored;
              const auto now = server->Tokens(0);
              ASSERT_GE(now.size(), reply.restored_tokens);
              ASSERT_TRUE(
                  std::equal(now.begin(), now.begin() + static_cast<long>(reply.restored_tokens), agent.prompt.begin()))
                  << reply.reason;
            } else {
              ASSERT_EQ(reply.restored_tokens, 0u);
            }
            agent.held = std::move(reply);
            agent.disturbed = false;
          } else if (!agent.completion) {
            agent.completion = world.Complete("a", agent.held, agent.prompt);
            const bool kept = agent.completion->timings.prompt_tokens_cached >= agent.held.restored_tokens;
            ASSERT_TRUE(kept || agent.disturbed);
            spoiled += !kept;
          } else {
            if (random() % 2 == 0) {
              world.Commit(agent.held, *agent.completion);
            } else {
              world.bus->Release(agent.held.ticket);
            }
            agent.held = {};
            agent.completion.reset();
          }
          agent.last_step = world.clock.Now();
      }
      ASSERT_LE(world.bus->Engines().at(0).tickets, 1u);
    }
  }
  EXPECT_GT(restored, 100);
  EXPECT_GT(busy, 100);
  EXPECT_GT(vanished, 10);
  EXPECT_LE(world.bus->Counts().restores_ineffective_total, spoiled) << "nobody was promised another one's slot";
}

class LateServer : public ::testing::Test {
 protected:
  static BusWorld::Options TwoSeconds() {
    BusWorld::Options options;
    options.config.prepare_timeout = seconds(2);
    return options;
  }
  LateServer() {
    world.AddServer("a");
    b = world.AddServer("b");
    world.Settle();
    world.Run("a", prompt);
  }
  const std::vector<TokenId> prompt = Tokens(100, 1);
  BusWorld world{TwoSeconds()};
  std::shared_ptr<FakeServer> b;
};

TEST_F(LateServer, ARestoreOfAMinuteEndsAtTheDeadlineAndIsErasedOnceItHappened) {  // B20
  b->StallNextRestore([&](const Deadline& deadline) { world.clock.Advance(deadline.Left()); });
  const TimePoint from = world.clock.Now();
  const auto missed = world.Prepare("b", prompt);
  EXPECT_LE(world.clock.Now() - from, milliseconds(2200));
  EXPECT_EQ(missed.decision, Decision::kRecompute);
  EXPECT_EQ(missed.restored_tokens, 0u);
  EXPECT_FALSE(missed.slot);
  EXPECT_TRUE(missed.ticket.empty());
  EXPECT_EQ(world.SlotFiles("b"), 0u);
  while (world.clock.Now() - from < seconds(60)) {
    world.Tick(seconds(5));
    EXPECT_EQ(world.Prepare("b", prompt).reason, "slot_in_doubt") << "the server has not answered yet";
  }
  b->FinishStalled();
  ASSERT_GE(b->Tokens(0).size(), 100u) << "it did happen, a minute late";
  EXPECT_EQ(world.Prepare("b", prompt).reason, "slot_in_doubt") << "and is not taken for a hit";
  world.Tick();
  EXPECT_TRUE(b->Tokens(0).empty()) << "erased before anybody uses it";
  EXPECT_EQ(world.Run("b", prompt).prepared.reason, "hit");
}

TEST_F(LateServer, ARefusingServerIsOutOfUseForAsLongAsItCannotBeErased) {  // B15
  b->FailNext("restore", {ErrorCode::kInvalidArgument, "Unable to restore slot"});
  b->FailAlways("erase", Error{ErrorCode::kInternal, "no"});
  world.bus->Release(world.Prepare("b", prompt).ticket);
  for (int i = 0; i < 20; ++i) {
    world.Tick();
    EXPECT_EQ(world.Prepare("b", prompt).decision, Decision::kBypass) << i;
  }
  const int restores = b->Calls("restore");
  EXPECT_EQ(restores, 1) << "nothing more was restored into it";
  b->FailAlways("erase", std::nullopt);
  for (int i = 0; i < 60; ++i) world.Tick();
  EXPECT_EQ(world.StateOf("b"), "ready");
  EXPECT_EQ(world.Run("b", prompt).prepared.reason, "hit");
}

TEST_F(LateServer, ACanaryThatCouldNotBeErasedDoesNotKeepTheNextOneOut) {  // B15, B20
  const auto c = world.AddServer("c");
  c->FailAlways("erase", Error{ErrorCode::kInternal, "no"});
  for (int i = 0; i < 3; ++i) world.Tick();
  ASSERT_FALSE(c->Tokens(0).empty()) << "the canary is still there";
  EXPECT_NE(world.StateOf("c"), "ready");
  c->FailAlways("erase", std::nullopt);
  for (int i = 0; i < 60; ++i) world.Tick();
  EXPECT_EQ(world.StateOf("c"), "ready");
  EXPECT_TRUE(c->Tokens(0).empty());
}

TEST_F(LateServer, ARefusingServerIsTrustedAgainWhenItWasStartedAnew) {  // B15
  b->FailNext("restore", {ErrorCode::kInvalidArgument, "Unable to restore slot"});
  world.bus->Release(world.Prepare("b", prompt).ticket);
  ASSERT_EQ(world.StateOf("b"), "suspect");
  b->Restart();
  world.Settle();
  EXPECT_EQ(world.Run("b", prompt).prepared.reason, "hit");
}

// Whatever the bus is doing when its caller goes away: nothing is held for nobody.
TEST_F(LateServer, ACallerThatGoesAwayAtAnyMomentHoldsNothing) {  // B20
  int moments = 0;
  bool went = true;
  for (int at = 1; went; ++at) {
    ASSERT_LT(at, 500);
    world.EraseSlots("b");
    int calls = 0;
    world.on_file_call = [&](std::string_view, const Path&) { ++calls; };
    const auto reply = world.bus->Prepare(world.Ask("b", prompt), [&] { return calls >= at; });
    world.on_file_call = nullptr;
    went = calls >= at;
    moments += went;
    if (went) {
      ASSERT_FALSE(reply) << "answered, although the caller went away at call " << at << " of " << calls;
      EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
    } else {
      EXPECT_EQ(reply->decision, Decision::kRestore);
      world.bus->Release(reply->ticket);
    }
    EXPECT_EQ(world.SlotFiles("b"), 0u) << at;
    for (const EngineStatus& engine : world.bus->Engines()) EXPECT_EQ(engine.tickets, 0u) << at;
    EXPECT_EQ(world.store->Stats()->reserved_bytes, 0u) << at;
  }
  EXPECT_GT(moments, 5);
}

TEST_F(LateServer, ALeaderThatGoesAwayLeavesTheLeadToTheNext) {  // B20
  const auto cold = Tokens(100, 7);
  bool taken = false;
  const auto gone = world.bus->Prepare(world.Ask("a", cold), [&] {
    taken = taken || world.bus->Engines().at(0).tickets == 1;
    return taken;
  });
  EXPECT_FALSE(gone);
  EXPECT_TRUE(taken) << "it had a ticket when it went away";
  EXPECT_EQ(world.Prepare("b", cold).decision, Decision::kLead);
}

}  // namespace
}  // namespace moonpool::bus

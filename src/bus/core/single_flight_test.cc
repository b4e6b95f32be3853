#include "bus/core/single_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/fake_clock.h"

namespace moonpool::bus {
namespace {

using Outcome = SingleFlight::Outcome;
using Seen = SingleFlight::LeaderSeen;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<BlockKey> Chain(std::initializer_list<const char*> names) {
  std::vector<BlockKey> keys;
  for (const char* name : names) keys.push_back(Sha256Of(name));
  return keys;
}

class SingleFlightTest : public ::testing::Test {
 protected:
  // Waits in a thread; the test moves the clock.
  std::thread Wait(const SingleFlight::FlightRef& flight, Duration wait_max, SingleFlight::LookAtLeader look,
                   std::atomic<int>& outcome, std::function<bool()> cancelled = {}) {
    return std::thread([this, flight, wait_max, look, &outcome, cancelled] {
      const SingleFlight::WaitLimits limits{.wait_max = wait_max, .leader_idle = seconds(2)};
      outcome = static_cast<int>(flights.Await(flight, limits, look, cancelled));
    });
  }
  void AdvanceUntil(const std::atomic<int>& outcome, Duration step, int steps_max, int* steps = nullptr) {
    int count = 0;
    while (outcome < 0 && count < steps_max) {
      clock.Advance(step);
      ++count;
      for (int spin = 0; spin < 20 && outcome < 0; ++spin) std::this_thread::yield();
      clock.AwaitTurn();
    }
    if (steps != nullptr) *steps = count;
  }

  testing::FakeClock clock;
  SingleFlight flights{clock};
};

TEST_F(SingleFlightTest, IsJoinedOnlyForAtLeastOneBlockMoreThanIsStored) {
  const auto leader = Chain({"1", "12", "123"});
  EXPECT_FALSE(flights.FindOrLead(leader, 0, {.ticket = "t", .engine = "e"}));
  EXPECT_TRUE(flights.Leads("t"));
  EXPECT_TRUE(flights.Find(Chain({"1", "12", "12x"}), 0));
  EXPECT_TRUE(flights.Find(Chain({"1", "12", "12x"}), 1));
  EXPECT_FALSE(flights.Find(Chain({"1", "12", "12x"}), 2)) << "both shared blocks are stored";
  EXPECT_FALSE(flights.Find(Chain({"x"}), 0));
  EXPECT_FALSE(flights.Find(Chain({"1"}), 1)) << "nothing left to wait for";
}

TEST_F(SingleFlightTest, WakesEverybodyWhenItLands) {
  flights.FindOrLead(Chain({"1"}), 0, {.ticket = "t", .engine = "e"});
  std::atomic<int> outcomes[3] = {-1, -1, -1};
  std::vector<std::thread> threads;
  for (auto& outcome : outcomes) {
    threads.push_back(Wait(
        flights.Find(Chain({"1"}), 0), seconds(100), [](auto&) { return Seen::kBusy; }, outcome));
  }
  clock.AwaitWaiters(3);
  flights.Land("t");
  for (std::thread& thread : threads) thread.join();
  for (auto& outcome : outcomes) EXPECT_EQ(outcome, static_cast<int>(Outcome::kLanded));
  EXPECT_EQ(flights.flights(), 0u);
}

TEST_F(SingleFlightTest, EndsWithinThreeSecondsOfALeaderThatIsSeenIdle) {
  flights.FindOrLead(Chain({"1"}), 0, {.ticket = "t", .engine = "e"});
  std::atomic<int> outcome = -1;
  auto thread = Wait(
      flights.Find(Chain({"1"}), 0), seconds(100), [](auto&) { return Seen::kIdle; }, outcome);
  clock.AwaitWaiters(1);
  int steps = 0;
  AdvanceUntil(outcome, milliseconds(250), 100, &steps);
  thread.join();
  EXPECT_EQ(outcome, static_cast<int>(Outcome::kLeaderGone));
  EXPECT_LE(steps * 250, 3000);
  EXPECT_GE(steps * 250, 2000);
}

TEST_F(SingleFlightTest, DoesNotGiveUpALeaderThatWorksOrSaves) {
  flights.FindOrLead(Chain({"1"}), 0, {.ticket = "t", .engine = "e"});
  std::atomic<int> outcome = -1;
  std::atomic<bool> busy = true;
  auto thread = Wait(
      flights.Find(Chain({"1"}), 0), seconds(100), [&](auto&) { return busy ? Seen::kBusy : Seen::kIdle; }, outcome);
  clock.AwaitWaiters(1);
  AdvanceUntil(outcome, milliseconds(250), 40);
  EXPECT_EQ(outcome, -1) << "ten seconds of work";
  flights.Committing("t");
  busy = false;
  AdvanceUntil(outcome, milliseconds(250), 40);
  EXPECT_EQ(outcome, -1) << "an idle slot is being saved";
  flights.Land("t");
  thread.join();
  EXPECT_EQ(outcome, static_cast<int>(Outcome::kLanded));
}

TEST_F(SingleFlightTest, WaitsAtMostTwiceTheRecomputeTimeFromTheLeadersStart) {
  flights.FindOrLead(Chain({"1"}), 0, {.ticket = "t", .engine = "e", .recompute = seconds(5)});
  clock.Advance(seconds(4));
  std::atomic<int> outcome = -1;
  auto thread = Wait(
      flights.Find(Chain({"1"}), 0), seconds(100), [](auto&) { return Seen::kBusy; }, outcome);
  clock.AwaitWaiters(1);
  int steps = 0;
  AdvanceUntil(outcome, milliseconds(500), 100, &steps);
  thread.join();
  EXPECT_EQ(outcome, static_cast<int>(Outcome::kTimedOut));
  EXPECT_LE(steps * 500, 7000);
  EXPECT_GE(steps * 500, 5500);
}

TEST_F(SingleFlightTest, EndsAtTheCallersOwnLimitAndWhenTheCallerGoes) {
  flights.FindOrLead(Chain({"1"}), 0, {.ticket = "t", .engine = "e"});
  std::atomic<int> limited = -1, cancelled = -1;
  std::atomic<bool> gone = false;
  const auto busy = [](auto&) { return Seen::kBusy; };
  auto first = Wait(flights.Find(Chain({"1"}), 0), seconds(1), busy, limited);
  auto second = Wait(flights.Find(Chain({"1"}), 0), seconds(1000), busy, cancelled, [&] { return gone.load(); });
  clock.AwaitWaiters(2);
  AdvanceUntil(limited, milliseconds(300), 20);
  first.join();
  EXPECT_EQ(limited, static_cast<int>(Outcome::kTimedOut));
  gone = true;
  AdvanceUntil(cancelled, milliseconds(300), 20);
  second.join();
  EXPECT_EQ(cancelled, static_cast<int>(Outcome::kCancelled));
  EXPECT_EQ(flights.flights(), 1u) << "the leader goes on";
}

TEST_F(SingleFlightTest, ALostEngineEndsItAndOneWaiterLeads) {
  flights.FindOrLead(Chain({"1"}), 0, {.ticket = "t", .engine = "e"});
  std::atomic<int> outcome = -1;
  auto thread = Wait(
      flights.Find(Chain({"1"}), 0), seconds(100), [](auto&) { return Seen::kGone; }, outcome);
  clock.AwaitWaiters(1);
  AdvanceUntil(outcome, milliseconds(250), 20);
  thread.join();
  EXPECT_EQ(outcome, static_cast<int>(Outcome::kLeaderGone));
  EXPECT_FALSE(flights.FindOrLead(Chain({"1"}), 0, {.ticket = "u", .engine = "f"})) << "the first asker leads";
  EXPECT_TRUE(flights.FindOrLead(Chain({"1"}), 0, {.ticket = "v", .engine = "g"})) << "the second joins";
}

}  // namespace
}  // namespace moonpool::bus

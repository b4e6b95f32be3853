#include "bus/core/slot_tickets.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/fake_clock.h"

namespace moonpool::bus {
namespace {

using std::chrono::seconds;

class SlotTicketsTest : public ::testing::Test {
 protected:
  static Ticket For(const std::string& engine, uint32_t slot) {
    Ticket ticket;
    ticket.engine = engine;
    ticket.slot = slot;
    return ticket;
  }
  testing::FakeClock clock;
  SeededRng rng{1};
  SlotTickets tickets{clock, rng};
};

TEST_F(SlotTicketsTest, GivesASlotToOneHolderAtATime) {
  const auto first = tickets.Take(For("a", 0), seconds(10));
  ASSERT_TRUE(first);
  EXPECT_FALSE(tickets.Take(For("a", 0), seconds(10)));
  EXPECT_TRUE(tickets.Take(For("a", 1), seconds(10))) << "another slot";
  EXPECT_TRUE(tickets.Take(For("b", 0), seconds(10))) << "another engine";
  EXPECT_TRUE(tickets.Release(*first));
  EXPECT_FALSE(tickets.Release(*first)) << "a ticket ends once";
  EXPECT_TRUE(tickets.Take(For("a", 0), seconds(10)));
}

TEST_F(SlotTicketsTest, EndsAtItsDeadlineButNotWhileItIsBeingSaved) {
  const auto idle = tickets.Take(For("a", 0), seconds(10));
  const auto saving = tickets.Take(For("a", 1), seconds(10));
  ASSERT_TRUE(tickets.BeginCommit(*saving, false));
  clock.Advance(seconds(11));
  EXPECT_EQ(tickets.Expire(), std::vector{*idle});
  EXPECT_TRUE(tickets.Owned("a", 1));
  tickets.EndCommit(*saving, false, seconds(10));
  EXPECT_FALSE(tickets.Owned("a", 1));
}

TEST_F(SlotTicketsTest, CommitsOnceAtATimeAndKeepsTheSlotIfAsked) {
  const auto id = tickets.Take(For("a", 0), seconds(10));
  ASSERT_TRUE(tickets.BeginCommit(*id, true));
  EXPECT_FALSE(tickets.BeginCommit(*id, true)) << "it is being committed";
  tickets.EndCommit(*id, /*keep=*/true, seconds(10));
  const auto again = tickets.BeginCommit(*id, true);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->promise_checked) << "a promise is judged once";
  tickets.EndCommit(*id, /*keep=*/false, seconds(10));
  EXPECT_FALSE(tickets.Find(*id));
}

TEST_F(SlotTicketsTest, AReleaseDuringACommitTakesEffectAfterIt) {
  const auto id = tickets.Take(For("a", 0), seconds(10));
  ASSERT_TRUE(tickets.BeginCommit(*id, false));
  EXPECT_TRUE(tickets.Release(*id));
  EXPECT_TRUE(tickets.Owned("a", 0)) << "the save still reads the slot";
  tickets.EndCommit(*id, /*keep=*/true, seconds(10));
  EXPECT_FALSE(tickets.Owned("a", 0));
}

TEST_F(SlotTicketsTest, IsTakenOverOnlyAfterTheSlotWasIdleForLong) {
  const auto id = tickets.Take(For("a", 0), seconds(600));
  tickets.SlotSeen("a", 0, true);
  clock.Advance(seconds(20));
  tickets.SlotSeen("a", 0, false);  // it works: its holder lives
  clock.Advance(seconds(20));
  EXPECT_FALSE(tickets.TakeOver("a", 0, seconds(30)));
  tickets.SlotSeen("a", 0, true);
  clock.Advance(seconds(31));
  EXPECT_EQ(tickets.TakeOver("a", 0, seconds(30)), *id);
}

TEST_F(SlotTicketsTest, GoWithTheirEngine) {
  const auto a = tickets.Take(For("a", 0), seconds(10));
  const auto b = tickets.Take(For("b", 0), seconds(10));
  ASSERT_TRUE(tickets.BeginCommit(*a, false));
  EXPECT_EQ(tickets.DropEngine("a"), std::vector{*a});
  tickets.EndCommit(*a, true, seconds(10));  // must not bring it back
  EXPECT_FALSE(tickets.Owned("a", 0));
  EXPECT_TRUE(tickets.Find(*b));
}

// Field report B18: two agents, one slot.
TEST_F(SlotTicketsTest, ManyThreadsNeverHoldOneSlotTogether) {
  std::atomic<int> holders = 0, together = 0, taken = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const auto id = tickets.Take(For("a", 0), seconds(10));
        if (!id) continue;
        if (++holders > 1) ++together;
        ++taken;
        --holders;
        tickets.Release(*id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, 0);
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace moonpool::bus

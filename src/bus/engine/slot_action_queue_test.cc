#include "bus/engine/slot_action_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "support/fake_clock.h"

namespace moonpool::bus {
namespace {

using testing::FakeClock;

TEST(SlotActionQueue, LetsOneThroughAtATime) {
  SystemClock clock;
  SlotActionQueue queue(clock);
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const Result<SlotActionQueue::Turn> turn = queue.Wait(Deadline(clock, std::chrono::seconds(60)));
        ASSERT_TRUE(turn);
        const int now = ++inside;
        if (now > most) most = now;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

TEST(SlotActionQueue, WaitingEndsByTheDeadlineAndLeavesTheLine) {
  FakeClock clock;
  SlotActionQueue queue(clock);
  std::optional<Result<SlotActionQueue::Turn>> first(queue.Wait(Deadline(clock, std::chrono::seconds(1))));
  ASSERT_TRUE(*first);
  std::thread waiting([&] {
    const Result<SlotActionQueue::Turn> second = queue.Wait(Deadline(clock, std::chrono::seconds(2)));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kDeadlineExceeded);
  });
  clock.AwaitWaiters(1);
  clock.Advance(std::chrono::seconds(2));
  waiting.join();
  first.reset();
  EXPECT_TRUE(queue.Wait(Deadline(clock, std::chrono::seconds(1)))) << "nobody stands in the line any more";
}

TEST(SlotActionQueue, ServesInTheOrderOfArrival) {
  FakeClock clock;
  SlotActionQueue queue(clock);
  std::optional<Result<SlotActionQueue::Turn>> first(queue.Wait(Deadline(clock, std::chrono::hours(1))));
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Result<SlotActionQueue::Turn> turn = queue.Wait(Deadline(clock, std::chrono::hours(1)));
      ASSERT_TRUE(turn);
      order.push_back(i);  // the turn is the lock
    });
    clock.AwaitWaiters(i + 1);
  }
  first.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace moonpool::bus

// What PrefixIndex promises, one fact per test. The comparison with a brute-force map is in
// prefix_index_model_test.cc.
#include "bus/prefix/prefix_index.h"

#include <gtest/gtest.h>

#include <thread>

#include "bus/prefix/test_chains.h"
#include "support/fake_clock.h"

namespace moonpool::bus {
namespace {

using std::chrono::seconds;
using testing::Chain;
using testing::Extended;
using testing::Grown;

class PrefixIndexTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(index_.CheckInvariants(), ""); }
  void Insert(const std::vector<Digest256>& chain, const std::string& object) {
    index_.Insert(chain, object, clock_.Now());
    clock_.Advance(seconds(1));
  }
  PrefixIndex::Match Longest(const std::vector<Digest256>& chain) {
    PrefixIndex::Match match = index_.Longest(chain, clock_.Now());
    clock_.Advance(seconds(1));
    return match;
  }

  moonpool::testing::FakeClock clock_;
  PrefixIndex index_{{.entries_max = 1000}};
};

TEST_F(PrefixIndexTest, FindsNothingWhenEmpty) {
  EXPECT_EQ(Longest(Chain({1, 2, 3})).blocks, 0u);
  EXPECT_EQ(Longest({}).blocks, 0u);
  const auto stats = index_.GetStats();
  EXPECT_EQ(stats.entries + stats.holes + stats.nodes + stats.objects + stats.bytes + stats.evicted_total, 0u);
}

// B11 as amended by decision 7: an object serves every prefix of its tokens.
TEST_F(PrefixIndexTest, ServesEveryPrefixOfAnObject) {
  const auto stored = Grown({}, 0, 10);
  Insert(stored, "p");
  for (size_t blocks = 1; blocks <= 10; ++blocks) {
    const auto match = Longest({stored.begin(), stored.begin() + static_cast<long>(blocks)});
    EXPECT_EQ(match.blocks, blocks);
    EXPECT_EQ(match.object, "p");
  }
}

// B11: the request shares 6 blocks and goes on differently.
TEST_F(PrefixIndexTest, MatchesOnlyWhatTheRequestShares) {
  const auto stored = Grown({}, 0, 10);
  Insert(stored, "p");
  const std::vector<Digest256> shared(stored.begin(), stored.begin() + 6);
  EXPECT_EQ(Longest(Extended(shared, {77, 78})).blocks, 6u);
  EXPECT_EQ(Longest(Grown(stored, 100, 5)).blocks, 10u);
}

// B11: a longer object does not prove a shorter one. Served at 4 and at 10, nothing between: a request that
// shares 6 gets 4, one that shares all gets 10.
TEST_F(PrefixIndexTest, DoesNotClaimAHoleBetweenTwoStoredPrefixes) {
  const auto stored = Grown({}, 0, 10);
  Insert(stored, "p");
  index_.Erase(std::span(stored).first(9), 4);
  EXPECT_EQ(Longest({stored.begin(), stored.begin() + 6}).blocks, 4u);
  EXPECT_EQ(Longest({stored.begin(), stored.begin() + 9}).blocks, 4u);
  EXPECT_EQ(Longest(stored).blocks, 10u);
  EXPECT_EQ(index_.GetStats().entries, 5u);
  EXPECT_EQ(index_.GetStats().holes, 5u);
}

// B11: served at 10 only; a request that shares 6 gets nothing.
TEST_F(PrefixIndexTest, OnlyTheWholeLengthIsServedWhenAllShorterOnesWereErased) {
  const auto stored = Grown({}, 0, 10);
  Insert(stored, "p");
  index_.Erase(std::span(stored).first(9), 0);
  EXPECT_EQ(Longest({stored.begin(), stored.begin() + 6}).blocks, 0u);
  EXPECT_EQ(Longest(stored).blocks, 10u);
}

// B11: block 0 decides all. Equal text after a different first block is another prefix.
TEST_F(PrefixIndexTest, ADifferentFirstBlockMatchesNothing) {
  Insert(Chain({1, 5, 6, 7}), "p");
  EXPECT_EQ(Longest(Chain({2, 5, 6, 7})).blocks, 0u);
}

// B11: a clock in the system prompt makes each request a new prefix; the index stays within its bounds, and the
// zero match is what the bus counts as "diverged in block 0".
TEST_F(PrefixIndexTest, AThousandVolatileFirstBlocksStayBoundedAndHitNothing) {
  PrefixIndex small({.entries_max = 100});
  for (uint64_t turn = 0; turn < 1000; ++turn) {
    const auto chain = Chain({turn, 5, 6, 7});
    EXPECT_EQ(small.Longest(chain, clock_.Now()).blocks, 0u);
    small.Insert(chain, "o" + std::to_string(turn), clock_.Now());
    EXPECT_LE(small.GetStats().entries, 100u);
  }
  EXPECT_EQ(small.GetStats().evicted_total, 3900u);
  EXPECT_EQ(small.CheckInvariants(), "");
}

TEST_F(PrefixIndexTest, HotnessCountsDistinctContinuations) {
  const auto system = Grown({}, 0, 3);
  for (uint64_t agent = 0; agent < 6; ++agent) Insert(Extended(system, {100 + agent, 7}), "o" + std::to_string(agent));
  EXPECT_EQ(Longest(system).hotness, 6);
  EXPECT_EQ(Longest({system[0]}).hotness, 6);
  EXPECT_EQ(Longest(Extended(system, {100})).hotness, 1);
  EXPECT_EQ(Longest(Extended(system, {100, 7})).hotness, 0);
  EXPECT_EQ(Longest(Extended(system, {100, 7, 8})).hotness, 0);
  // A continuation stored again is not another one, and one that is gone no longer counts.
  Insert(Extended(system, {100, 7}), "again");
  EXPECT_EQ(Longest(system).hotness, 6);
  index_.RemoveObject("o3");
  EXPECT_EQ(Longest(system).hotness, 5);
}

TEST_F(PrefixIndexTest, TellsWhenAPrefixWasLastWanted) {
  const auto chain = Grown({}, 0, 4);
  const TimePoint stored = clock_.Now();
  Insert(chain, "p");
  const TimePoint asked = clock_.Now();
  EXPECT_EQ(Longest({chain[0], chain[1]}).last_used, stored);
  EXPECT_EQ(Longest({chain[0]}).last_used, asked);  // a use of two blocks is one of the first block, too
  EXPECT_EQ(Longest(chain).last_used, stored);
}

TEST_F(PrefixIndexTest, EvictsTheLeastRecentlyUsedBranchFromItsEnd) {
  PrefixIndex small({.entries_max = 6});
  const auto shared = Chain({1, 2});
  small.Insert(Extended(shared, {3, 4}), "a", clock_.Now());
  small.Insert(Extended(shared, {5, 6}), "b", clock_.Now());
  EXPECT_EQ(small.Longest(Extended(shared, {3, 4}), clock_.Now()).blocks, 4u);  // now b is older
  small.Insert(Chain({9}), "c", clock_.Now());
  EXPECT_EQ(small.Longest(Extended(shared, {5, 6}), clock_.Now()).blocks, 3u);
  EXPECT_EQ(small.Longest(Extended(shared, {3, 4}), clock_.Now()).blocks, 4u);
  EXPECT_EQ(small.GetStats().evicted_total, 1u);
  EXPECT_EQ(small.CheckInvariants(), "");
}

// A clock that stands still or steps back must not confuse the order of use.
TEST_F(PrefixIndexTest, OrderOfUseDoesNotDependOnTheClock) {
  PrefixIndex small({.entries_max = 2});
  const TimePoint now = clock_.Now();
  small.Insert(Chain({1}), "a", now);
  small.Insert(Chain({2}), "b", now - seconds(100));
  EXPECT_EQ(small.Longest(Chain({1}), now - seconds(200)).blocks, 1u);
  small.Insert(Chain({3}), "c", now - seconds(300));
  EXPECT_EQ(small.Longest(Chain({2}), now).blocks, 0u);
  EXPECT_EQ(small.Longest(Chain({1}), now).blocks, 1u);
}

TEST_F(PrefixIndexTest, KeepsTheFirstBlocksOfAChainThatExceedsTheLimits) {
  PrefixIndex small({.entries_max = 5});
  const auto chain = Grown({}, 0, 50);
  small.Insert(Chain({99}), "old", clock_.Now());
  small.Insert(chain, "p", clock_.Now());
  EXPECT_EQ(small.Longest(chain, clock_.Now()).blocks, 5u);
  EXPECT_EQ(small.GetStats().entries, 5u);
  EXPECT_EQ(small.CheckInvariants(), "");
}

TEST_F(PrefixIndexTest, NothingIsKeptUnderALimitOfZero) {
  PrefixIndex none({.entries_max = 0});
  none.Insert(Chain({1}), "p", clock_.Now());
  EXPECT_EQ(none.GetStats().entries, 0u);
  PrefixIndex no_bytes({.bytes_max = 0});
  no_bytes.Insert(Chain({1}), "p", clock_.Now());
  EXPECT_EQ(no_bytes.GetStats().bytes, 0u);
}

// Decision 7: a file that begins with a whole stored one takes over its keys; the earlier object then serves
// nothing, and removing it late must not hurt the newer one.
TEST_F(PrefixIndexTest, ALongerObjectTakesOverAndTheEarlierOneIsForgotten) {
  const auto turn = Grown({}, 0, 4);
  const auto grown = Grown(turn, 50, 3);
  Insert(turn, "first");
  Insert(grown, "second");
  EXPECT_EQ(Longest(turn).object, "second");
  EXPECT_EQ(index_.GetStats().objects, 1u);
  index_.RemoveObject("first");
  EXPECT_EQ(Longest(grown).blocks, 7u);
}

TEST_F(PrefixIndexTest, AShorterObjectTakesOverItsPartOnly) {
  const auto long_chain = Grown({}, 0, 8);
  const std::vector<Digest256> short_chain(long_chain.begin(), long_chain.begin() + 3);
  Insert(long_chain, "long");
  Insert(short_chain, "short");
  EXPECT_EQ(Longest(short_chain).object, "short");
  EXPECT_EQ(Longest(long_chain).object, "long");
  index_.RemoveObject("short");
  EXPECT_EQ(Longest(short_chain).blocks, 0u);
  EXPECT_EQ(Longest(long_chain).blocks, 8u);
}

// B57, B59: removing twice, or what was never there, changes nothing and counts nothing twice.
TEST_F(PrefixIndexTest, RemovingTwiceIsHarmless) {
  Insert(Chain({1, 2}), "p");
  Insert(Chain({1, 3}), "q");
  index_.RemoveObject("p");
  index_.RemoveObject("p");
  index_.RemoveObject("never");
  index_.Erase(Chain({1, 2}), 1);
  index_.Erase(Chain({8, 9}), 0);
  index_.Erase({}, 0);
  EXPECT_EQ(index_.GetStats().entries, 2u);
  EXPECT_EQ(Longest(Chain({1, 3})).object, "q");
}

// B59: removal finds what a split has moved.
TEST_F(PrefixIndexTest, RemovesAnObjectWhoseNodeWasSplitSinceThen) {
  const auto chain = Grown({}, 0, 8);
  Insert(chain, "p");
  for (const size_t at : {size_t{6}, size_t{2}, size_t{4}}) {
    Insert(Extended({chain.begin(), chain.begin() + static_cast<long>(at)}, {500 + at}), "q" + std::to_string(at));
  }
  index_.RemoveObject("p");
  EXPECT_EQ(Longest(chain).blocks, 6u);  // q6 serves the first six
  for (const char* other : {"q2", "q4", "q6"}) index_.RemoveObject(other);
  const auto stats = index_.GetStats();
  EXPECT_EQ(stats.entries + stats.holes + stats.nodes + stats.objects + stats.bytes, 0u);
}

// B59: empty set, empty tree, by every way out.
TEST_F(PrefixIndexTest, AnEmptySetLeavesAnEmptyTree) {
  const auto a = Chain({1, 2, 3});
  const auto b = Chain({1, 2, 4});
  const auto is_empty = [&] {
    const auto stats = index_.GetStats();
    return stats.entries + stats.holes + stats.nodes + stats.objects + stats.bytes == 0;
  };
  Insert(a, "a"), Insert(b, "b");
  index_.RemoveObject("a"), index_.RemoveObject("b");
  EXPECT_TRUE(is_empty());
  Insert(a, "a"), Insert(b, "b");
  index_.Erase(a, 0), index_.Erase(b, 0);
  EXPECT_TRUE(is_empty());
  Insert(a, "a"), Insert(b, "b");
  index_.Clear();
  EXPECT_TRUE(is_empty());
}

// B54: the store came back empty or as another one. The index is cleared, and rebuilt from what the store lists.
TEST_F(PrefixIndexTest, IsClearedAndRebuiltFromAListing) {
  const auto kept = Chain({1, 2, 3});
  const auto lost = Chain({1, 2, 9});
  Insert(kept, "kept"), Insert(lost, "lost");
  index_.Clear();
  EXPECT_EQ(Longest(kept).blocks, 0u);
  Insert(kept, "kept");
  EXPECT_EQ(Longest(kept).object, "kept");
  EXPECT_EQ(Longest(lost).object, "kept");
  EXPECT_EQ(Longest(lost).blocks, 2u);
}

// B54: what the store denied once is not suggested again.
TEST_F(PrefixIndexTest, ErasedBlocksAreNotSuggestedAgain) {
  const auto chain = Grown({}, 0, 6);
  Insert(chain, "p");
  index_.Erase(chain, 2);
  EXPECT_EQ(Longest(chain).blocks, 2u);
  index_.Erase(chain, 0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Longest(chain).blocks, 0u);
}

TEST_F(PrefixIndexTest, ErasingKeepsWhatLiesBesideAndBeyond) {
  const auto shared = Chain({1, 2, 3});
  Insert(Extended(shared, {4}), "a");
  Insert(Extended(shared, {5}), "b");
  index_.Erase(shared, 1);
  EXPECT_EQ(Longest(shared).blocks, 1u);
  EXPECT_EQ(Longest(Extended(shared, {4})).object, "a");
  EXPECT_EQ(Longest(Extended(shared, {5})).object, "b");
}

// Keys come from listings that a damaged disk or a hostile peer may have made: chains that no hash produced, with
// repeated keys and equal keys below different parents, are merely other paths.
TEST_F(PrefixIndexTest, SurvivesChainsThatNoHashMade) {
  const Digest256 x = Chain({1})[0], y = Chain({2})[0];
  Insert({x, x, x, x}, "a");
  Insert({x, y, x}, "b");
  Insert({y, x, x}, "c");
  Insert({x, x, y}, "d");
  EXPECT_EQ(Longest({x, x, x, x}).blocks, 4u);
  EXPECT_EQ(Longest({x, y, x}).object, "b");
  EXPECT_EQ(Longest({y, x, y}).blocks, 2u);
  EXPECT_EQ(index_.CheckInvariants(), "");
  for (const char* object : {"a", "b", "c", "d"}) index_.RemoveObject(object);
  EXPECT_EQ(index_.GetStats().nodes, 0u);
}

TEST_F(PrefixIndexTest, ThreadsMayShareIt) {
  PrefixIndex shared({.entries_max = 200});
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&shared, t, this] {
      const std::string object = "o" + std::to_string(t);
      for (uint64_t i = 0; i < 500; ++i) {
        const auto chain = Chain({i % 7, i % 5, t, i % 11});
        shared.Insert(chain, object, clock_.Now());
        // Others remove and evict, but nobody stores anything but whole chains of four.
        EXPECT_LE(shared.Longest(chain, clock_.Now()).blocks, 4u);
        if (i % 50 == 0) shared.RemoveObject(object);
        if (i % 70 == 0) shared.Erase(chain, 2);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(shared.CheckInvariants(), "");
}

}  // namespace
}  // namespace moonpool::bus

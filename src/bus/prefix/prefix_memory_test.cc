// B59 and class C13: what the index says about its memory agrees with the allocator, and stays under the limits.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bus/prefix/prefix_index.h"
#include "bus/prefix/test_chains.h"

namespace moonpool::bus {
namespace {

using testing::Chain;
using testing::Grown;

constexpr TimePoint kNow{std::chrono::hours(1)};

// The form of ObjectId: 16 hex digits, '-', 16 hex digits.
std::string ObjectName(uint64_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "%016llx-%016llx", static_cast<unsigned long long>(testing::Mix(number)),
                static_cast<unsigned long long>(number));
  return name;
}

#ifndef MOONPOOL_SANITIZED
uint64_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Fills a fresh index by `fill` and compares. The tables' bucket arrays are charged as an average over their
// doubling, hence the tolerance.
template <class Fill>
void ExpectHonestBytes(const char* shape, uint64_t bytes_per_entry_max, Fill fill) {
  const uint64_t before = AllocatedBytes();
  PrefixIndex index({.entries_max = 10'000'000, .bytes_max = 4ull << 30});
  fill(index);
  const double real = static_cast<double>(AllocatedBytes() - before);
  const auto stats = index.GetStats();
  const double stated = static_cast<double>(stats.bytes);
  std::printf("%s: %zu entries, %.0f bytes each stated, %.0f allocated\n", shape, stats.entries,
              stated / static_cast<double>(stats.entries), real / static_cast<double>(stats.entries));
  EXPECT_GT(stated, real * 0.9) << shape;
  EXPECT_LT(stated, real * 1.1) << shape;
  EXPECT_LE(stats.bytes, stats.entries * bytes_per_entry_max) << shape;
}

TEST(PrefixMemory, StatedBytesAgreeWithTheAllocator) {
  ExpectHonestBytes("single blocks, an object each", PrefixIndex::kBytesPerEntryWorst, [](PrefixIndex& index) {
    for (uint64_t i = 0; i < 200'000; ++i) index.Insert(Chain({i}), ObjectName(i), kNow);
  });
  ExpectHonestBytes("long chains", PrefixIndex::kBytesPerBlock, [](PrefixIndex& index) {
    for (uint64_t i = 0; i < 2'000; ++i) index.Insert(Grown({}, i << 32, 128), ObjectName(i), kNow);
  });
  ExpectHonestBytes("chains that branch at every eighth block", PrefixIndex::kBytesPerEntryWorst,
                    [](PrefixIndex& index) {
                      for (uint64_t i = 0; i < 2'000; ++i) {
                        const auto trunk = Grown({}, (i / 16) << 32, 8 * (i % 16 + 1));
                        index.Insert(Grown(trunk, i << 20, 8), ObjectName(i), kNow);
                      }
                    });
}

TEST(PrefixMemory, RemovalGivesTheMemoryBack) {
  PrefixIndex index({.entries_max = 10'000'000, .bytes_max = 4ull << 30});
  index.Insert(Chain({1}), "keep", kNow);
  const uint64_t before = AllocatedBytes();
  for (uint64_t i = 0; i < 2'000; ++i) index.Insert(Grown({}, i << 32, 128), ObjectName(i), kNow);
  const uint64_t full = AllocatedBytes() - before;
  for (uint64_t i = 0; i < 2'000; ++i) index.RemoveObject(ObjectName(i));
  // What stays is the tables' bucket arrays.
  EXPECT_LT(AllocatedBytes() - before, full / 50);
}

// B59: five million tiny keys; evicted by count, memory flat.
TEST(PrefixMemory, FiveMillionTinyKeysStayWithinTheEntryLimit) {
  constexpr size_t kEntriesMax = 20'000;
  const uint64_t before = AllocatedBytes();
  PrefixIndex index({.entries_max = kEntriesMax});
  for (uint64_t i = 0; i < 5'000'000; ++i) {
    index.Insert(Chain({i}), ObjectName(i), kNow);
    if (i % 100'000 == 0) {
      ASSERT_LE(AllocatedBytes() - before, kEntriesMax * PrefixIndex::kBytesPerEntryWorst * 11 / 10);
    }
  }
  const auto stats = index.GetStats();
  EXPECT_EQ(stats.entries, kEntriesMax);
  EXPECT_EQ(stats.evicted_total, 5'000'000 - kEntriesMax);
  EXPECT_LE(stats.bytes, kEntriesMax * PrefixIndex::kBytesPerEntryWorst);
  EXPECT_EQ(index.CheckInvariants(), "");
}
#endif

TEST(PrefixMemory, EvictsByBytesAsWellAsByCount) {
  constexpr uint64_t kBytesMax = 1 << 20;
  PrefixIndex index({.bytes_max = kBytesMax});
  for (uint64_t i = 0; i < 5'000; ++i) {
    index.Insert(Grown({}, i << 32, i % 7 + 1), ObjectName(i), kNow);
    ASSERT_LE(index.GetStats().bytes, kBytesMax);
  }
  const auto stats = index.GetStats();
  EXPECT_GT(stats.entries, kBytesMax / PrefixIndex::kBytesPerEntryWorst);
  EXPECT_GT(stats.evicted_total, 0u);
  // The newest is there, the oldest is not.
  EXPECT_GT(index.Longest(Grown({}, 4'999ull << 32, 1), kNow).blocks, 0u);
  EXPECT_EQ(index.Longest(Grown({}, 0, 1), kNow).blocks, 0u);
  EXPECT_EQ(index.CheckInvariants(), "");
}

// Holes cost memory without being entries; the byte limit holds them, too.
TEST(PrefixMemory, HolesAreBoundedByBytes) {
  constexpr uint64_t kBytesMax = 1 << 20;
  PrefixIndex index({.bytes_max = kBytesMax});
  for (uint64_t i = 0; i < 500; ++i) {
    const auto chain = Grown({}, i << 32, 100);
    index.Insert(chain, ObjectName(i), kNow);
    index.Erase(std::span(chain).first(99), 0);
    ASSERT_LE(index.GetStats().bytes, kBytesMax);
  }
  EXPECT_GT(index.GetStats().holes, 0u);
  EXPECT_EQ(index.CheckInvariants(), "");
}

TEST(PrefixMemory, AChainLargerThanTheByteLimitIsCutNotRefused) {
  PrefixIndex index({.bytes_max = 64 << 10});
  const auto chain = Grown({}, 0, 100'000);
  index.Insert(chain, "p", kNow);
  EXPECT_GT(index.Longest(chain, kNow).blocks, 400u);
  EXPECT_LE(index.GetStats().bytes, 64u << 10);
}

}  // namespace
}  // namespace moonpool::bus

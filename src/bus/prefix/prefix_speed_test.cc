// The bar of issue 3, section 4: with a million entries, a Longest over 128 blocks takes at most 50 times a
// hash-map find of the same run of 128 keys. Medians of thread CPU time, so that a busy machine does not decide.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <unordered_map>
#include <vector>

#include "bus/prefix/prefix_index.h"
#include "bus/prefix/test_chains.h"

namespace moonpool::bus {
namespace {

using testing::Grown;

#ifdef MOONPOOL_SANITIZED
constexpr size_t kEntries = 50'000;
#else
constexpr size_t kEntries = 1'000'000;
#endif
constexpr size_t kBlocks = 128;
constexpr int kSamples = 1001;
constexpr double kBar = 50;

double ThreadCpuMicroseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Fills an index and a map with the same keys, then asks both for the same random chains.
void ExpectWithinTheBar(const char* shape, const std::vector<std::vector<Digest256>>& chains) {
  PrefixIndex index({.entries_max = 2 * kEntries, .bytes_max = 4ull << 30});
  std::unordered_map<Digest256, uint64_t> map;
  TimePoint now{std::chrono::hours(1)};
  for (size_t i = 0; i < chains.size(); ++i) {
    index.Insert(chains[i], std::to_string(i), now);
    for (const Digest256& key : chains[i]) map.emplace(key, i);
  }
  ASSERT_GE(index.GetStats().entries, kEntries);
  ASSERT_EQ(index.GetStats().entries, map.size());

  std::mt19937_64 random(1);
  std::vector<double> index_us, map_us;
  uint64_t found = 0;
  for (int i = 0; i < kSamples; ++i) {
    const auto& indexed = chains[random() % chains.size()];
    const double start = ThreadCpuMicroseconds();
    const size_t blocks = index.Longest(indexed, now).blocks;
    index_us.push_back(ThreadCpuMicroseconds() - start);
    ASSERT_EQ(blocks, indexed.size());

    const auto& mapped = chains[random() % chains.size()];
    const double map_start = ThreadCpuMicroseconds();
    for (const Digest256& key : mapped) found += map.find(key) != map.end();
    map_us.push_back(ThreadCpuMicroseconds() - map_start);
  }
  ASSERT_EQ(found, kSamples * kBlocks);
  const double ratio = Median(index_us) / Median(map_us);
  std::printf("%s: %zu entries, %zu nodes: longest %.2f us, map %.2f us, ratio %.2f (bar %.0f)\n", shape, map.size(),
              index.GetStats().nodes, Median(index_us), Median(map_us), ratio, kBar);
  EXPECT_LE(ratio, kBar) << shape;
}

TEST(PrefixSpeed, SharedSystemPrompts) {
  // Families of 16 chains that share half their blocks: the common case.
  std::vector<std::vector<Digest256>> chains;
  for (uint64_t i = 0; i * kBlocks / 2 < kEntries; ++i) {
    chains.push_back(Grown(Grown({}, (i / 16) << 40, kBlocks / 2), (i << 40) | (1ull << 39), kBlocks / 2));
  }
  ExpectWithinTheBar("shared prompts", chains);
}

TEST(PrefixSpeed, BranchesAtEveryBlock) {
  // The worst case for a radix tree: every label on the way is one key long.
  std::vector<std::vector<Digest256>> chains;
  size_t entries = 0;
  for (uint64_t family = 0; entries < kEntries; ++family) {
    const auto trunk = Grown({}, family << 40, kBlocks);
    chains.push_back(trunk);
    for (size_t at = 1; at < kBlocks; ++at) {
      const std::vector<Digest256> shared(trunk.begin(), trunk.begin() + static_cast<long>(at));
      chains.push_back(Grown(shared, (family << 40) | (1ull << 39) | (at << 20), kBlocks - at));
    }
    entries += kBlocks + (kBlocks - 1) * kBlocks / 2;
  }
  ExpectWithinTheBar("branching prompts", chains);
}

}  // namespace
}  // namespace moonpool::bus

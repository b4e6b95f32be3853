// The prefix index with a million entries against a hash map of the same keys. The bar (a Longest over 128 blocks at
// most 50 times a find of the same run) is held by src/bus/prefix/prefix_speed_test.cc; here one sees how it scales.
//
//   cmake --preset release && cmake --build --preset release --target prefix_index_bench
//   build/release/bench/micro/prefix_index_bench
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "bus/prefix/prefix_index.h"
#include "bus/prefix/test_chains.h"

namespace moonpool::bus {
namespace {

using testing::Grown;

constexpr size_t kBlocks = 128;
constexpr TimePoint kNow{std::chrono::hours(1)};

// `entries` keys in chains of 128 blocks; families of 16 share the first half.
std::vector<std::vector<Digest256>> Chains(size_t entries) {
  std::vector<std::vector<Digest256>> chains;
  for (uint64_t i = 0; i * kBlocks / 2 < entries; ++i) {
    chains.push_back(Grown(Grown({}, (i / 16) << 40, kBlocks / 2), (i << 40) | (1ull << 39), kBlocks / 2));
  }
  return chains;
}

size_t Entries(const benchmark::State& state) { return static_cast<size_t>(state.range(0)); }

void Longest(benchmark::State& state) {
  const auto chains = Chains(Entries(state));
  PrefixIndex index({.entries_max = 4 * Entries(state), .bytes_max = 4ull << 30});
  for (size_t i = 0; i < chains.size(); ++i) index.Insert(chains[i], std::to_string(i), kNow);
  std::mt19937_64 random(1);
  for (auto _ : state) benchmark::DoNotOptimize(index.Longest(chains[random() % chains.size()], kNow).blocks);
  state.counters["bytes_per_entry"] =
      static_cast<double>(index.GetStats().bytes) / static_cast<double>(index.GetStats().entries);
}
BENCHMARK(Longest)->Arg(10'000)->Arg(1'000'000);

void HashMapFind(benchmark::State& state) {
  const auto chains = Chains(Entries(state));
  std::unordered_map<Digest256, uint64_t> map;
  for (size_t i = 0; i < chains.size(); ++i) {
    for (const Digest256& key : chains[i]) map.emplace(key, i);
  }
  std::mt19937_64 random(1);
  for (auto _ : state) {
    for (const Digest256& key : chains[random() % chains.size()]) benchmark::DoNotOptimize(map.find(key));
  }
}
BENCHMARK(HashMapFind)->Arg(10'000)->Arg(1'000'000);

// One more chain into a full index, evicting as many blocks.
void InsertAndEvict(benchmark::State& state) {
  const auto chains = Chains(2 * Entries(state));
  PrefixIndex index({.entries_max = Entries(state), .bytes_max = 4ull << 30});
  for (size_t i = 0; i < chains.size(); ++i) index.Insert(chains[i], std::to_string(i), kNow);
  size_t next = 0;
  for (auto _ : state) {
    index.Insert(chains[next], std::to_string(next), kNow);
    next = (next + 1) % chains.size();
  }
}
BENCHMARK(InsertAndEvict)->Arg(10'000)->Arg(1'000'000);

}  // namespace
}  // namespace moonpool::bus

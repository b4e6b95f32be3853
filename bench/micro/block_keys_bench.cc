// What naming a prompt's blocks costs, against the floor: one SHA-256 pass over the same bytes. The bar is twice
// the pass for 32,768 tokens in blocks of 256 (tested in src/bus/keys/block_key_test.cc).
//
//   cmake --preset release && cmake --build --preset release --target block_keys_bench
//   build/release/bench/micro/block_keys_bench --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <vector>

#include "bus/keys/block_key.h"

namespace moonpool::bus {
namespace {

std::vector<TokenId> Prompt(size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(i * 7919 % 151936);
  return tokens;
}

void BM_OnePass(benchmark::State& state) {
  const auto tokens = Prompt(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(Sha256Of(std::as_bytes(std::span(tokens))));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(tokens.size() * sizeof(TokenId)));
}
BENCHMARK(BM_OnePass)->Arg(32'768)->Arg(2'000'000);

void BM_BlockKeys(benchmark::State& state) {
  const auto tokens = Prompt(static_cast<size_t>(state.range(0)));
  const Digest256 root = Sha256Of("root");
  for (auto _ : state) benchmark::DoNotOptimize(BlockKeys(root, tokens, static_cast<uint32_t>(state.range(1))));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(tokens.size() * sizeof(TokenId)));
}
BENCHMARK(BM_BlockKeys)->Args({32'768, 256})->Args({32'768, 64})->Args({32'768, 16})->Args({2'000'000, 256});

}  // namespace
}  // namespace moonpool::bus

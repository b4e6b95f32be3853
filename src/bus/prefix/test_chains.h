// Chains of block keys for the tests and benchmarks of the prefix index: shaped like real ones (a key depends on the
// one before it), made without SHA-256 so that millions take no time.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "base/sha256.h"

namespace moonpool::bus::testing {

// One step of SplitMix64: spreads consecutive numbers over all 64 bits.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The key of the block with content `block` after the prefix that ends in `before`.
inline Digest256 NextKey(const Digest256& before, uint64_t block) {
  uint64_t head;
  std::memcpy(&head, before.bytes.data(), sizeof head);
  uint64_t words[4];
  words[0] = Mix(head ^ Mix(block));
  for (int i = 1; i < 4; ++i) words[i] = Mix(words[i - 1]);
  Digest256 key;
  std::memcpy(key.bytes.data(), words, sizeof words);
  return key;
}

inline std::vector<Digest256> Extended(std::vector<Digest256> chain, std::initializer_list<uint64_t> blocks) {
  for (const uint64_t block : blocks) chain.push_back(NextKey(chain.empty() ? Digest256{} : chain.back(), block));
  return chain;
}

inline std::vector<Digest256> Chain(std::initializer_list<uint64_t> blocks) { return Extended({}, blocks); }

// `blocks` more blocks after `chain`, with contents first, first + 1, ...
inline std::vector<Digest256> Grown(std::vector<Digest256> chain, uint64_t first, size_t blocks) {
  for (size_t i = 0; i < blocks; ++i) {
    chain.push_back(NextKey(chain.empty() ? Digest256{} : chain.back(), first + i));
  }
  return chain;
}

}  // namespace moonpool::bus::testing

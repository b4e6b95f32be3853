// PrefixIndex: which prefixes are stored, as a radix tree over block keys, shared by all engines of a bus.
// Because keys are chained, a key stands for the whole prefix that ends in its block.
//
// It suggests; the store decides (one batched existence query). It also owns what the store cannot know:
// how often and how recently each prefix was wanted.
//
// Thread-safe (one leaf mutex).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/sha256.h"

namespace moonpool::bus {

class PrefixIndex {
 public:
  struct Limits {
    size_t entries_max = 1'000'000;     // block keys
    uint64_t bytes_max = 512ull << 20;  // of the index's own memory, as estimated
  };
  struct Match {
    size_t blocks = 0;   // length of the longest stored prefix, in blocks; 0: none
    std::string object;  // that serves it; empty if none
    double hotness = 0;  // fan-out of the matched prefix: distinct continuations seen below it
  };
  struct Stats {
    size_t entries = 0;
    size_t nodes = 0;
    uint64_t bytes = 0;
    uint64_t evicted_total = 0;
  };

  explicit PrefixIndex(Limits limits);
  ~PrefixIndex();

  // `object` serves every prefix of `chain`. Replaces what was known for those keys. May drop the least recently
  // used entries to stay within the limits.
  void Insert(std::span<const Digest256> chain, const std::string& object, TimePoint now) EXCLUDES(mutex_);
  // The longest stored prefix of `chain`, in O(blocks); counts as a use of it.
  Match Longest(std::span<const Digest256> chain, TimePoint now) EXCLUDES(mutex_);
  // The store said that these blocks of the chain are not there after all.
  void Erase(std::span<const Digest256> chain, size_t blocks_kept) EXCLUDES(mutex_);
  // Everything that `object` served.
  void RemoveObject(const std::string& object) EXCLUDES(mutex_);
  void Clear() EXCLUDES(mutex_);
  Stats GetStats() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
};

}  // namespace moonpool::bus

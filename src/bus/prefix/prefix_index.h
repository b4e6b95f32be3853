// PrefixIndex: which prefixes are stored, as a radix tree over block keys, shared by all engines of a bus.
// Because keys are chained, a key stands for the whole prefix that ends in its block. prefix_tree.h draws the tree.
//
// It suggests; the store decides (one batched existence query). It also owns what the store cannot know: in how
// many ways each prefix goes on, and how recently it was wanted. Nothing of it outlives the process: it is rebuilt
// from the store's listing at start, and cleared and rebuilt when the store turns out to be another one.
//
// Hotness of a prefix is its fan-out: the number of different stored continuations below it, that is of stored
// prefixes that strictly extend it and are not themselves extended. A shared system prompt with six agents behind
// it has 6; the end of a conversation that nobody continued has 0.
//
// A prefix may have holes: after Erase or RemoveObject a longer prefix can be served while a shorter one is not.
//
// Recency: every use of a prefix is a use of all shorter ones too, so a prefix is never older than its
// continuations, and eviction always takes the end of the least recently used branch, one block at a time.
//
// Memory: bounded by both limits at the end of every call. `bytes` is what the allocator is asked for, each piece
// rounded as glibc does; with 64-bit pointers
//   kBytesPerBlock          a block of a long branch, and of a hole (about 100 with its share of the branch)
//   kBytesPerEntryWorst     a branch of one block, served by an object of its own with a 33-letter name
// prefix_memory_test.cc holds both against the allocator's own books.
//
// Thread-safe (one leaf mutex).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/sha256.h"

namespace moonpool::bus {

class PrefixIndex {
 public:
  static constexpr uint64_t kBytesPerBlock = 128;
  static constexpr uint64_t kBytesPerEntryWorst = 512;

  struct Limits {
    size_t entries_max = 1'000'000;     // block keys served
    uint64_t bytes_max = 512ull << 20;  // of the index's own memory, holes included
  };
  struct Match {
    size_t blocks = 0;      // length of the longest stored prefix, in blocks; 0: none
    std::string object;     // that serves it; empty if none
    double hotness = 0;     // fan-out of the matched prefix, see above
    TimePoint last_used{};  // of the matched prefix before this call
  };
  struct Stats {
    size_t entries = 0;  // block keys served
    size_t holes = 0;    // block keys kept only because a longer prefix is served
    size_t nodes = 0;    // branches of the tree
    size_t objects = 0;
    uint64_t bytes = 0;
    uint64_t evicted_total = 0;  // entries dropped to stay within the limits; never falls
  };

  explicit PrefixIndex(Limits limits);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // `object` serves every prefix of `chain`. Replaces what was known for those keys; an object that thereby serves
  // nothing any more is forgotten. May drop the least recently used entries to stay within the limits; of a chain
  // that exceeds them alone, the first blocks are kept.
  void Insert(std::span<const Digest256> chain, const std::string& object, TimePoint now) EXCLUDES(mutex_);
  // The longest stored prefix of `chain`, in O(blocks); counts as a use of it.
  Match Longest(std::span<const Digest256> chain, TimePoint now) EXCLUDES(mutex_);
  // The store said that the blocks of `chain` from index `blocks_kept` on are not there after all. What is stored
  // beyond the end of `chain`, or beside it, stays.
  void Erase(std::span<const Digest256> chain, size_t blocks_kept) EXCLUDES(mutex_);
  // Everything that `object` serves, in time proportional to that. Nothing happens if it serves nothing.
  void RemoveObject(const std::string& object) EXCLUDES(mutex_);
  // Forgets everything but evicted_total: the store was emptied or replaced.
  void Clear() EXCLUDES(mutex_);
  Stats GetStats() const EXCLUDES(mutex_);

  // Recounts everything and compares: empty if all invariants hold, else the first one that does not.
  // Visits every entry.
  std::string CheckInvariants() const EXCLUDES(mutex_);

 private:
  struct State;

  const Limits limits_;
  mutable Mutex mutex_;
  std::unique_ptr<State> state_ PT_GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus

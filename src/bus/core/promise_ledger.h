// PromiseLedger: whether restores of a model on a build are of any use, judged by completions alone (decision 9).
// After `broken_max` broken promises in a row the model is declined there; every n-th request tries again, and one
// kept promise clears it. Owner of all verdicts. Thread-safe (one leaf mutex), bounded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "base/mutex.h"

namespace moonpool::bus {

struct PromiseKey {
  std::string fingerprint;
  std::string build;
  std::string name_space;
  auto operator<=>(const PromiseKey&) const = default;
};

class PromiseLedger {
 public:
  struct Record {
    uint64_t promised = 0;  // tickets that restored
    uint64_t kept = 0;
    uint32_t broken_in_row = 0;
    uint64_t declined = 0;          // requests turned away since the verdict
    uint64_t declined_commits = 0;  // commits turned away since then
  };

  PromiseLedger(uint32_t broken_max, uint32_t probe_every) : broken_max_(broken_max), probe_every_(probe_every) {}

  // May this request restore? Counts it when declined.
  bool Allows(const PromiseKey& key) EXCLUDES(mutex_);
  // May it be stored? What nobody restores need not be, but for every n-th: the later attempts need something to try.
  bool AllowsCommit(const PromiseKey& key) EXCLUDES(mutex_);
  // The same without counting.
  bool Declined(const PromiseKey& key) const EXCLUDES(mutex_);
  void Kept(const PromiseKey& key) EXCLUDES(mutex_);
  // `strikes`: how many ordinary broken promises this one weighs (a memory class that is known to fail: all at once).
  void Broken(const PromiseKey& key, uint32_t strikes) EXCLUDES(mutex_);

  // Sums over the namespaces of a fingerprint and build.
  Record Total(const std::string& fingerprint, const std::string& build) const EXCLUDES(mutex_);

 private:
  static constexpr size_t kRecordsMax = 4096;

  Record& At(const PromiseKey& key) REQUIRES(mutex_);

  const uint32_t broken_max_;
  const uint32_t probe_every_;
  mutable Mutex mutex_;
  std::map<PromiseKey, Record> records_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus

// RestoreArbiter: restore the stored KV, or let the server recompute it? Break-even bandwidth
// B* = KV bytes per token x prefill tokens per second (the seed): a path that delivers less than that loses.
// Rates are learned per (model, store) as EWMAs, seeded by the first valid sample and robust to outliers; a
// model that was declined is probed again at a bounded cost, so that it recovers (decision 10).
//
// Owner of all rates. Thread-safe (one leaf mutex). Takes no time and no chance from outside but what is passed
// in, so the same calls give the same decisions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace moonpool::bus {

struct ArbiterConfig {
  double ewma_weight = 0.3;          // of a new sample
  double outlier_factor = 4;         // a sample is pulled to within this factor of the estimate
  uint64_t prefill_tokens_min = 64;  // fewer evaluated tokens say nothing about the prefill rate
  double margin = 1.0;               // restore if restore_ms * margin < recompute_ms
  uint32_t explore_every = 16;       // of the declined requests of a model, every n-th is probed ...
  double explore_cost_max = 2.0;     // ... if restoring costs at most this many times recomputing
  size_t pairs_max = 1024;           // (model, store) pairs kept; the least recently used goes
};

// What is known of one request.
struct ArbiterQuestion {
  std::string model;  // fingerprint id, or any name of the rate family
  std::string store;
  uint64_t restored_tokens = 0;  // that a restore would bring
  uint64_t prompt_tokens = 0;
  uint64_t payload_bytes = 0;  // of the object to fetch
  double server_wait_ms = 0;   // how long the server's loop is busy before it can restore
};

enum class Choice { kRestore, kRecompute };

// The decision and every number it rests on, for `explain`.
struct ArbiterVerdict {
  Choice choice = Choice::kRestore;
  bool explored = false;                 // restored against the estimate, to learn
  std::string reason;                    // a short word: "cheaper", "no_samples", "slower", "explore"
  double restore_ms = 0;                 // fetch + wait + restore + the tail's evaluation
  double recompute_ms = 0;               // evaluation of the whole prompt
  double restore_bytes_per_second = 0;   // 0: no sample yet
  double prefill_tokens_per_second = 0;  // 0: no sample yet
  double break_even_bytes_per_second = 0;
};

class RestoreArbiter {
 public:
  explicit RestoreArbiter(ArbiterConfig config);

  // Decides, and counts the decision for exploration. Without samples: restore.
  ArbiterVerdict Decide(const ArbiterQuestion& question) EXCLUDES(mutex_);
  // The same answer without counting: Lookup and explain.
  ArbiterVerdict Peek(const ArbiterQuestion& question) const EXCLUDES(mutex_);

  // Whole cost of one restore: `wall` covers fetch, verification and the server's restore, not the wait.
  // Invalid samples (no bytes, no time, absurd values) change nothing.
  void ObserveRestore(const std::string& model, const std::string& store, uint64_t payload_bytes, double wall_ms)
      EXCLUDES(mutex_);
  // From a completion's timings: tokens really evaluated and the time they took.
  void ObservePrefill(const std::string& model, uint64_t tokens_evaluated, double prompt_ms) EXCLUDES(mutex_);

  // The learned rates, 0 where there is no sample: for the single flight's waiting bound and for statistics.
  double PrefillTokensPerSecond(const std::string& model) const EXCLUDES(mutex_);
  double RestoreBytesPerSecond(const std::string& model, const std::string& store) const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
};

}  // namespace moonpool::bus

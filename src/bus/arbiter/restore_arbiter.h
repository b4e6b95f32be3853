// RestoreArbiter: restore the stored KV, or let the server recompute it?
//
//   restore_ms   = server_wait + payload_bytes / restore rate + tail / prefill rate
//   recompute_ms = prompt_tokens / prefill rate
//   tail         = prompt_tokens - restored_tokens, at least 1 (decision 8)
//
// Without waiting, this is the break-even bandwidth of the seed: a path that delivers less than
// B* = KV bytes per token x prefill tokens per second loses.
//
// Rates are learned from what really happened: bytes per second of whole restores per (model, store), evaluated
// tokens per second per model. How one rate follows its samples, and how it withstands bad ones, is told in
// rate_estimate.h: an outlier changes nothing, and a lasting change is followed within kAgreeing = 3 samples.
//
// What can be promised (restore_arbiter_test.cc holds it):
// - Without samples of the restore rate, or of the prefill rate: restore. The first valid sample decides, so a
//   path that loses is declined from the 2nd request on, if the first one brought a sample of both rates.
// - A completion that evaluated fewer than prefill_tokens_min tokens is no sample of the prefill rate. Where hits
//   leave nothing but such tails, they are pooled until they reach that number, and stand in for the rate until the
//   first whole sample replaces them.
// - Of the requests that one (model, store) declines, every explore_every-th is restored all the same, to learn
//   (decision 10). The cost is bounded: probes may add at most (explore_cost_max - 1) / explore_every, by default
//   1/16, of the recompute time that was declined since the last probe. So a probe estimated at up to
//   explore_cost_max times the recompute time comes at the explore_every-th declined request, one at c times at the
//   declined request number explore_every * (c - 1) / (explore_cost_max - 1).
// - A request that would lose even on a path that takes no time, because the server is busy, is declined whatever
//   the samples say; it neither counts for exploration nor is it probed, since it could teach nothing.
// - A probe whose own sample was cheaper than recomputing is repeated at once. So after a path has become faster
//   by a factor of at least outlier_factor, kAgreeing probes suffice: the 16th, 17th and 18th declined request at the
//   defaults and a cost ratio of up to 2, and the next one is restored. After a smaller change the estimate moves
//   ewma_weight of the way per sample: the 24th request at the latest is restored if
//   the new path beats recomputing by 10 %.
// - More bytes never turn "recompute" into "restore", a faster path never the reverse.
// - A model never shares its rates with another.
//
// State is not kept: after a restart of the bus everything is learned again, from "without samples".
//
// Owner of all rates; bounded by pairs_max pairs and as many models. Thread-safe (one leaf mutex). Takes no time and
// no chance from outside but what is passed in, so the same calls give the same decisions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "bus/arbiter/lru_table.h"
#include "bus/arbiter/rate_estimate.h"

namespace moonpool::bus {

struct ArbiterConfig {
  double ewma_weight = 0.3;          // of a new sample
  double outlier_factor = 4;         // a sample further than this from the estimate waits for others that agree
  uint64_t prefill_tokens_min = 64;  // fewer evaluated tokens say nothing about the prefill rate
  double margin = 1.0;               // restore if restore_ms * margin < recompute_ms
  uint32_t explore_every = 16;       // of the declined requests of a pair, every n-th is probed; 0: never ...
  double explore_cost_max = 2.0;     // ... if restoring costs at most this many times recomputing; later if more
  size_t pairs_max = 1024;           // (model, store) pairs kept; the least recently used goes
};

// What is known of one request.
struct ArbiterQuestion {
  std::string model;  // fingerprint id, or any name of the rate family
  std::string store;
  uint64_t restored_tokens = 0;  // that a restore would bring
  uint64_t prompt_tokens = 0;
  uint64_t payload_bytes = 0;  // of the object to fetch; 0: unknown
  double server_wait_ms = 0;   // how long the server's loop is busy before it can restore
};

enum class Choice { kRestore, kRecompute };

// The decision and every number it rests on, for `explain`.
struct ArbiterVerdict {
  Choice choice = Choice::kRestore;
  bool explored = false;  // restored against the estimate, to learn
  // A short word: "cheaper", "slower", "server_busy" (the wait alone costs more), "no_samples", "explore",
  // "nothing_to_restore" (no tokens), "unknown_size" (no bytes).
  std::string reason;
  double restore_ms = 0;                 // fetch + wait + restore + the tail's evaluation, as far as rates are known
  double recompute_ms = 0;               // evaluation of the whole prompt; 0: rate not known
  double restore_bytes_per_second = 0;   // 0: no sample yet
  double prefill_tokens_per_second = 0;  // 0: no sample yet
  double break_even_bytes_per_second = 0;
};

class RestoreArbiter {
 public:
  explicit RestoreArbiter(ArbiterConfig config);

  // Decides, and counts the decision for exploration. Without samples: restore.
  ArbiterVerdict Decide(const ArbiterQuestion& question) EXCLUDES(mutex_);
  // What Decide would answer now, without counting: Lookup and explain.
  ArbiterVerdict Peek(const ArbiterQuestion& question) const EXCLUDES(mutex_);

  // Whole cost of one restore: `wall` covers fetch, verification and the server's restore, not the wait.
  // Invalid samples (no bytes, no time, absurd values) change nothing.
  void ObserveRestore(const std::string& model, const std::string& store, uint64_t payload_bytes, double wall_ms)
      EXCLUDES(mutex_);
  // From a completion's timings: tokens really evaluated (never those from a cache) and the time they took.
  void ObservePrefill(const std::string& model, uint64_t tokens_evaluated, double prompt_ms) EXCLUDES(mutex_);

  // The learned rates, 0 where there is no sample: for the single flight's waiting bound and for statistics.
  double PrefillTokensPerSecond(const std::string& model) const EXCLUDES(mutex_);
  double RestoreBytesPerSecond(const std::string& model, const std::string& store) const EXCLUDES(mutex_);

  // How many (model, store) pairs and models are remembered.
  size_t PairCount() const EXCLUDES(mutex_);
  size_t ModelCount() const EXCLUDES(mutex_);

 private:
  struct PrefillRate {
    RateEstimate whole;  // from samples of at least prefill_tokens_min tokens
    RateEstimate tails;  // stands in until `whole` has a sample
    uint64_t pooled_tokens = 0;
    double pooled_ms = 0;

    double Value() const { return whole.Value() > 0 ? whole.Value() : tails.Value(); }
  };
  struct RestorePath {
    RateEstimate rate;
    uint64_t declined = 0;   // requests since the last probe
    double explore_ms = 0;   // that they have earned for the next one
    bool probing = false;    // the next sample answers a probe
    double probed_rate = 0;  // of the last probe, until the next decision uses it
  };
  using PairKey = std::pair<std::string, std::string>;  // model, store

  ArbiterVerdict Judge(const ArbiterQuestion& question, const PrefillRate* prefill, const RestorePath* path) const;
  bool ShouldProbe(const ArbiterQuestion& question, const ArbiterVerdict& declined, const RestorePath& path) const;
  double EarnedPerDecline(double recompute_ms) const;

  const ArbiterConfig config_;
  mutable Mutex mutex_;
  LruTable<PairKey, RestorePath> paths_ GUARDED_BY(mutex_);
  LruTable<std::string, PrefillRate> prefills_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus

// BusCounters: what happened so far, for /metrics and /v1/stats. Owner of all counts; no decision reads them.
// Thread-safe. Label values come from closed sets (enums and engine names of the configuration), never from
// requests, so the number of series is bounded (field report B58).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "bus/core/bus_types.h"

namespace moonpool::bus {

enum class Phase { kLookup, kFlightWait, kFetch, kVerify, kRewrite, kServerWait, kRestore, kSave, kPublish };
inline constexpr size_t kPhases = 9;
std::string_view PhaseName(Phase phase);

// Upper bounds of the buckets, in seconds; the last is +Inf.
inline constexpr std::array<double, 12> kPhaseBuckets = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                         0.05,   0.1,   0.5,    1,     5,    30};
struct PhaseHistogram {
  std::array<uint64_t, kPhaseBuckets.size() + 1> counts{};
  double sum_seconds = 0;
  uint64_t total = 0;
};

// A copy of everything at one moment.
struct BusCounts {
  uint64_t prefill_tokens_saved_total = 0;      // cache_n of completions whose slot the bus had restored
  uint64_t prefill_tokens_resident_total = 0;   // cache_n where the slot already held the prefix
  uint64_t prefill_tokens_evaluated_total = 0;  // prompt_n of all committed completions
  uint64_t promised_tokens_total = 0;
  uint64_t kept_tokens_total = 0;
  uint64_t restores_ineffective_total = 0;
  uint64_t restored_bytes_total = 0;
  uint64_t published_bytes_total = 0;
  std::map<std::pair<std::string, std::string>, uint64_t> decisions;  // (decision, reason)
  std::map<std::pair<std::string, std::string>, uint64_t> commits;    // (status, reason)
  std::map<std::string, uint64_t> failures;                           // misses after the decision, by reason
  std::array<PhaseHistogram, kPhases> phases;
};

// Why a completion found tokens in its slot.
struct ReuseOutcome {
  bool restored = false;  // the bus had put them there
  bool resident = false;  // the slot held them already
  uint64_t promised_tokens = 0;
};

class BusCounters {
 public:
  void Decided(Decision decision, const std::string& reason) EXCLUDES(mutex_);
  void Committed(CommitStatus status, const std::string& reason) EXCLUDES(mutex_);
  // A decision to restore that ended as a miss.
  void Failed(const std::string& reason) EXCLUDES(mutex_);
  void Observed(Phase phase, double milliseconds) EXCLUDES(mutex_);
  void Restored(uint64_t bytes) EXCLUDES(mutex_);
  void Published(uint64_t bytes) EXCLUDES(mutex_);
  // A completion's own figures, and what the bus had to do with them.
  void Evaluated(const ObservedTimings& timings, const ReuseOutcome& outcome) EXCLUDES(mutex_);
  // A restore that the server did not make use of.
  void Ineffective() EXCLUDES(mutex_);
  BusCounts Snapshot() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  BusCounts counts_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus

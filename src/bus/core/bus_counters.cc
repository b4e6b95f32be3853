#include "bus/core/bus_counters.h"

#include <algorithm>
#include <cmath>

namespace moonpool::bus {

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kLookup: return "lookup";
    case Phase::kFlightWait: return "flight_wait";
    case Phase::kFetch: return "fetch";
    case Phase::kVerify: return "verify";
    case Phase::kRewrite: return "rewrite";
    case Phase::kServerWait: return "server_wait";
    case Phase::kRestore: return "restore";
    case Phase::kSave: return "save";
    case Phase::kPublish: return "publish";
  }
  return "unknown";
}

void BusCounters::Decided(Decision decision, const std::string& reason) {
  MutexLock lock(mutex_);
  ++counts_.decisions[{std::string(DecisionName(decision)), reason}];
}

void BusCounters::Committed(CommitStatus status, const std::string& reason) {
  MutexLock lock(mutex_);
  ++counts_.commits[{std::string(CommitStatusName(status)), reason}];
}

void BusCounters::Failed(const std::string& reason) {
  MutexLock lock(mutex_);
  ++counts_.failures[reason];
}

void BusCounters::Observed(Phase phase, double milliseconds) {
  if (!std::isfinite(milliseconds) || milliseconds < 0) return;
  const double seconds = milliseconds / 1000;
  const auto bucket = static_cast<size_t>(std::lower_bound(kPhaseBuckets.begin(), kPhaseBuckets.end(), seconds) -
                                          kPhaseBuckets.begin());
  MutexLock lock(mutex_);
  PhaseHistogram& histogram = counts_.phases[static_cast<size_t>(phase)];
  ++histogram.counts[bucket];
  histogram.sum_seconds += seconds;
  ++histogram.total;
}

void BusCounters::Restored(uint64_t bytes) {
  MutexLock lock(mutex_);
  counts_.restored_bytes_total += bytes;
}

void BusCounters::Published(uint64_t bytes) {
  MutexLock lock(mutex_);
  counts_.published_bytes_total += bytes;
}

void BusCounters::Evaluated(const ObservedTimings& timings, const ReuseOutcome& outcome) {
  MutexLock lock(mutex_);
  counts_.prefill_tokens_evaluated_total += timings.prompt_n;
  if (outcome.restored) counts_.prefill_tokens_saved_total += timings.cache_n;
  if (outcome.resident) counts_.prefill_tokens_resident_total += timings.cache_n;
  counts_.promised_tokens_total += outcome.promised_tokens;
  counts_.kept_tokens_total += std::min(timings.cache_n, outcome.promised_tokens);
}

void BusCounters::Ineffective() {
  MutexLock lock(mutex_);
  ++counts_.restores_ineffective_total;
}

BusCounts BusCounters::Snapshot() const {
  MutexLock lock(mutex_);
  return counts_;
}

}  // namespace moonpool::bus

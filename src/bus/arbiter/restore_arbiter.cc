#include "bus/arbiter/restore_arbiter.h"

#include <algorithm>
#include <cmath>

namespace moonpool::bus {
namespace {

// Beyond these a sample is a broken clock or counter, not a fast machine: a day, and rates that no hardware has.
constexpr double kSampleMsMax = 24 * 3600 * 1e3;
constexpr double kBytesPerSecondMax = 1e14;
constexpr double kTokensPerSecondMax = 1e8;

// The rate that a sample shows, or 0 if it shows none. Written so that NaN fails each comparison.
double RateOf(double amount, double wall_ms, double rate_max) {
  if (!(amount > 0) || !(wall_ms > 0) || !(wall_ms <= kSampleMsMax)) return 0;
  const double rate = amount / wall_ms * 1e3;
  return rate > 0 && rate <= rate_max ? rate : 0;
}

// Negative or NaN: the caller had no estimate, which counts as no wait.
double UsableWait(double wait_ms) { return wait_ms > 0 ? wait_ms : 0; }

double MillisecondsFor(double amount, double rate) { return rate > 0 ? amount / rate * 1e3 : 0; }

}  // namespace

RestoreArbiter::RestoreArbiter(ArbiterConfig config)
    : config_(config), paths_(config.pairs_max), prefills_(config.pairs_max) {}

ArbiterVerdict RestoreArbiter::Judge(const ArbiterQuestion& question, const PrefillRate* prefill,
                                     const RestorePath* path) const {
  ArbiterVerdict verdict;
  verdict.restore_bytes_per_second = path == nullptr ? 0 : path->rate.Value();
  verdict.prefill_tokens_per_second = prefill == nullptr ? 0 : prefill->Value();
  const double prompt = static_cast<double>(question.prompt_tokens);
  const double bytes = static_cast<double>(question.payload_bytes);
  const double tail = std::max(1.0, prompt - static_cast<double>(question.restored_tokens));
  const double saved = prompt - tail;

  verdict.recompute_ms = MillisecondsFor(prompt, verdict.prefill_tokens_per_second);
  // What remains of the cost on a path that takes no time.
  const double fixed_ms =
      UsableWait(question.server_wait_ms) + MillisecondsFor(tail, verdict.prefill_tokens_per_second);
  verdict.restore_ms = fixed_ms + MillisecondsFor(bytes, verdict.restore_bytes_per_second);
  if (saved > 0) verdict.break_even_bytes_per_second = bytes / saved * verdict.prefill_tokens_per_second;

  const auto decide = [&](Choice choice, const char* reason) {
    verdict.choice = choice;
    verdict.reason = reason;
    return verdict;
  };
  if (question.restored_tokens == 0 || saved <= 0) return decide(Choice::kRecompute, "nothing_to_restore");
  if (question.payload_bytes == 0) return decide(Choice::kRecompute, "unknown_size");
  if (verdict.prefill_tokens_per_second == 0) return decide(Choice::kRestore, "no_samples");
  const auto wins = [&](double cost_ms) { return cost_ms * config_.margin < verdict.recompute_ms; };
  if (!wins(fixed_ms)) return decide(Choice::kRecompute, "server_busy");
  if (verdict.restore_bytes_per_second == 0) return decide(Choice::kRestore, "no_samples");
  if (!wins(verdict.restore_ms)) return decide(Choice::kRecompute, "slower");
  return decide(Choice::kRestore, "cheaper");
}

double RestoreArbiter::EarnedPerDecline(double recompute_ms) const {
  return recompute_ms * std::max(0.0, config_.explore_cost_max - 1) / config_.explore_every;
}

bool RestoreArbiter::ShouldProbe(const ArbiterQuestion& question, const ArbiterVerdict& declined,
                                 const RestorePath& path) const {
  if (declined.reason != "slower" || config_.explore_every == 0) return false;
  if (path.probed_rate > 0) {
    // The last probe went better than believed. If it would win again, look again before believing the estimate.
    const double fetch_ms = MillisecondsFor(static_cast<double>(question.payload_bytes), path.probed_rate);
    const double believed_ms =
        MillisecondsFor(static_cast<double>(question.payload_bytes), declined.restore_bytes_per_second);
    const double probed_ms = declined.restore_ms - believed_ms + fetch_ms;
    if (probed_ms * config_.margin < declined.recompute_ms) return true;
  }
  const double extra_ms = declined.restore_ms - declined.recompute_ms;
  const double earned_ms = path.explore_ms + EarnedPerDecline(declined.recompute_ms);
  // The sum of n shares may miss the whole by rounding; a probe must not wait one request longer for that.
  return path.declined + 1 >= config_.explore_every && extra_ms <= earned_ms * (1 + 1e-9);
}

ArbiterVerdict RestoreArbiter::Decide(const ArbiterQuestion& question) {
  MutexLock lock(mutex_);
  RestorePath& path = paths_.Use({question.model, question.store});
  ArbiterVerdict verdict = Judge(question, &prefills_.Use(question.model), &path);
  if (verdict.reason != "slower") return verdict;
  if (ShouldProbe(question, verdict, path)) {
    verdict.choice = Choice::kRestore;
    verdict.reason = "explore";
    verdict.explored = true;
    path.declined = 0;
    path.explore_ms = 0;
    path.probing = true;
    path.probed_rate = 0;
  } else {
    ++path.declined;
    path.explore_ms += EarnedPerDecline(verdict.recompute_ms);
  }
  return verdict;
}

ArbiterVerdict RestoreArbiter::Peek(const ArbiterQuestion& question) const {
  MutexLock lock(mutex_);
  const RestorePath* path = paths_.Find({question.model, question.store});
  ArbiterVerdict verdict = Judge(question, prefills_.Find(question.model), path);
  if (path != nullptr && ShouldProbe(question, verdict, *path)) {
    verdict.choice = Choice::kRestore;
    verdict.reason = "explore";
    verdict.explored = true;
  }
  return verdict;
}

void RestoreArbiter::ObserveRestore(const std::string& model, const std::string& store, uint64_t payload_bytes,
                                    double wall_ms) {
  const double rate = RateOf(static_cast<double>(payload_bytes), wall_ms, kBytesPerSecondMax);
  if (rate == 0) return;
  MutexLock lock(mutex_);
  RestorePath& path = paths_.Use({model, store});
  path.rate.Observe(rate, {.weight = config_.ewma_weight, .outlier_factor = config_.outlier_factor});
  path.probed_rate = path.probing ? rate : 0;
  path.probing = false;
}

void RestoreArbiter::ObservePrefill(const std::string& model, uint64_t tokens_evaluated, double prompt_ms) {
  const double tokens = static_cast<double>(tokens_evaluated);
  if (RateOf(tokens, prompt_ms, kTokensPerSecondMax) == 0) return;
  const RateEstimate::Tuning tuning{.weight = config_.ewma_weight, .outlier_factor = config_.outlier_factor};
  MutexLock lock(mutex_);
  PrefillRate& prefill = prefills_.Use(model);
  if (tokens_evaluated >= config_.prefill_tokens_min) {
    prefill.whole.Observe(RateOf(tokens, prompt_ms, kTokensPerSecondMax), tuning);
    return;
  }
  prefill.pooled_tokens += tokens_evaluated;
  prefill.pooled_ms += prompt_ms;
  if (prefill.pooled_tokens < config_.prefill_tokens_min) return;
  const double pooled = RateOf(static_cast<double>(prefill.pooled_tokens), prefill.pooled_ms, kTokensPerSecondMax);
  if (pooled > 0) prefill.tails.Observe(pooled, tuning);
  prefill.pooled_tokens = 0;
  prefill.pooled_ms = 0;
}

double RestoreArbiter::PrefillTokensPerSecond(const std::string& model) const {
  MutexLock lock(mutex_);
  const PrefillRate* prefill = prefills_.Find(model);
  return prefill == nullptr ? 0 : prefill->Value();
}

double RestoreArbiter::RestoreBytesPerSecond(const std::string& model, const std::string& store) const {
  MutexLock lock(mutex_);
  const RestorePath* path = paths_.Find({model, store});
  return path == nullptr ? 0 : path->rate.Value();
}

size_t RestoreArbiter::PairCount() const {
  MutexLock lock(mutex_);
  return paths_.size();
}

size_t RestoreArbiter::ModelCount() const {
  MutexLock lock(mutex_);
  return prefills_.size();
}

}  // namespace moonpool::bus

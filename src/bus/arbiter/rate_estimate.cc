#include "bus/arbiter/rate_estimate.h"

#include <algorithm>
#include <cmath>

namespace moonpool::bus {
namespace {

double Median(std::array<double, RateEstimate::kAgreeing> rates) {
  std::nth_element(rates.begin(), rates.begin() + rates.size() / 2, rates.end());
  return rates[rates.size() / 2];
}

}  // namespace

void RateEstimate::Observe(double rate, const Tuning& tuning) {
  if (samples_ < kAgreeing) {
    recent_[samples_++] = rate;
    switch (samples_) {
      case 1: value_ = rate; break;
      case 2: value_ = std::sqrt(recent_[0]) * std::sqrt(rate); break;
      default: value_ = Median(recent_);
    }
    return;
  }
  if (rate > value_ * tuning.outlier_factor || rate < value_ / tuning.outlier_factor) {
    Suspect(rate, tuning.outlier_factor);
    return;
  }
  suspects_ = 0;
  value_ *= std::pow(rate / value_, tuning.weight);
}

void RateEstimate::Suspect(double rate, double outlier_factor) {
  if (suspects_ == kAgreeing) {
    std::rotate(recent_.begin(), recent_.begin() + 1, recent_.end());
    recent_.back() = rate;
  } else {
    recent_[suspects_++] = rate;
  }
  if (suspects_ < kAgreeing) return;
  const auto [slowest, fastest] = std::minmax_element(recent_.begin(), recent_.end());
  if (*fastest > *slowest * outlier_factor) return;
  value_ = Median(recent_);
  suspects_ = 0;
}

}  // namespace moonpool::bus

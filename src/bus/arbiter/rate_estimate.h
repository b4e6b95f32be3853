// RateEstimate: one rate (bytes or tokens per second), learned from samples that may lie.
//
// - Up to three samples: their median (of two, the geometric mean), so that a bad first one is soon outvoted.
// - Then an exponentially weighted average of logarithms: twice too fast and twice too slow weigh the same, and one
//   accepted sample moves the rate by at most outlier_factor ^ weight (1.52 at the defaults).
// - A sample further than outlier_factor from the rate changes nothing by itself. When kAgreeing such samples come
//   in a row and lie within outlier_factor of each other, the world has changed, and their median is the new rate.
//
// A value; not thread-safe. Rates are positive and finite; the owner refuses what is not.
#pragma once

#include <array>
#include <cstddef>

namespace moonpool::bus {

class RateEstimate {
 public:
  // Outliers in a row that are believed.
  static constexpr size_t kAgreeing = 3;

  struct Tuning {
    double weight = 0.3;        // of a new sample, in (0, 1]
    double outlier_factor = 4;  // above 1
  };

  void Observe(double rate, const Tuning& tuning);
  // 0: no sample yet.
  double Value() const { return value_; }

 private:
  void Suspect(double rate, double outlier_factor);

  double value_ = 0;
  std::array<double, kAgreeing> recent_{};  // the first samples, later the latest outliers in a row
  size_t samples_ = 0;                      // counted up to kAgreeing
  size_t suspects_ = 0;                     // how many of recent_ are such outliers
};

}  // namespace moonpool::bus

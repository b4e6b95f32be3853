#include "app/swarm/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace moonpool::app {
namespace {

std::vector<double> Sorted(std::span<const double> values) {
  MP_CHECK(!values.empty());
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted;
}

}  // namespace

double Mean(std::span<const double> values) {
  MP_CHECK(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Median(std::span<const double> values) {
  const std::vector<double> sorted = Sorted(values);
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Percentile(std::span<const double> values, double percent) {
  const std::vector<double> sorted = Sorted(values);
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(sorted.size()));
  const size_t index = rank < 1 ? 0 : static_cast<size_t>(rank) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

double Spread(std::span<const double> values) {
  const auto [smallest, largest] = std::ranges::minmax(values);
  return (largest - smallest) / Median(values);
}

std::string WithThousands(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string WithTimeUnit(double ms) {
  return ms >= 1000 ? fmt::format("{:.2f} s", ms / 1000) : fmt::format("{:.0f} ms", ms);
}

}  // namespace moonpool::app

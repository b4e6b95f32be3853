// Figures of repeated measurements, and how people read them. Pure functions; every sequence must hold at least one
// value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace moonpool::app {

double Mean(std::span<const double> values);
// Of an even number of values, the mean of the middle two.
double Median(std::span<const double> values);
// Nearest rank: the smallest value that at least `percent` of all values do not exceed. Of six values the 95th is the
// largest.
double Percentile(std::span<const double> values, double percent);
// How far the values lie apart, as a share of their median: (largest - smallest) / median.
double Spread(std::span<const double> values);

// "2,000".
std::string WithThousands(uint64_t count);
// "412 ms", "7.43 s".
std::string WithTimeUnit(double ms);

}  // namespace moonpool::app

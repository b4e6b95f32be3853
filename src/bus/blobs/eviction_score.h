// Which object goes first when room is needed: least recently used, weighted by hotness. Pure.
//
// score = last use + min(hotness, 144) x 10 minutes; the lowest score goes first. A prefix with a fan-out of 6 is
// thus kept as long as one that was used an hour later, and no hotness outweighs more than a day without use.
#pragma once

#include <cmath>
#include <cstdint>

namespace moonpool::bus {

inline constexpr double kHotnessMax = 144;
inline constexpr int64_t kHotnessWorthNs = int64_t{600} * 1'000'000'000;

// What callers report, made harmless: never negative, not a number or beyond the bound.
inline double BoundedHotness(double hotness) {
  if (!(hotness > 0)) return 0;
  return hotness < kHotnessMax ? hotness : kHotnessMax;
}

inline int64_t EvictionScore(int64_t used_ns, double hotness) {
  return used_ns + static_cast<int64_t>(BoundedHotness(hotness) * static_cast<double>(kHotnessWorthNs));
}

}  // namespace moonpool::bus

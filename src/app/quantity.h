// Sizes and times as people write them: "20GiB", "500ms". Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "moonpool/result.h"

namespace moonpool::app {

// A whole or decimal number and a unit: B (or none), K/KiB, M/MiB, G/GiB, T/TiB (powers of 1024), kB, MB, GB, TB
// (powers of 1000). kInvalidArgument for anything else, negative numbers and what exceeds 64 bits.
Result<uint64_t> ParseBytes(std::string_view text);
// The largest unit that needs no fraction: "20GiB", "1536MiB", "7B".
std::string FormatBytes(uint64_t bytes);
// For people, with one decimal: "19.5 GiB".
std::string ApproximateBytes(double bytes);

// A number and one of ms, s, m, h, d. kInvalidArgument as above; a bare number has no meaning here.
Result<Duration> ParseDuration(std::string_view text);
// The largest unit that needs no fraction: "10m", "1500ms".
std::string FormatDuration(Duration duration);

}  // namespace moonpool::app

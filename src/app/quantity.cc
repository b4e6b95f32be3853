#include "app/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

namespace moonpool::app {
namespace {

using Unit = std::pair<std::string_view, double>;

constexpr double kKi = 1024;
constexpr double kK = 1000;
constexpr std::array<Unit, 14> kSizes = {{{"TiB", kKi* kKi* kKi* kKi},
                                          {"GiB", kKi* kKi* kKi},
                                          {"MiB", kKi* kKi},
                                          {"KiB", kKi},
                                          {"B", 1},
                                          {"T", kKi* kKi* kKi* kKi},
                                          {"G", kKi* kKi* kKi},
                                          {"M", kKi* kKi},
                                          {"K", kKi},
                                          {"TB", kK* kK* kK* kK},
                                          {"GB", kK* kK* kK},
                                          {"MB", kK* kK},
                                          {"kB", kK},
                                          {"", 1}}};
constexpr std::array<Unit, 5> kTimes = {{{"d", 86400e9}, {"h", 3600e9}, {"m", 60e9}, {"s", 1e9}, {"ms", 1e6}}};

// The number of smallest units, whole and not above `max`.
Result<double> Parse(std::string_view text, std::span<const Unit> units, double max, std::string_view example) {
  const auto refuse = [&] {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not something like {}", text, example));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0 || text[0] < '0' || text[0] > '9') return refuse();
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, factor] : units) {
    if (name != unit) continue;
    const double value = std::round(number * factor);
    if (value >= max) return refuse();
    return value;
  }
  return refuse();
}

std::string Format(uint64_t value, std::span<const Unit> units) {
  for (const auto& [name, factor] : units) {
    const auto whole = static_cast<uint64_t>(factor);
    if (value >= whole && value % whole == 0) return fmt::format("{}{}", value / whole, name);
  }
  return fmt::format("0{}", units.back().first);
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  constexpr double kMax = 18446744073709551616.0;  // 2^64
  MP_ASSIGN_OR_RETURN(const double bytes, Parse(text, kSizes, kMax, "20GiB or 500MB"));
  return static_cast<uint64_t>(bytes);
}

std::string FormatBytes(uint64_t bytes) { return Format(bytes, std::span(kSizes).first(5)); }

std::string ApproximateBytes(double bytes) {
  for (const auto& [name, factor] : std::span(kSizes).first(4)) {
    if (bytes >= factor) return fmt::format("{:.1f} {}", bytes / factor, name);
  }
  return fmt::format("{:.0f} B", bytes);
}

Result<Duration> ParseDuration(std::string_view text) {
  constexpr double kMax = 9.2e18;  // 292 years in nanoseconds
  MP_ASSIGN_OR_RETURN(const double nanoseconds, Parse(text, kTimes, kMax, "30s, 500ms or 10m"));
  return Duration(static_cast<int64_t>(nanoseconds));
}

std::string FormatDuration(Duration duration) { return Format(static_cast<uint64_t>(duration.count()), kTimes); }

}  // namespace moonpool::app

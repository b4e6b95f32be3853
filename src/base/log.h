// Logging: one event per line, "event key=value ...", past tense, by the code that knows the outcome.
// Error: a person must act. Warn: degraded, handled. Info: lifecycle. Debug: the rest. Tokens, prompts
// and payload are never logged. Thread-safe; the sink is chosen once, by app/.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

namespace moonpool::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };
enum class Format { kText, kJsonLines };

// Writes to stderr from now on. Call before threads start.
void Configure(Level level, Format format);
bool Enabled(Level level);
void Write(Level level, std::string_view line);

template <class... Args>
void Debug(fmt::format_string<Args...> format, Args&&... args) {
  if (Enabled(Level::kDebug)) Write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void Info(fmt::format_string<Args...> format, Args&&... args) {
  if (Enabled(Level::kInfo)) Write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void Warn(fmt::format_string<Args...> format, Args&&... args) {
  if (Enabled(Level::kWarn)) Write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void Error(fmt::format_string<Args...> format, Args&&... args) {
  if (Enabled(Level::kError)) Write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moonpool::log

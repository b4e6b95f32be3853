// ObjectFilter: which stored objects a ctl command means. All given conditions must hold. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "bus/blobs/blob_store.h"

namespace moonpool::app {

struct ObjectFilter {
  // The whole id, or the beginning of its last key in hexadecimal, at least kKeyDigitsMin digits.
  std::optional<std::string> key;
  std::optional<std::string> model;       // as `ctl ls` shows it, exactly
  std::optional<std::string> name_space;  // exactly
  std::optional<Duration> unused_for;
  bool all = false;  // said aloud that every object is meant

  static constexpr size_t kKeyDigitsMin = 6;

  bool empty() const { return !key && !model && !name_space && !unused_for && !all; }
  // kInvalidArgument: a key too short or not hexadecimal.
  Result<void> Check() const;
  bool Matches(const bus::ObjectSummary& object, int64_t wall_now_ms) const;
};

}  // namespace moonpool::app

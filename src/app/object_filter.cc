#include "app/object_filter.h"

#include <fmt/format.h>

#include <algorithm>

namespace moonpool::app {

Result<void> ObjectFilter::Check() const {
  if (!key) return {};
  const bool fits = key->size() >= kKeyDigitsMin && key->find_first_not_of("0123456789abcdef-") == key->npos;
  if (fits) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("\"{}\" is neither an object's id nor {} or more digits of its key", *key, kKeyDigitsMin));
}

bool ObjectFilter::Matches(const bus::ObjectSummary& object, int64_t wall_now_ms) const {
  if (key && object.id != *key && !object.last_key.ToHex().starts_with(*key)) return false;
  if (model && object.model_name != *model) return false;
  if (name_space && object.name_space != *name_space) return false;
  if (unused_for) {
    const int64_t used_ms = std::max(object.last_used_wall_ms, object.created_wall_ms);
    // A damaged object may have no times; it is as old as can be.
    if (wall_now_ms - used_ms < std::chrono::duration_cast<std::chrono::milliseconds>(*unused_for).count())
      return false;
  }
  return true;
}

}  // namespace moonpool::app

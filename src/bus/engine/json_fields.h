// JsonFields: reads the fields of one JSON object that a server sent, trusting nothing: every field is checked for
// presence, type and range, and what is wrong is named ("timings.cache_n"). A view; the object outlives it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "moonpool/result.h"

namespace moonpool::bus {

class JsonFields {
 public:
  // kInternal if `value` is no object. `where` is how messages call it.
  static Result<JsonFields> Of(const nlohmann::json& value, std::string where);

  // Errors: kInternal for a missing field, another type, or a value out of range.
  Result<uint64_t> Count(std::string_view name, uint64_t max) const;
  Result<double> Number(std::string_view name, double min, double max) const;
  Result<bool> Flag(std::string_view name) const;
  Result<std::string> Text(std::string_view name, size_t bytes_max) const;
  Result<JsonFields> Object(std::string_view name) const;
  // The array itself; its elements are the caller's to check.
  Result<const nlohmann::json*> Array(std::string_view name, size_t elements_max) const;

  // Whether there is such a field at all, and not null.
  bool Has(std::string_view name) const;

 private:
  JsonFields(const nlohmann::json& object, std::string where) : object_(&object), where_(std::move(where)) {}
  Result<const nlohmann::json*> Find(std::string_view name) const;
  tl::unexpected<Error> Wrong(std::string_view name, std::string_view what) const;

  const nlohmann::json* object_;
  std::string where_;
};

// A whole body. kInternal if it is not JSON.
Result<nlohmann::json> ParseJson(std::string_view body, std::string_view what);

}  // namespace moonpool::bus

#include "bus/engine/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace moonpool::bus {
namespace {

constexpr int kJsonDepthMax = 64;  // llama.cpp's own answers are nested six deep

}  // namespace

using nlohmann::json;

Result<JsonFields> JsonFields::Of(const json& value, std::string where) {
  if (!value.is_object()) return Fail(ErrorCode::kInternal, fmt::format("{} is no JSON object", where));
  return JsonFields(value, std::move(where));
}

bool JsonFields::Has(std::string_view name) const {
  const auto found = object_->find(name);
  return found != object_->end() && !found->is_null();
}

tl::unexpected<Error> JsonFields::Wrong(std::string_view name, std::string_view what) const {
  return Fail(ErrorCode::kInternal, fmt::format("field {}.{} {}", where_, name, what));
}

Result<const json*> JsonFields::Find(std::string_view name) const {
  const auto found = object_->find(name);
  if (found == object_->end()) return Wrong(name, "is missing");
  return &*found;
}

Result<uint64_t> JsonFields::Count(std::string_view name, uint64_t max) const {
  MP_ASSIGN_OR_RETURN(const json* field, Find(name));
  if (!field->is_number_integer()) return Wrong(name, "is no whole number");
  if (!field->is_number_unsigned() && field->get<int64_t>() < 0) return Wrong(name, "is negative");
  const uint64_t value = field->get<uint64_t>();
  if (value > max) return Wrong(name, fmt::format("is {}, more than {}", value, max));
  return value;
}

Result<double> JsonFields::Number(std::string_view name, double min, double max) const {
  MP_ASSIGN_OR_RETURN(const json* field, Find(name));
  if (!field->is_number()) return Wrong(name, "is no number");
  const double value = field->get<double>();
  if (!std::isfinite(value) || value < min || value > max) {
    return Wrong(name, fmt::format("is {}, not in {} to {}", value, min, max));
  }
  return value;
}

Result<bool> JsonFields::Flag(std::string_view name) const {
  MP_ASSIGN_OR_RETURN(const json* field, Find(name));
  if (!field->is_boolean()) return Wrong(name, "is not true or false");
  return field->get<bool>();
}

Result<std::string> JsonFields::Text(std::string_view name, size_t bytes_max) const {
  MP_ASSIGN_OR_RETURN(const json* field, Find(name));
  if (!field->is_string()) return Wrong(name, "is no string");
  const auto& value = field->get_ref<const std::string&>();
  if (value.size() > bytes_max) return Wrong(name, fmt::format("has more than {} bytes", bytes_max));
  return value;
}

Result<JsonFields> JsonFields::Object(std::string_view name) const {
  MP_ASSIGN_OR_RETURN(const json* field, Find(name));
  return Of(*field, fmt::format("{}.{}", where_, name));
}

Result<const json*> JsonFields::Array(std::string_view name, size_t elements_max) const {
  MP_ASSIGN_OR_RETURN(const json* field, Find(name));
  if (!field->is_array()) return Wrong(name, "is no array");
  if (field->size() > elements_max) return Wrong(name, fmt::format("has more than {} elements", elements_max));
  return field;
}

Result<json> ParseJson(std::string_view body, std::string_view what) {
  // Counted before anything is built: a megabyte of brackets would become a gigabyte of values.
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kJsonDepthMax) {
        return Fail(ErrorCode::kInternal, fmt::format("{} is nested more than {} deep", what, kJsonDepthMax));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  json value = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return Fail(ErrorCode::kInternal, fmt::format("{} is not JSON", what));
  return value;
}

}  // namespace moonpool::bus

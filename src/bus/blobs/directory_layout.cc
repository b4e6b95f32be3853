#include "bus/blobs/directory_layout.h"

#include <algorithm>
#include <charconv>

namespace moonpool::bus {
namespace {

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsDecimal(std::string_view text) {
  return !text.empty() && text.size() <= 20 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool IsObjectId(std::string_view text) {
  return text.size() == 33 && text[16] == '-' && IsHex(text.substr(0, 16)) && IsHex(text.substr(17));
}

std::optional<ObjectFileName> ParseObjectFileName(std::string_view name) {
  const std::string_view id = name.substr(0, 33);
  if (!IsObjectId(id)) return std::nullopt;
  const std::string_view suffix = name.substr(33);
  if (suffix == ".kv") return ObjectFileName{ObjectId(id), ObjectPart::kPayload};
  if (suffix == ".head") return ObjectFileName{ObjectId(id), ObjectPart::kHead};
  return std::nullopt;
}

std::optional<TempFileName> ParseTempFileName(std::string_view name) {
  if (name.size() < 18 || name[16] != '.' || !IsHex(name.substr(0, 16))) return std::nullopt;
  const std::string_view rest = name.substr(17);
  if (rest == "owner") return TempFileName{std::string(name.substr(0, 16)), true};
  const size_t dot = rest.find('.');
  if (dot == std::string_view::npos || !IsDecimal(rest.substr(0, dot))) return std::nullopt;
  const std::string_view what = rest.substr(dot + 1);
  if (what != "kv" && what != "head" && what != "alias" && what != "canary" && what != "reason") return std::nullopt;
  return TempFileName{std::string(name.substr(0, 16)), false};
}

std::optional<CanaryName> ParseCanaryName(std::string_view name) {
  if (name.size() < 66 || name[64] != '.') return std::nullopt;
  const auto identity = Digest256::FromHex(name.substr(0, 64));
  const std::string_view digits = name.substr(65);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (!identity || error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return CanaryName{*identity, number};
}

Path DirectoryLayout::Alias(const Digest256& key) const {
  const std::string hex = key.ToHex();
  return Aliases() / hex.substr(0, 2) / hex;
}

Path DirectoryLayout::Canary(const Digest256& identity, int number) const {
  return Canaries() / (identity.ToHex() + "." + std::to_string(number));
}

}  // namespace moonpool::bus

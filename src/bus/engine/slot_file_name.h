// What the bus accepts as the name of a slot file. Much narrower than what llama-server accepts, so that a name can
// mean nothing but one plain file in the server's slot directory, on every file system and command line.
#pragma once

#include <algorithm>
#include <string_view>

namespace moonpool::bus {

inline constexpr size_t kSlotFileNameBytesMax = 200;

// 1 to 200 of a-z 0-9 - _ . ; beginning with a letter or digit, without "..", not ending with a dot.
inline bool IsSlotFileName(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > kSlotFileNameBytesMax || !plain(name.front()) || name.back() == '.') return false;
  if (name.find("..") != std::string_view::npos) return false;
  return std::ranges::all_of(name, [&](char c) { return plain(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace moonpool::bus

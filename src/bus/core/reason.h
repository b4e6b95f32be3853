// "reason: detail": how errors of the core carry a word of a closed set, for labels, before the sentence for people.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace moonpool::bus {

// The word and the sentence, or nothing if the message has no such word.
inline std::optional<std::pair<std::string, std::string>> SplitReason(const std::string& message) {
  const size_t colon = message.find(": ");
  if (colon == std::string::npos) return std::nullopt;
  return std::pair(message.substr(0, colon), message.substr(colon + 2));
}

}  // namespace moonpool::bus

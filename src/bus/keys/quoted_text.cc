#include "bus/keys/quoted_text.h"

namespace moonpool::bus {

std::string QuotedText(std::string_view text, size_t bytes_max) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text.substr(0, bytes_max)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      quoted += c;
    } else {
      quoted += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return quoted + (text.size() > bytes_max ? "\"..." : "\"");
}

}  // namespace moonpool::bus

// Lower-case hexadecimal text of bytes, and back.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moonpool {

std::string HexEncode(std::span<const std::byte> bytes);
// Nothing if `text` has an odd length or any character but 0-9, a-f.
std::optional<std::vector<std::byte>> HexDecode(std::string_view text);

}  // namespace moonpool

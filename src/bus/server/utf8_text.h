// Text for messages and metric labels, which must be UTF-8: what an engine, a file or a caller gave may be anything.
#pragma once

#include <string>
#include <string_view>

namespace moonpool::bus {

// The same text, with '?' in place of every byte that is not part of well-formed UTF-8.
std::string Utf8Text(std::string_view text);

}  // namespace moonpool::bus

// QuotedText: text of strangers (a file, an operator) for one line of a message: in quotes, not longer than
// `bytes_max`, everything but printable ASCII escaped. (fmt's own {:?} aborts on some invalid UTF-8.)
#pragma once

#include <string>
#include <string_view>

namespace moonpool::bus {

std::string QuotedText(std::string_view text, size_t bytes_max = 64);

}  // namespace moonpool::bus

// TokenId: a model's vocabulary index, as llama.cpp counts it (32-bit, -1 marks what is not a token).
#pragma once

#include <cstdint>

namespace moonpool {

using TokenId = int32_t;

}  // namespace moonpool

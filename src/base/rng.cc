#include "base/rng.h"

#include <sys/random.h>

#include "base/check.h"
#include "base/hex.h"

namespace moonpool {

std::string Rng::HexId(int bytes) {
  std::string raw;
  while (static_cast<int>(raw.size()) < bytes) {
    const uint64_t word = Next();
    for (int i = 0; i < 8 && static_cast<int>(raw.size()) < bytes; ++i) {
      raw.push_back(static_cast<char>(word >> (8 * i)));
    }
  }
  return HexEncode(std::as_bytes(std::span(raw)));
}

uint64_t SystemRng::Next() {
  uint64_t value = 0;
  MP_CHECK(getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value));
  return value;
}

}  // namespace moonpool

#include "base/checksum.h"

#include <xxhash.h>

#include "base/check.h"

namespace moonpool {
namespace {
XXH3_state_t* State(void* state) { return static_cast<XXH3_state_t*>(state); }
}  // namespace

uint64_t Xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) {
  MP_CHECK(state_ != nullptr);
  XXH3_64bits_reset(State(state_));
}
Xxh3Stream::~Xxh3Stream() { XXH3_freeState(State(state_)); }

void Xxh3Stream::Update(std::span<const std::byte> bytes) {
  MP_CHECK(XXH3_64bits_update(State(state_), bytes.data(), bytes.size()) == XXH_OK);
}

uint64_t Xxh3Stream::Finish() {
  const uint64_t sum = XXH3_64bits_digest(State(state_));
  XXH3_64bits_reset(State(state_));
  return sum;
}

}  // namespace moonpool

// What an allocation of n bytes costs, as glibc's malloc rounds it: 8 bytes of its own, in steps of 16, at least 32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace moonpool::bus {

constexpr uint64_t AllocationCost(size_t bytes) {
  return bytes == 0 ? 0 : std::max<uint64_t>(32, (bytes + 8 + 15) / 16 * 16);
}

// A hash table's bucket array, per element, at the load factor of 1 that the standard tables keep: between one and
// two pointers, more for the moment of growing.
inline constexpr uint64_t kBucketCost = 2 * sizeof(void*);

}  // namespace moonpool::bus

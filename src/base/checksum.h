// XXH3 checksums: find damage, never identity (that is base/sha256.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moonpool {

uint64_t Xxh3(std::span<const std::byte> bytes);

// Incremental; equal to Xxh3 of the concatenation. Not thread-safe.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;

  void Update(std::span<const std::byte> bytes);
  // The checksum of everything since construction or the last Finish; starts anew.
  uint64_t Finish();

 private:
  void* state_;
};

}  // namespace moonpool

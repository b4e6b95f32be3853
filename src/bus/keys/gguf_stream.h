// GgufStream: reads an untrusted file forwards through one small buffer. Every length is compared with the bytes
// that are left before anything is done with it, so nothing is allocated, looped over or skipped on the file's word.
// Errors are kCorrupt and name the file and the offset; a read error of the file system keeps its own code.
// Borrows the file. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/file_system.h"
#include "base/sha256.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class GgufStream {
 public:
  // Reads at most the first `read_bytes_max` of the file's `size_bytes`: what lies beyond is kUnsupported.
  GgufStream(const File& file, std::string name, uint64_t size_bytes, uint64_t read_bytes_max);

  uint64_t Offset() const { return offset_; }
  uint64_t SizeBytes() const { return size_bytes_; }
  uint64_t LeftBytes() const { return size_bytes_ - offset_; }
  const std::string& Name() const { return name_; }

  template <class T>
  Result<T> Read() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    MP_RETURN_IF_ERROR(ReadInto(reinterpret_cast<std::byte*>(&value), sizeof value));
    return value;
  }
  // The next `length_bytes`; the caller has bounded the length.
  Result<std::string> ReadText(uint64_t length_bytes);
  // Passes over the next `length_bytes`, feeding them to `hash` if there is one.
  Result<void> Skip(uint64_t length_bytes, Sha256* hash);
  // Passes over `count` strings (u64 length, bytes), feeding all of it to `hash` if there is one.
  Result<void> SkipStrings(uint64_t count, Sha256* hash);

  // An error at the current offset.
  tl::unexpected<Error> Corrupt(std::string_view what) const;
  tl::unexpected<Error> Unsupported(std::string_view what) const;

 private:
  Result<void> ReadInto(std::byte* into, size_t length_bytes);
  // Makes at least one more byte available in the buffer.
  Result<void> Fill();
  // Fails unless `length_bytes` more bytes exist and may be read.
  Result<void> Demand(uint64_t length_bytes) const;

  const File& file_;
  const std::string name_;
  const uint64_t size_bytes_;
  const uint64_t read_bytes_max_;
  uint64_t offset_ = 0;
  std::vector<std::byte> buffer_;
  size_t buffer_begin_ = 0;  // first byte not yet consumed; it lies at offset_ in the file
  size_t buffer_end_ = 0;
};

}  // namespace moonpool::bus

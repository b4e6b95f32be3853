// ByteSource: random access to the bytes of a state file, in memory or on disk. Reads are exact or kCorrupt.
// Both sources borrow their argument, which must outlive them; any number of threads may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/file_system.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size_bytes() const = 0;
  virtual Result<void> Read(uint64_t offset, std::span<std::byte> into) const = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Result<void> Read(uint64_t offset, std::span<std::byte> into) const override;

 private:
  std::span<const std::byte> bytes_;
};

class FileSource final : public ByteSource {
 public:
  // The size is taken once, here: a file that shrinks afterwards fails the read that misses its bytes.
  static Result<FileSource> Of(const File& file);
  uint64_t size_bytes() const override { return size_bytes_; }
  Result<void> Read(uint64_t offset, std::span<std::byte> into) const override;

 private:
  FileSource(const File& file, uint64_t size_bytes) : file_(&file), size_bytes_(size_bytes) {}
  const File* file_;
  uint64_t size_bytes_;
};

}  // namespace moonpool::bus

// MemoryFile: a read-only File over bytes in memory, which must outlive it. Writing answers kUnsupported.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/file_system.h"

namespace moonpool::testing {

class MemoryFile final : public File {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Result<size_t> Read(uint64_t offset_bytes, std::span<std::byte> into) const override {
    if (offset_bytes >= bytes_.size()) return 0;
    const auto part = bytes_.subspan(static_cast<size_t>(offset_bytes));
    const size_t length = std::min(part.size(), into.size());
    if (length > 0) std::memcpy(into.data(), part.data(), length);
    return length;
  }
  Result<void> Append(std::span<const std::byte>) override { return ReadOnly(); }
  Result<void> WriteAt(uint64_t, std::span<const std::byte>) override { return ReadOnly(); }
  Result<void> Reserve(uint64_t) override { return ReadOnly(); }
  Result<void> Sync() override { return {}; }
  Result<void> Close() override { return {}; }
  Result<FileInfo> Info() const override {
    FileInfo info;
    info.kind = FileKind::kRegular;
    info.size_bytes = bytes_.size();
    return info;
  }
  Result<void> Lock(LockKind) override { return ReadOnly(); }
  Result<void> TryLock(LockKind) override { return ReadOnly(); }
  void Unlock() override {}

 private:
  static Result<void> ReadOnly() { return Fail(ErrorCode::kUnsupported, "a file in memory is read-only"); }

  std::span<const std::byte> bytes_;
};

}  // namespace moonpool::testing

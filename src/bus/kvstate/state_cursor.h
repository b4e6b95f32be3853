// StateCursor: walks a byte source from front to back, one little-endian field at a time, and never past its end.
// Every error names the field and where it stands. Private to bus/kvstate.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "bus/kvstate/byte_source.h"
#include "moonpool/result.h"

namespace moonpool::bus {

static_assert(std::endian::native == std::endian::little, "state files are read in place");

class StateCursor {
 public:
  StateCursor(const ByteSource& source, uint64_t begin, uint64_t end) : source_(&source), at_(begin), end_(end) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return end_ - at_; }

  template <class T>
  Result<T> Take(std::string_view field) {
    T value{};
    MP_RETURN_IF_ERROR(TakeBytes(std::as_writable_bytes(std::span(&value, 1)), field));
    return value;
  }
  Result<void> TakeBytes(std::span<std::byte> into, std::string_view field) {
    if (into.size() > left()) return CutOff(into.size(), field);
    MP_RETURN_IF_ERROR(source_->Read(at_, into));
    at_ += into.size();
    return {};
  }
  // Steps over `count` times `size` bytes without reading them; safe against wrapping.
  Result<void> Skip(uint64_t count, uint64_t size, std::string_view field) {
    if (size != 0 && count > left() / size) return CutOff(count, field);
    at_ += count * size;
    return {};
  }
  // What the next 32 bits would be, or 0 at the end.
  Result<uint32_t> Peek() const {
    uint32_t value = 0;
    if (left() < sizeof value) return value;
    MP_RETURN_IF_ERROR(source_->Read(at_, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }
  // The next `bytes` as a cursor of their own, which this one steps over.
  Result<StateCursor> Part(uint64_t bytes, std::string_view field) {
    const uint64_t begin = at_;
    MP_RETURN_IF_ERROR(Skip(bytes, 1, field));
    return StateCursor(*source_, begin, at_);
  }

  tl::unexpected<Error> Corrupt(std::string_view what) const {
    return Fail(ErrorCode::kCorrupt, fmt::format("offset {}: {}", at_, what));
  }
  tl::unexpected<Error> Unsupported(std::string_view what) const {
    return Fail(ErrorCode::kUnsupported, fmt::format("offset {}: {}", at_, what));
  }

 private:
  tl::unexpected<Error> CutOff(uint64_t wanted, std::string_view field) const {
    return Corrupt(fmt::format("{} ({}) does not fit into the {} bytes left", field, wanted, left()));
  }

  const ByteSource* source_;
  uint64_t at_;
  uint64_t end_;
};

}  // namespace moonpool::bus

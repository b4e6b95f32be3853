#include "bus/keys/gguf_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace moonpool::bus {
namespace {

static_assert(std::endian::native == std::endian::little);  // numbers are read as they lie in the file

constexpr size_t kBufferBytes = 256 * 1024;

}  // namespace

GgufStream::GgufStream(const File& file, std::string name, uint64_t size_bytes, uint64_t read_bytes_max)
    : file_(file), name_(std::move(name)), size_bytes_(size_bytes), read_bytes_max_(read_bytes_max) {
  buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBufferBytes, size_bytes)));
}

tl::unexpected<Error> GgufStream::Corrupt(std::string_view what) const {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {} (at byte {})", name_, what, offset_));
}

tl::unexpected<Error> GgufStream::Unsupported(std::string_view what) const {
  return Fail(ErrorCode::kUnsupported, fmt::format("{}: {} (at byte {})", name_, what, offset_));
}

Result<void> GgufStream::Demand(uint64_t length_bytes) const {
  if (length_bytes > LeftBytes()) return Corrupt(fmt::format("{} bytes declared, {} left", length_bytes, LeftBytes()));
  if (length_bytes > read_bytes_max_ || offset_ > read_bytes_max_ - length_bytes) {
    return Unsupported(fmt::format("metadata larger than {} bytes", read_bytes_max_));
  }
  return {};
}

Result<void> GgufStream::Fill() {
  const size_t kept = buffer_end_ - buffer_begin_;
  if (kept > 0) std::memmove(buffer_.data(), buffer_.data() + buffer_begin_, kept);
  buffer_begin_ = 0;
  buffer_end_ = kept;
  const uint64_t next = offset_ + kept;
  const size_t room = static_cast<size_t>(std::min<uint64_t>(buffer_.size() - kept, size_bytes_ - next));
  MP_ASSIGN_OR_RETURN(const size_t got, file_.Read(next, std::span(buffer_).subspan(kept, room)));
  if (got == 0) return Corrupt("the file became shorter while it was read");
  buffer_end_ += got;
  return {};
}

Result<void> GgufStream::ReadInto(std::byte* into, size_t length_bytes) {
  MP_RETURN_IF_ERROR(Demand(length_bytes));
  while (length_bytes > 0) {
    if (buffer_begin_ == buffer_end_) MP_RETURN_IF_ERROR(Fill());
    const size_t part = std::min(length_bytes, buffer_end_ - buffer_begin_);
    std::memcpy(into, buffer_.data() + buffer_begin_, part);
    into += part;
    length_bytes -= part;
    buffer_begin_ += part;
    offset_ += part;
  }
  return {};
}

Result<std::string> GgufStream::ReadText(uint64_t length_bytes) {
  MP_RETURN_IF_ERROR(Demand(length_bytes));
  std::string text(static_cast<size_t>(length_bytes), '\0');
  MP_RETURN_IF_ERROR(ReadInto(reinterpret_cast<std::byte*>(text.data()), text.size()));
  return text;
}

Result<void> GgufStream::Skip(uint64_t length_bytes, Sha256* hash) {
  MP_RETURN_IF_ERROR(Demand(length_bytes));
  while (length_bytes > 0) {
    if (buffer_begin_ == buffer_end_) {
      if (hash == nullptr) {  // nobody needs these bytes
        offset_ += length_bytes;
        return {};
      }
      MP_RETURN_IF_ERROR(Fill());
    }
    const size_t part = static_cast<size_t>(std::min<uint64_t>(length_bytes, buffer_end_ - buffer_begin_));
    if (hash != nullptr) hash->Update(std::span(buffer_).subspan(buffer_begin_, part));
    length_bytes -= part;
    buffer_begin_ += part;
    offset_ += part;
  }
  return {};
}

Result<void> GgufStream::SkipStrings(uint64_t count, Sha256* hash) {
  // Vocabularies have hundreds of thousands of short strings: walk them inside the buffer and hash whole runs.
  constexpr size_t kLengthBytes = sizeof(uint64_t);
  if (count > LeftBytes() / kLengthBytes) return Corrupt(fmt::format("{} strings declared", count));
  MP_RETURN_IF_ERROR(Demand(count * kLengthBytes));  // before the first of them is looked at
  while (count > 0) {
    size_t at = buffer_begin_;
    while (count > 0 && buffer_end_ - at >= kLengthBytes) {
      uint64_t length;
      std::memcpy(&length, buffer_.data() + at, sizeof length);
      if (length > buffer_end_ - at - kLengthBytes) break;
      at += kLengthBytes + static_cast<size_t>(length);
      --count;
    }
    MP_RETURN_IF_ERROR(Skip(at - buffer_begin_, hash));
    if (count == 0) break;
    if (LeftBytes() < kLengthBytes) return Corrupt("the file ends inside a list of strings");
    if (buffer_end_ - buffer_begin_ < kLengthBytes) {
      MP_RETURN_IF_ERROR(Fill());
      continue;
    }
    uint64_t length;
    std::memcpy(&length, buffer_.data() + buffer_begin_, sizeof length);
    if (kLengthBytes + length < length) return Corrupt("a string longer than any file");
    if (kLengthBytes + length <= buffer_.size() / 2) {  // fits into the buffer, but is not all there yet
      MP_RETURN_IF_ERROR(Demand(kLengthBytes + length));
      if (buffer_end_ - buffer_begin_ < kLengthBytes + length) MP_RETURN_IF_ERROR(Fill());
      continue;
    }
    MP_RETURN_IF_ERROR(Skip(kLengthBytes + length, hash));
    --count;
  }
  return {};
}

}  // namespace moonpool::bus

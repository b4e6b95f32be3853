#include "bus/kvstate/byte_source.h"

#include <fmt/format.h>

#include <algorithm>

namespace moonpool::bus {
namespace {

tl::unexpected<Error> FailPastEnd(uint64_t offset, size_t wanted, uint64_t size_bytes) {
  return Fail(ErrorCode::kCorrupt,
              fmt::format("offset {}: {} bytes were expected, the file has {}", offset, wanted, size_bytes));
}

}  // namespace

Result<void> MemorySource::Read(uint64_t offset, std::span<std::byte> into) const {
  if (offset > bytes_.size() || into.size() > bytes_.size() - offset) {
    return FailPastEnd(offset, into.size(), bytes_.size());
  }
  std::ranges::copy(bytes_.subspan(offset, into.size()), into.begin());
  return {};
}

Result<FileSource> FileSource::Of(const File& file) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, file.Info());
  return FileSource(file, info.size_bytes);
}

Result<void> FileSource::Read(uint64_t offset, std::span<std::byte> into) const {
  if (offset > size_bytes_ || into.size() > size_bytes_ - offset) return FailPastEnd(offset, into.size(), size_bytes_);
  return file_->ReadExactly(offset, into);
}

}  // namespace moonpool::bus

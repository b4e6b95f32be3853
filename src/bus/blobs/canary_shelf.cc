#include "bus/blobs/canary_shelf.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/log.h"

namespace moonpool::bus {
namespace {

// magic, the canary's bytes, XXH3 of both (docs/formats/kv-object.md).
constexpr std::string_view kMagic = "MPCANAR1";
constexpr size_t kSumBytes = sizeof(uint64_t);

}  // namespace

uint64_t CanaryShelf::CostOfCanary(size_t size_bytes) { return CostOf(kMagic.size() + size_bytes + kSumBytes); }

Result<std::string> CanaryShelf::Get(const CanaryRef& canary) {
  auto text = ReadWholeFile(directory_.files, PathOf(canary), kCanaryBytesMax + kMagic.size() + kSumBytes);
  if (!text) {
    switch (text.error().code) {
      case ErrorCode::kNotFound: return Fail(ErrorCode::kNotFound, "no such canary");
      case ErrorCode::kQuota:
      case ErrorCode::kUnsupported: return Fail(ErrorCode::kCorrupt, text.error().message);
      default: return text;
    }
  }
  uint64_t stored_sum = 0;
  if (text->size() >= kMagic.size() + kSumBytes) {
    std::memcpy(&stored_sum, text->data() + text->size() - kSumBytes, kSumBytes);
    text->resize(text->size() - kSumBytes);
    if (text->starts_with(kMagic) && Xxh3(std::as_bytes(std::span(*text))) == stored_sum) {
      (void)directory_.files.SetModified(PathOf(canary), directory_.WallNowNs());
      return text->substr(kMagic.size());
    }
  }
  return Fail(ErrorCode::kCorrupt, "the canary " + PathOf(canary).filename().string() + " is damaged");
}

bool CanaryShelf::Exists(const CanaryRef& canary) { return directory_.files.Info(PathOf(canary)).has_value(); }

Result<void> CanaryShelf::Put(const CanaryRef& canary, std::string_view bytes, const DirectoryLock::Hold&) {
  FileSystem& files = directory_.files;
  // The lock makes "look, then rename" one step.
  const auto info = files.Info(PathOf(canary));
  if (info) return Fail(ErrorCode::kAlreadyExists, "the canary's number is taken");
  if (info.error().code != ErrorCode::kNotFound) return Fail(info.error());
  std::string text(kMagic);
  text += bytes;
  const uint64_t sum = Xxh3(std::as_bytes(std::span(text)));
  text.append(reinterpret_cast<const char*>(&sum), kSumBytes);

  TempFile temp = directory_.temp->Next("canary");
  MP_ASSIGN_OR_RETURN(const auto file, files.Create(temp.path()));
  MP_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(text))));
  MP_RETURN_IF_ERROR(file->Close());
  MP_RETURN_IF_ERROR(files.SetModified(temp.path(), directory_.WallNowNs()));
  MP_RETURN_IF_ERROR(files.Rename(temp.path(), PathOf(canary)));
  temp.Release();
  return {};
}

Result<void> CanaryShelf::SetAside(const CanaryRef& canary, const DirectoryLock::Hold&) {
  const Path path = PathOf(canary);
  directory_.corrupt_total.fetch_add(1);
  log::Warn("canary_quarantined name={}", path.filename().string());
  return directory_.files.Rename(path, directory_.layout.Quarantine() / path.filename());
}

Result<uint64_t> CanaryShelf::Remove(const CanaryRef& canary, const DirectoryLock::Hold& hold) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, directory_.files.Info(PathOf(canary)));
  MP_RETURN_IF_ERROR(directory_.files.Remove(PathOf(canary)));
  const uint64_t cost = CostOf(info.size_bytes);
  MP_RETURN_IF_ERROR(directory_.ledger->Subtract(cost, hold));
  return cost;
}

Result<std::vector<CanaryShelf::Entry>> CanaryShelf::Unneeded(const DirectoryLock::Hold&) {
  MP_ASSIGN_OR_RETURN(const auto names, directory_.files.List(directory_.layout.Canaries()));
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    const auto parsed = ParseCanaryName(name);
    if (!parsed) continue;
    const CanaryRef canary{.identity = parsed->identity, .number = parsed->number};
    if (directory_.known.NeedsCanary(canary)) continue;
    const auto info = directory_.files.Info(directory_.layout.Canaries() / name);
    if (!info || info->kind != FileKind::kRegular) continue;
    entries.push_back({canary, CostOf(info->size_bytes), std::min(info->modified_ns, directory_.WallNowNs())});
  }
  return entries;
}

}  // namespace moonpool::bus

#include "bus/keys/model_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/checksum.h"
#include "base/log.h"
#include "bus/keys/canonical_encoding.h"

namespace moonpool::bus {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kFilesRememberedMax = 1024;
constexpr uint64_t kMemoryBytesMax = 1 << 20;
constexpr int64_t kSettledAfterMs = 2000;  // coarser than the time stamps of any file system in use
constexpr std::string_view kHeader = "moonpool model digests 1\n";
constexpr std::string_view kSplitDomain{"moonpool split model\0", 21};

uint64_t Checksum(std::string_view text) { return Xxh3(std::as_bytes(std::span(text))); }

tl::unexpected<Error> Changed(const Path& path) {
  return Fail(ErrorCode::kFailedPrecondition,
              fmt::format("{} changed while it was hashed; try again when it is whole", path.string()));
}

// The next number of `line`, which then begins behind the blank after it; locale has no say.
template <class T>
bool TakeNumber(std::string_view& line, T& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return false;
  line.remove_prefix(static_cast<size_t>(end - line.data()) + 1);
  return true;
}

}  // namespace

ModelDigests::ModelDigests(FileSystem& files, const Clock& clock, Rng& rng, Path memory)
    : files_(files), clock_(clock), rng_(rng), memory_(std::move(memory)) {
  known_ = Load();
}

ModelDigests::FileKey ModelDigests::KeyOf(const FileInfo& info) {
  return {info.device, info.inode, info.size_bytes, info.modified_ns, info.changed_ns};
}

Result<Digest256> ModelDigests::Of(const std::vector<Path>& shards, const Progress& progress) {
  if (shards.empty()) return Fail(ErrorCode::kInvalidArgument, "a model without files");
  std::vector<FileInfo> infos;
  uint64_t total_bytes = 0;
  for (const Path& path : shards) {
    MP_ASSIGN_OR_RETURN(const FileInfo info, files_.Info(path));
    total_bytes += info.size_bytes;
    infos.push_back(info);
  }
  uint64_t done_bytes = 0;
  const auto advance = [&](uint64_t bytes) {
    done_bytes += bytes;
    if (progress) progress(done_bytes, total_bytes);
  };
  std::vector<Digest256> digests;
  for (size_t i = 0; i < shards.size(); ++i) {
    MP_ASSIGN_OR_RETURN(const Digest256 digest, OfFile(shards[i], infos[i], advance));
    digests.push_back(digest);
  }
  // Hashing a later shard takes minutes, in which an earlier one may have been replaced.
  for (size_t i = 0; i < shards.size(); ++i) {
    MP_ASSIGN_OR_RETURN(const FileInfo now, files_.Info(shards[i]));
    if (KeyOf(now) != KeyOf(infos[i])) return Changed(shards[i]);
  }
  if (digests.size() == 1) return digests.front();
  std::string combined(kSplitDomain);
  AppendUint64(combined, digests.size());
  for (const Digest256& digest : digests) AppendDigest(combined, digest);
  return Sha256Of(combined);
}

Result<Digest256> ModelDigests::OfFile(const Path& path, const FileInfo& info,
                                       const std::function<void(uint64_t)>& advance) {
  const FileKey key = KeyOf(info);
  if (const auto known = Recall(key)) return *known;
  const bool settled = Settled(key);  // asked before the first byte is read

  MP_ASSIGN_OR_RETURN(const auto file, files_.Open(path));
  MP_ASSIGN_OR_RETURN(const FileInfo opened, file->Info());
  if (KeyOf(opened) != key) return Changed(path);
  Sha256 hash;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(kReadBytes, info.size_bytes)));
  for (uint64_t offset = 0; offset < info.size_bytes;) {
    const size_t length = static_cast<size_t>(std::min<uint64_t>(buffer.size(), info.size_bytes - offset));
    const auto part = std::span(buffer).first(length);
    MP_ASSIGN_OR_RETURN(const size_t got, file->Read(offset, part));
    if (got != length) return Changed(path);
    hash.Update(part);
    offset += length;
    advance(length);
  }
  // The open file has not changed, and the name still leads to it.
  MP_ASSIGN_OR_RETURN(const FileInfo closed, file->Info());
  MP_ASSIGN_OR_RETURN(const FileInfo named, files_.Info(path));
  if (KeyOf(closed) != key || KeyOf(named) != key) return Changed(path);
  const Digest256 digest = hash.Finish();
  if (settled) Remember(key, digest);
  return digest;
}

bool ModelDigests::Settled(const FileKey& key) const {
  return key.changed_ns / 1'000'000 < clock_.WallNowMs() - kSettledAfterMs;
}

std::optional<Digest256> ModelDigests::Recall(const FileKey& key) {
  MutexLock lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

void ModelDigests::Remember(const FileKey& key, const Digest256& digest) {
  // Another process may share the state root: what it learned is kept. If both write at once one of them loses an
  // entry, which costs hashing a file again.
  Memory memory = Load();
  {
    MutexLock lock(mutex_);
    memory.merge(Memory(known_));
    // Earlier contents of the same file are never asked for again.
    std::erase_if(
        memory, [&](const auto& entry) { return entry.first.device == key.device && entry.first.inode == key.inode; });
    while (memory.size() >= kFilesRememberedMax) memory.erase(memory.begin());
    memory.emplace(key, digest);
    known_ = memory;
  }
  if (const auto saved = Save(memory); !saved) {
    log::Warn("model_digests_not_saved path={} reason={}", memory_.string(), saved.error().ToString());
  }
}

// Text: the header, one line per file (device inode size modified changed digest), a line with the checksum of all
// lines before it.
ModelDigests::Memory ModelDigests::Load() const {
  const auto text = ReadWholeFile(files_, memory_, kMemoryBytesMax);
  if (!text) {
    if (text.error().code != ErrorCode::kNotFound) {
      log::Warn("model_digests_ignored path={} reason={}", memory_.string(), text.error().ToString());
    }
    return {};
  }
  const auto damaged = [this]() -> Memory {
    log::Warn("model_digests_ignored path={} reason=damaged", memory_.string());
    return {};
  };
  std::string_view rest = *text;
  constexpr size_t kChecksumLineBytes = 17;
  if (rest.size() < kHeader.size() + kChecksumLineBytes || !rest.starts_with(kHeader)) return damaged();
  const std::string_view body = rest.substr(0, rest.size() - kChecksumLineBytes);
  if (rest.substr(body.size()) != fmt::format("{:016x}\n", Checksum(body))) return damaged();
  rest = body.substr(kHeader.size());
  Memory memory;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return damaged();
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    FileKey key;
    if (!TakeNumber(line, key.device) || !TakeNumber(line, key.inode) || !TakeNumber(line, key.size_bytes) ||
        !TakeNumber(line, key.modified_ns) || !TakeNumber(line, key.changed_ns)) {
      return damaged();
    }
    const auto digest = Digest256::FromHex(line);
    if (!digest) return damaged();
    memory.emplace(key, *digest);
  }
  return memory;
}

Result<void> ModelDigests::Save(const Memory& memory) const {
  std::string text(kHeader);
  for (const auto& [key, digest] : memory) {
    text += fmt::format("{} {} {} {} {} {}\n", key.device, key.inode, key.size_bytes, key.modified_ns, key.changed_ns,
                        digest.ToHex());
  }
  text += fmt::format("{:016x}\n", Checksum(text));
  MP_RETURN_IF_ERROR(files_.MakeDirectories(memory_.parent_path()));
  return WriteWholeFile(files_, memory_, text, rng_.HexId(8));
}

}  // namespace moonpool::bus

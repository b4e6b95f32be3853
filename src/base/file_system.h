// FileSystem: the seam between the cores and the disk. PosixFileSystem is the only production
// implementation; it passes a fault point in every call ("fs.open", "fs.write", ...), so that tests can fail
// each step; tests/support has a wrapper that pretends a full or slow disk.
//
// Names come from callers and may be hostile: no call follows a symbolic link in the last component, and
// Open refuses anything but a regular file. All calls are thread-safe; a File is used by one thread at a time
// except Read, which any number may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moonpool/result.h"

namespace moonpool {

using Path = std::filesystem::path;

enum class FileKind { kRegular, kDirectory, kSymlink, kOther };

struct FileInfo {
  FileKind kind = FileKind::kOther;
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;  // what it costs the file system
  int64_t modified_ns = 0;       // since 1970, as the file system keeps it
  int64_t changed_ns = 0;        // inode change time: cannot be set by touch
  uint32_t permissions = 0;      // lower 12 mode bits
  uint32_t owner_uid = 0;
  uint64_t links = 0;

  bool operator==(const FileInfo&) const = default;
};

class File {
 public:
  virtual ~File() = default;  // closes; errors at close are reported by Close
  // Bytes read; fewer than asked for only at the end of the file.
  virtual Result<size_t> Read(uint64_t offset_bytes, std::span<std::byte> into) const = 0;
  // kCorrupt if the file ends before `into` is full.
  Result<void> ReadExactly(uint64_t offset_bytes, std::span<std::byte> into) const;
  // Writes everything or fails (kNoSpace: disk or disk quota full; kIo otherwise).
  virtual Result<void> Append(std::span<const std::byte> bytes) = 0;
  virtual Result<void> WriteAt(uint64_t offset_bytes, std::span<const std::byte> bytes) = 0;
  // Reserves blocks for the first `size_bytes`, so that later writes cannot find the disk full.
  virtual Result<void> Reserve(uint64_t size_bytes) = 0;
  virtual Result<void> Sync() = 0;
  virtual Result<void> Close() = 0;
  virtual Result<FileInfo> Info() const = 0;
  // Advisory whole-file locks, shared between processes, gone with the File. TryLock answers kBusy.
  enum class LockKind { kShared, kExclusive };
  virtual Result<void> Lock(LockKind kind) = 0;
  virtual Result<void> TryLock(LockKind kind) = 0;
  virtual void Unlock() = 0;
};

// How Transfer got the bytes to the new name.
enum class TransferKind { kRename, kHardLink, kReflink, kKernelCopy };

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Read-only. kNotFound; kUnsupported if not a regular file.
  virtual Result<std::unique_ptr<File>> Open(const Path& path) = 0;
  // A new file, mode 0600. kAlreadyExists if anything has that name.
  virtual Result<std::unique_ptr<File>> Create(const Path& path) = 0;
  // Opens for reading and writing, made with mode 0600 if absent: lock and state files.
  virtual Result<std::unique_ptr<File>> OpenOrCreate(const Path& path) = 0;

  virtual Result<FileInfo> Info(const Path& path) = 0;                       // of the name itself, links not followed
  virtual Result<std::vector<std::string>> List(const Path& directory) = 0;  // without . and ..; unordered
  virtual Result<uint64_t> FreeBytes(const Path& path) = 0;

  // Makes missing parents too, mode 0700. An existing directory is fine.
  virtual Result<void> MakeDirectories(const Path& path) = 0;
  virtual Result<void> Rename(const Path& from, const Path& to) = 0;  // replaces `to`
  virtual Result<void> Link(const Path& from,
                            const Path& to) = 0;      // hard link; kAlreadyExists, kUnsupported (other device)
  virtual Result<void> Remove(const Path& path) = 0;  // a file, link or empty directory
  // A symbolic link used as a tiny record: never followed. kAlreadyExists makes it a put-if-absent.
  virtual Result<void> WriteSymlink(const std::string& text, const Path& path) = 0;
  virtual Result<std::string> ReadSymlink(const Path& path) = 0;
  // A new file at `to` with the bytes of `from`: shared extents if the file system can, else an in-kernel copy.
  virtual Result<TransferKind> CloneOrCopy(const Path& from, const Path& to) = 0;

  virtual Result<void> SetPermissions(const Path& path, uint32_t permissions) = 0;
  virtual Result<void> SetModified(const Path& path, int64_t modified_ns) = 0;
  virtual Result<void> SyncDirectory(const Path& path) = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> Open(const Path& path) override;
  Result<std::unique_ptr<File>> Create(const Path& path) override;
  Result<std::unique_ptr<File>> OpenOrCreate(const Path& path) override;
  Result<FileInfo> Info(const Path& path) override;
  Result<std::vector<std::string>> List(const Path& directory) override;
  Result<uint64_t> FreeBytes(const Path& path) override;
  Result<void> MakeDirectories(const Path& path) override;
  Result<void> Rename(const Path& from, const Path& to) override;
  Result<void> Link(const Path& from, const Path& to) override;
  Result<void> Remove(const Path& path) override;
  Result<void> WriteSymlink(const std::string& text, const Path& path) override;
  Result<std::string> ReadSymlink(const Path& path) override;
  Result<TransferKind> CloneOrCopy(const Path& from, const Path& to) override;
  Result<void> SetPermissions(const Path& path, uint32_t permissions) override;
  Result<void> SetModified(const Path& path, int64_t modified_ns) override;
  Result<void> SyncDirectory(const Path& path) override;
};

// The whole of a small file; kQuota if it is larger than `size_bytes_max`.
Result<std::string> ReadWholeFile(FileSystem& files, const Path& path, uint64_t size_bytes_max);
// Makes `path` hold `bytes`, old or new but never a mix: temporary name beside it, sync, rename.
// `unique` makes the temporary name unique to the caller.
Result<void> WriteWholeFile(FileSystem& files, const Path& path, std::string_view bytes, std::string_view unique);

}  // namespace moonpool

#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/fault.h"

namespace moonpool {
namespace {

ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return ErrorCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY: return ErrorCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ErrorCode::kNoSpace;
    case EACCES:
    case EPERM: return ErrorCode::kPermission;
    case ELOOP:
    case EXDEV:
    case EOPNOTSUPP:
    case EISDIR:
    case EMLINK:
    case ENXIO: return ErrorCode::kUnsupported;
    case EWOULDBLOCK:
    case EBUSY: return ErrorCode::kBusy;
    case EINVAL:
    case ENAMETOOLONG: return ErrorCode::kInvalidArgument;
    default: return ErrorCode::kIo;
  }
}

tl::unexpected<Error> FailErrno(const char* verb, const Path& path) {
  const int error = errno;
  return Fail(CodeOf(error), fmt::format("cannot {} {}: {}", verb, path.string(),
                                         std::error_code(error, std::generic_category()).message()));
}

FileInfo ToInfo(const struct stat& stat) {
  FileInfo info;
  info.kind = S_ISREG(stat.st_mode)   ? FileKind::kRegular
              : S_ISDIR(stat.st_mode) ? FileKind::kDirectory
              : S_ISLNK(stat.st_mode) ? FileKind::kSymlink
                                      : FileKind::kOther;
  info.device = stat.st_dev;
  info.inode = stat.st_ino;
  info.size_bytes = static_cast<uint64_t>(stat.st_size);
  info.allocated_bytes = static_cast<uint64_t>(stat.st_blocks) * 512;
  info.modified_ns = stat.st_mtim.tv_sec * 1'000'000'000 + stat.st_mtim.tv_nsec;
  info.changed_ns = stat.st_ctim.tv_sec * 1'000'000'000 + stat.st_ctim.tv_nsec;
  info.permissions = stat.st_mode & 07777;
  info.owner_uid = stat.st_uid;
  info.links = stat.st_nlink;
  return info;
}

class PosixFile final : public File {
 public:
  PosixFile(int descriptor, Path path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~PosixFile() override {
    if (descriptor_ >= 0) close(descriptor_);
  }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  Result<size_t> Read(uint64_t offset_bytes, std::span<std::byte> into) const override {
    MP_FAULT("fs.read");
    size_t done = 0;
    while (done < into.size()) {
      const ssize_t got =
          pread(descriptor_, into.data() + done, into.size() - done, static_cast<off_t>(offset_bytes + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return FailErrno("read", path_);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  Result<void> Append(std::span<const std::byte> bytes) override {
    MP_RETURN_IF_ERROR(WriteAt(end_bytes_, bytes));
    end_bytes_ += bytes.size();
    return {};
  }

  Result<void> WriteAt(uint64_t offset_bytes, std::span<const std::byte> bytes) override {
    MP_FAULT("fs.write");
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put =
          pwrite(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset_bytes + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return FailErrno("write", path_);
      if (put == 0) return Fail(ErrorCode::kIo, "short write to " + path_.string());
      done += static_cast<size_t>(put);
    }
    return {};
  }

  Result<void> Reserve(uint64_t size_bytes) override {
    MP_FAULT("fs.reserve");
    if (fallocate(descriptor_, 0, 0, static_cast<off_t>(size_bytes)) == 0 || errno == EOPNOTSUPP) return {};
    return FailErrno("reserve space for", path_);
  }

  Result<void> Sync() override {
    MP_FAULT("fs.sync");
    if (fdatasync(descriptor_) != 0) return FailErrno("sync", path_);
    return {};
  }

  Result<void> Close() override {
    const int descriptor = std::exchange(descriptor_, -1);
    const int status = close(descriptor);
    MP_FAULT("fs.close");
    if (status != 0) return FailErrno("close", path_);
    return {};
  }

  Result<FileInfo> Info() const override {
    struct stat stat;
    if (fstat(descriptor_, &stat) != 0) return FailErrno("stat", path_);
    return ToInfo(stat);
  }

  Result<void> Lock(LockKind kind) override { return LockWith(kind, 0); }
  Result<void> TryLock(LockKind kind) override { return LockWith(kind, LOCK_NB); }
  void Unlock() override { flock(descriptor_, LOCK_UN); }

 private:
  Result<void> LockWith(LockKind kind, int flags) {
    MP_FAULT("fs.lock");
    const int operation = (kind == LockKind::kShared ? LOCK_SH : LOCK_EX) | flags;
    while (flock(descriptor_, operation) != 0) {
      if (errno != EINTR) return FailErrno("lock", path_);
    }
    return {};
  }

  int descriptor_;
  uint64_t end_bytes_ = 0;  // where Append continues; files are appended to only by their creator
  const Path path_;
};

Result<std::unique_ptr<File>> OpenWith(const Path& path, int flags) {
  const int descriptor = open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  if (descriptor < 0) return FailErrno("open", path);
  auto file = std::make_unique<PosixFile>(descriptor, path);
  MP_ASSIGN_OR_RETURN(const FileInfo info, file->Info());
  if (info.kind != FileKind::kRegular) {
    return Fail(ErrorCode::kUnsupported, path.string() + " is not a regular file");
  }
  return file;
}

}  // namespace

Result<void> File::ReadExactly(uint64_t offset_bytes, std::span<std::byte> into) const {
  MP_ASSIGN_OR_RETURN(const size_t got, Read(offset_bytes, into));
  if (got != into.size()) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("file ends at byte {}, {} more were expected", offset_bytes + got, into.size() - got));
  }
  return {};
}

Result<std::unique_ptr<File>> PosixFileSystem::Open(const Path& path) {
  MP_FAULT("fs.open");
  return OpenWith(path, O_RDONLY);
}

Result<std::unique_ptr<File>> PosixFileSystem::Create(const Path& path) {
  MP_FAULT("fs.create");
  return OpenWith(path, O_RDWR | O_CREAT | O_EXCL);
}

Result<std::unique_ptr<File>> PosixFileSystem::OpenOrCreate(const Path& path) {
  MP_FAULT("fs.open_or_create");
  return OpenWith(path, O_RDWR | O_CREAT);
}

Result<FileInfo> PosixFileSystem::Info(const Path& path) {
  MP_FAULT("fs.info");
  struct stat stat;
  if (lstat(path.c_str(), &stat) != 0) return FailErrno("stat", path);
  return ToInfo(stat);
}

Result<std::vector<std::string>> PosixFileSystem::List(const Path& directory) {
  MP_FAULT("fs.list");
  DIR* handle = opendir(directory.c_str());
  if (handle == nullptr) return FailErrno("list", directory);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(handle)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  closedir(handle);
  errno = error;
  if (error != 0) return FailErrno("list", directory);
  return names;
}

Result<uint64_t> PosixFileSystem::FreeBytes(const Path& path) {
  MP_FAULT("fs.free_bytes");
  struct statvfs stat;
  if (statvfs(path.c_str(), &stat) != 0) return FailErrno("ask the free space of", path);
  return static_cast<uint64_t>(stat.f_bavail) * stat.f_frsize;
}

Result<void> PosixFileSystem::MakeDirectories(const Path& path) {
  MP_FAULT("fs.mkdir");
  Path partial;
  for (const Path& part : path) {
    partial /= part;
    if (mkdir(partial.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("make the directory", partial);
  }
  struct stat stat;
  if (::stat(path.c_str(), &stat) != 0) return FailErrno("stat", path);
  if (!S_ISDIR(stat.st_mode)) return Fail(ErrorCode::kAlreadyExists, path.string() + " exists and is not a directory");
  return {};
}

Result<void> PosixFileSystem::Rename(const Path& from, const Path& to) {
  MP_FAULT("fs.rename");
  if (rename(from.c_str(), to.c_str()) != 0) return FailErrno("rename to", to);
  return {};
}

Result<void> PosixFileSystem::Link(const Path& from, const Path& to) {
  MP_FAULT("fs.link");
  if (link(from.c_str(), to.c_str()) != 0) return FailErrno("link to", to);
  return {};
}

Result<void> PosixFileSystem::Remove(const Path& path) {
  MP_FAULT("fs.remove");
  if (::remove(path.c_str()) != 0) return FailErrno("remove", path);
  return {};
}

Result<void> PosixFileSystem::WriteSymlink(const std::string& text, const Path& path) {
  MP_FAULT("fs.symlink");
  if (symlink(text.c_str(), path.c_str()) != 0) return FailErrno("write the link", path);
  return {};
}

Result<std::string> PosixFileSystem::ReadSymlink(const Path& path) {
  MP_FAULT("fs.readlink");
  char text[4096];
  const ssize_t length = readlink(path.c_str(), text, sizeof text);
  if (length < 0) return FailErrno("read the link", path);
  return std::string(text, static_cast<size_t>(length));
}

Result<TransferKind> PosixFileSystem::CloneOrCopy(const Path& from, const Path& to) {
  MP_FAULT("fs.copy");
  const int source = open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (source < 0) return FailErrno("open", from);
  const int target = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (target < 0) {
    const auto failure = FailErrno("create", to);
    close(source);
    return failure;
  }
  const auto copy = [&]() -> Result<TransferKind> {
    if (ioctl(target, FICLONE, source) == 0) return TransferKind::kReflink;
    struct stat stat;
    if (fstat(source, &stat) != 0) return FailErrno("stat", from);
    // Asked for beforehand: a full disk is known before the first byte is written.
    if (stat.st_size > 0 && fallocate(target, 0, 0, stat.st_size) != 0 && errno != EOPNOTSUPP) {
      return FailErrno("reserve space for", to);
    }
    off_t left = stat.st_size;
    bool in_kernel = true;
    std::vector<char> buffer;
    while (left > 0) {
      ssize_t moved = in_kernel ? copy_file_range(source, nullptr, target, nullptr, static_cast<size_t>(left), 0) : 0;
      if (in_kernel && moved < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
        in_kernel = false;
      }
      if (!in_kernel) {  // two file systems that cannot copy between each other in the kernel
        buffer.resize(1 << 20);
        moved = read(source, buffer.data(), buffer.size());
        for (ssize_t done = 0; done < moved;) {
          const ssize_t put = write(target, buffer.data() + done, static_cast<size_t>(moved - done));
          if (put < 0) return FailErrno("write", to);
          done += put;
        }
      }
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0) return FailErrno("copy to", to);
      if (moved == 0) return Fail(ErrorCode::kCorrupt, from.string() + " shrank while it was copied");
      left -= moved;
    }
    return TransferKind::kKernelCopy;
  };
  auto result = copy();
  close(source);
  if (close(target) != 0 && result) result = FailErrno("close", to);
  if (!result) unlink(to.c_str());
  return result;
}

Result<void> PosixFileSystem::SetPermissions(const Path& path, uint32_t permissions) {
  MP_FAULT("fs.chmod");
  if (fchmodat(AT_FDCWD, path.c_str(), permissions, 0) != 0) return FailErrno("set the mode of", path);
  return {};
}

Result<void> PosixFileSystem::SetModified(const Path& path, int64_t modified_ns) {
  MP_FAULT("fs.utimens");
  const timespec times[2] = {{0, UTIME_OMIT}, {modified_ns / 1'000'000'000, modified_ns % 1'000'000'000}};
  if (utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("set the time of", path);
  return {};
}

Result<void> PosixFileSystem::SyncDirectory(const Path& path) {
  MP_FAULT("fs.sync_directory");
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FailErrno("open", path);
  const int status = fsync(descriptor);
  const int error = errno;
  close(descriptor);
  errno = error;
  if (status != 0 && error != EINVAL) return FailErrno("sync", path);
  return {};
}

Result<std::string> ReadWholeFile(FileSystem& files, const Path& path, uint64_t size_bytes_max) {
  MP_ASSIGN_OR_RETURN(const auto file, files.Open(path));
  MP_ASSIGN_OR_RETURN(const FileInfo info, file->Info());
  if (info.size_bytes > size_bytes_max) {
    return Fail(ErrorCode::kQuota, fmt::format("{} has {} bytes, more than the {} allowed", path.string(),
                                               info.size_bytes, size_bytes_max));
  }
  std::string bytes(info.size_bytes, '\0');
  MP_RETURN_IF_ERROR(file->ReadExactly(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

Result<void> WriteWholeFile(FileSystem& files, const Path& path, std::string_view bytes, std::string_view unique) {
  Path temporary = path;
  temporary += fmt::format(".{}.tmp", unique);
  const auto write = [&]() -> Result<void> {
    MP_ASSIGN_OR_RETURN(const auto file, files.Create(temporary));
    MP_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(bytes))));
    MP_RETURN_IF_ERROR(file->Sync());
    MP_RETURN_IF_ERROR(file->Close());
    return files.Rename(temporary, path);
  };
  auto result = write();
  if (!result) (void)files.Remove(temporary);
  return result;
}

}  // namespace moonpool

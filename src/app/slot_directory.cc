#include "app/slot_directory.h"

#include <fmt/format.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "bus/core/slot_file.h"

namespace moonpool::app {
namespace {

constexpr char kLockName[] = ".moonpool.lock";
constexpr uint32_t kPrivate = 0700;
constexpr uint32_t kOthers = 0077;

// Refuses what the bus cannot put right; answers what it saw.
Result<FileInfo> CheckOwned(FileSystem& files, const Path& path) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, files.Info(path));
  if (info.kind == FileKind::kSymlink) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("slot directory {} is a symbolic link: name the directory itself", path.string()));
  }
  if (info.kind != FileKind::kDirectory) {
    return Fail(ErrorCode::kUnsupported, fmt::format("slot directory {} is not a directory", path.string()));
  }
  if (info.owner_uid != geteuid()) {
    return Fail(ErrorCode::kPermission,
                fmt::format("slot directory {} belongs to user {}, not to {}: the bus and its servers run as one user",
                            path.string(), info.owner_uid, geteuid()));
  }
  if (getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0) {
    return Fail(ErrorCode::kPermission,
                fmt::format("slot directory {} has an access list: setfacl -b it", path.string()));
  }
  if ((info.permissions & 0022) != 0) {
    return Fail(
        ErrorCode::kPermission,
        fmt::format("others may write to slot directory {}: it needs a directory of its own, mode 700", path.string()));
  }
  return info;
}

Result<void> Sweep(FileSystem& files, const Path& path) {
  MP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(path));
  int swept = 0;
  for (const std::string& name : names) {
    if (!name.starts_with(bus::kSlotFilePrefix)) continue;
    const auto info = files.Info(path / name);
    if (!info || info->kind != FileKind::kRegular) continue;
    if (files.Remove(path / name)) ++swept;
  }
  if (swept > 0) log::Info("slot_files_swept path={} count={}", path.string(), swept);
  return {};
}

}  // namespace

Result<std::unique_ptr<SlotDirectory>> SlotDirectory::Acquire(FileSystem& files, const Path& path) {
  MP_RETURN_IF_ERROR(files.MakeDirectories(path));
  MP_ASSIGN_OR_RETURN(const FileInfo info, CheckOwned(files, path));
  if ((info.permissions & kOthers) != 0) {
    MP_RETURN_IF_ERROR(files.SetPermissions(path, kPrivate));
    log::Warn("slot_directory_closed path={} reason=\"others could read prompts in it\"", path.string());
  }
  MP_ASSIGN_OR_RETURN(std::unique_ptr<File> lock, files.OpenOrCreate(path / kLockName));
  if (const auto locked = lock->TryLock(File::LockKind::kExclusive); !locked) {
    if (locked.error().code != ErrorCode::kBusy) return Fail(locked.error());
    return Fail(ErrorCode::kAlreadyExists, fmt::format("slot directory {} is in use by another bus", path.string()));
  }
  MP_RETURN_IF_ERROR(Sweep(files, path));
  return std::unique_ptr<SlotDirectory>(new SlotDirectory(path, std::move(lock)));
}

Result<void> SlotDirectory::Inspect(FileSystem& files, const Path& path) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, CheckOwned(files, path));
  if ((info.permissions & kOthers) == 0) return {};
  return Fail(
      ErrorCode::kFailedPrecondition,
      fmt::format("others may read prompts in slot directory {} (the bus closes it at its start)", path.string()));
}

}  // namespace moonpool::app

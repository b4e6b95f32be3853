// Opening a store directory: whose is it, is it one, which version, and putting it in order.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "bus/blobs/directory_store.h"

namespace moonpool::bus {
namespace {

// A store shows what people asked a model, so nobody else may own or enter its directory (field report B62e).
Result<void> CheckPrivate(FileSystem& files, const Path& path) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, files.Info(path));
  if (info.kind == FileKind::kSymlink) {
    return Fail(ErrorCode::kPermission, path.string() + " is a symbolic link; name the store directory itself");
  }
  if (info.kind != FileKind::kDirectory) return Fail(ErrorCode::kPermission, path.string() + " is not a directory");
  if (info.owner_uid != geteuid()) {
    return Fail(ErrorCode::kPermission, fmt::format("{} belongs to uid {}, this bus runs as uid {}; give it a store "
                                                    "directory of its own",
                                                    path.string(), info.owner_uid, geteuid()));
  }
  if ((info.permissions & 0077) != 0) {
    return Fail(ErrorCode::kPermission, fmt::format("{} has mode {:04o}, others may enter it; chmod it to 0700",
                                                    path.string(), info.permissions));
  }
  return {};
}

// Absent format in a directory that holds only what an interrupted start leaves: nothing is lost by starting over.
Result<bool> HasFormat(FileSystem& files, const DirectoryLayout& layout) {
  const auto text = ReadWholeFile(files, layout.Format(), 4096);
  if (text) {
    if (*text == kStoreFormat) return true;
    const std::string first_line = text->substr(0, std::min(text->find('\n'), size_t{60}));
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} holds a store of the format '{}', this build knows '{}'", layout.root.string(),
                            first_line, kStoreFormat.substr(0, kStoreFormat.size() - 1)));
  }
  if (text.error().code != ErrorCode::kNotFound) return Fail(text.error());
  MP_ASSIGN_OR_RETURN(const auto names, files.List(layout.root));
  for (const std::string& name : names) {
    if (name == "lock" || name.starts_with("FORMAT.")) continue;
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{} is not empty ('{}' is in it) and is no Moonpool store; name an empty directory",
                            layout.root.string(), name));
  }
  return false;
}

}  // namespace

DirectoryStore::DirectoryStore(FileSystem& files, const Clock& clock, Rng& rng, Options options)
    : options_(std::move(options)),
      directory_{.files = files,
                 .clock = clock,
                 .rng = rng,
                 .layout = DirectoryLayout{options_.root},
                 .quota_bytes = options_.quota_bytes} {}

Result<std::unique_ptr<DirectoryStore>> DirectoryStore::Open(FileSystem& files, const Clock& clock, Rng& rng,
                                                             Options options) {
  if (options.root.empty()) return Fail(ErrorCode::kInvalidArgument, "the store directory has no name");
  // Without a trailing slash, which would make the kernel follow a link.
  options.root = options.root.lexically_normal();
  if (!options.root.has_filename()) options.root = options.root.parent_path();
  std::unique_ptr<DirectoryStore> store(new DirectoryStore(files, clock, rng, std::move(options)));
  if (auto started = store->Start(); !started) {
    return Fail(WithContext(std::move(started).error(), "cannot open the store"));
  }
  return store;
}

Result<void> DirectoryStore::Start() {
  FileSystem& files = directory_.files;
  const DirectoryLayout& layout = directory_.layout;
  const auto root = files.Info(layout.root);
  if (!root && root.error().code != ErrorCode::kNotFound) return Fail(root.error());
  if (options_.access == Access::kReadOnly) {
    MP_RETURN_IF_ERROR(CheckPrivate(files, layout.root));
    MP_ASSIGN_OR_RETURN(const bool formatted, HasFormat(files, layout));
    if (!formatted) return Fail(ErrorCode::kNotFound, layout.root.string() + " holds no store yet");
    return {};
  }
  if (!root) MP_RETURN_IF_ERROR(files.MakeDirectories(layout.root));
  MP_RETURN_IF_ERROR(CheckPrivate(files, layout.root));
  // Looked at before anything is made in it, so that a wrong directory is left as it was.
  MP_RETURN_IF_ERROR(HasFormat(files, layout));
  MP_ASSIGN_OR_RETURN(directory_.lock,
                      DirectoryLock::Open(files, directory_.clock, layout.Lock(), options_.lock_wait_max));
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_ASSIGN_OR_RETURN(const bool formatted, HasFormat(files, layout));
  if (!formatted) {
    MP_RETURN_IF_ERROR(WriteWholeFile(files, layout.Format(), kStoreFormat, directory_.rng.HexId(8)));
  }
  for (const Path& folder :
       {layout.Objects(), layout.Aliases(), layout.Canaries(), layout.Quarantine(), layout.Temp()}) {
    MP_RETURN_IF_ERROR(files.MakeDirectories(folder));
    MP_RETURN_IF_ERROR(CheckPrivate(files, folder));
  }
  MP_ASSIGN_OR_RETURN(directory_.temp, TempFiles::Open(files, layout, directory_.rng, hold));
  MP_ASSIGN_OR_RETURN(directory_.ledger, QuotaLedger::Open(files, layout, *directory_.temp, hold));
  MP_RETURN_IF_ERROR(survey_.Recount(hold));
  recounted_at_ns_ = directory_.clock.Now().time_since_epoch().count();
  // The quota may have been lowered.
  std::vector<ObjectId> evicted;
  if (auto fits = evictor_.MakeRoom(0, evicted, hold); !fits) {
    log::Warn("store_over_quota root={} error=\"{}\"", layout.root.string(), fits.error().ToString());
  }
  log::Info("store_opened root={} objects={} bytes={} quota={}", layout.root.string(), directory_.known.Ids().size(),
            directory_.ledger->stored_bytes(hold), options_.quota_bytes);
  return {};
}

}  // namespace moonpool::bus

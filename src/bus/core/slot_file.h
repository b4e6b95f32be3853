// SlotFile: one file in a server's slot directory, with a name that the bus made up and uses once (decision 13b).
// Gone when the object is, whatever happened in between; a name that was renamed away is no error.
#pragma once

#include <string>

#include "base/file_system.h"
#include "base/rng.h"

namespace moonpool::bus {

// What every such name begins with: left over after a kill, they are swept at the next start.
inline constexpr std::string_view kSlotFilePrefix = "mp-";

class SlotFile {
 public:
  SlotFile(FileSystem& files, const Path& slot_dir, Rng& rng)
      : files_(files), name_(std::string(kSlotFilePrefix) + rng.HexId(16) + ".bin"), path_(slot_dir / name_) {}
  ~SlotFile() {
    // A file system may fail once. What stays even so is swept at the next start.
    const auto removed = files_.Remove(path_);
    if (!removed && removed.error().code != ErrorCode::kNotFound) (void)files_.Remove(path_);
  }
  SlotFile(const SlotFile&) = delete;
  SlotFile& operator=(const SlotFile&) = delete;

  const std::string& name() const { return name_; }
  const Path& path() const { return path_; }

 private:
  FileSystem& files_;
  const std::string name_;
  const Path path_;
};

}  // namespace moonpool::bus

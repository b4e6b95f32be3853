// AliasTable: key -> (object, blocks), one tiny record per block boundary, kept as the text of a symbolic link that
// nobody follows: written whole by one call, put-if-absent by nature, no block of the disk used.
//
// An alias says nothing about whether its object still stands; the caller looks. Thread-safe (all state is in the
// directory); changes are made under the directory's lock.
#pragma once

#include <optional>
#include <string_view>

#include "bus/blobs/directory_layout.h"
#include "bus/blobs/directory_lock.h"
#include "bus/blobs/temp_files.h"

namespace moonpool::bus {

std::string EncodeAlias(const ObjectRef& ref);
std::optional<ObjectRef> DecodeAlias(std::string_view text);

class AliasTable {
 public:
  AliasTable(FileSystem& files, DirectoryLayout layout) : files_(files), layout_(std::move(layout)) {}

  // Nothing if there is no alias or its text is none of ours.
  Result<std::optional<ObjectRef>> Read(const Digest256& key);
  // kAlreadyExists if something has the name.
  Result<void> PutIfAbsent(const Digest256& key, const ObjectRef& ref, const DirectoryLock::Hold& hold);
  // Old or new at every moment, never absent.
  Result<void> Replace(const Digest256& key, const ObjectRef& ref, TempFiles& temp, const DirectoryLock::Hold& hold);
  // Absent is fine.
  Result<void> Remove(const Digest256& key, const DirectoryLock::Hold& hold);

  // The two-digit folders, and the keys in one of them (names that are no keys are skipped).
  Result<std::vector<std::string>> Folders();
  Result<std::vector<Digest256>> Keys(const std::string& folder);

 private:
  FileSystem& files_;
  const DirectoryLayout layout_;
};

}  // namespace moonpool::bus

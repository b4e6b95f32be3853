// DirectoryLayout: the names inside a store directory, and how to tell ours from foreign ones. A value; pure.
//
//   FORMAT                        "moonpool-store 1"
//   lock                          flock: held while names or sums change (DirectoryLock)
//   usage                         the bytes charged so far (QuotaLedger)
//   objects/xx/ID.kv  ID.head     payload and header; the header's presence is the object's visibility
//   aliases/xx/KEYHEX             a symbolic link with the text "ID:blocks", never followed (AliasTable)
//   canaries/IDENTITYHEX.N        decision 6 (CanaryShelf)
//   quarantine/ID.kv .head .reason
//   tmp/OWNER.owner  OWNER.N.what files in the making and the lock that tells whether their owner lives (TempFiles)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bus/blobs/blob_store.h"

namespace moonpool::bus {

inline constexpr std::string_view kStoreFormat = "moonpool-store 1\n";

// Files are charged in whole blocks of the common file systems, so that a sum does not depend on when the file
// system allocates. Directories and aliases are not charged: they hold no blocks of their own or next to none.
inline constexpr uint64_t kCostGrain = 4096;
inline constexpr uint64_t CostOf(uint64_t size_bytes) {
  return (size_bytes + kCostGrain - 1) / kCostGrain * kCostGrain;
}

// 16 lower-case hex digits, '-', 16 more. Everything that becomes part of a path passes here first.
bool IsObjectId(std::string_view text);

enum class ObjectPart { kPayload, kHead };
struct ObjectFileName {
  ObjectId id;
  ObjectPart part;
};
std::optional<ObjectFileName> ParseObjectFileName(std::string_view name);

// The owner of a file in tmp/, if the name is one of ours.
struct TempFileName {
  std::string owner;
  bool is_owner_file = false;
};
std::optional<TempFileName> ParseTempFileName(std::string_view name);

struct CanaryName {
  Digest256 identity;
  int number = 0;
};
std::optional<CanaryName> ParseCanaryName(std::string_view name);

struct DirectoryLayout {
  Path root;

  Path Format() const { return root / "FORMAT"; }
  Path Lock() const { return root / "lock"; }
  Path Usage() const { return root / "usage"; }
  Path Objects() const { return root / "objects"; }
  Path Aliases() const { return root / "aliases"; }
  Path Canaries() const { return root / "canaries"; }
  Path Quarantine() const { return root / "quarantine"; }
  Path Temp() const { return root / "tmp"; }

  Path Payload(const ObjectId& id) const { return Objects() / id.substr(0, 2) / (id + ".kv"); }
  Path Head(const ObjectId& id) const { return Objects() / id.substr(0, 2) / (id + ".head"); }
  Path QuarantinedPayload(const ObjectId& id) const { return Quarantine() / (id + ".kv"); }
  Path QuarantinedHead(const ObjectId& id) const { return Quarantine() / (id + ".head"); }
  Path QuarantineReason(const ObjectId& id) const { return Quarantine() / (id + ".reason"); }
  Path Alias(const Digest256& key) const;
  Path Canary(const Digest256& identity, int number) const;
};

}  // namespace moonpool::bus

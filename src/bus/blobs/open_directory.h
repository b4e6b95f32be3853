// OpenDirectory: an opened store directory, with what the use cases beside it (publisher, fetcher, remover, evictor,
// survey) all borrow. Owns no behaviour but looking at one object. Outlives them.
#pragma once

#include <atomic>
#include <memory>

#include "base/rng.h"
#include "bus/blobs/alias_table.h"
#include "bus/blobs/known_objects.h"
#include "bus/blobs/quota_ledger.h"

namespace moonpool::bus {

struct OpenDirectory {
  FileSystem& files;
  const Clock& clock;
  Rng& rng;
  const DirectoryLayout layout;
  const uint64_t quota_bytes;
  AliasTable aliases{files, layout};
  KnownObjects known{};

  // Absent when opened read-only. Each uses the ones before it.
  std::unique_ptr<DirectoryLock> lock{};
  std::unique_ptr<TempFiles> temp{};
  std::unique_ptr<QuotaLedger> ledger{};

  // Since opening, for StoreStats; nothing decides on them.
  std::atomic<uint64_t> evictions_total{0};
  std::atomic<uint64_t> corrupt_total{0};

  int64_t WallNowNs() const { return clock.WallNowMs() * 1'000'000; }

  // Whether the object is offered: its header stands there. Does not read it.
  Result<bool> Visible(const ObjectId& id);
  // kNotFound; kCorrupt: evidence that the header cannot be used (damaged, foreign, unreadable by mode);
  // kUnsupported: another format version; kIo and the rest: no evidence against the object.
  Result<ObjectHeader> ReadHead(const ObjectId& id);
  // What header and payload cost as they stand; an absent one costs nothing.
  Result<uint64_t> MeasureObject(const ObjectId& id);
};

}  // namespace moonpool::bus

// DirectoryStore: the embedded BlobStore, a directory of files (layout: directory_layout.h; bytes:
// docs/formats/kv-object.md). Needs no daemon; several processes may share a directory, also while one of them dies.
//
// Thread-safe. Names and sums change under the directory's lock (DirectoryLock); payload bytes move outside it, so
// lookups and fetches never wait for a publisher. This class wires the use cases to each other and forwards.
#pragma once

#include <atomic>
#include <memory>

#include "bus/blobs/blob_store.h"
#include "bus/blobs/canary_shelf.h"
#include "bus/blobs/directory_survey.h"
#include "bus/blobs/evictor.h"
#include "bus/blobs/object_fetcher.h"
#include "bus/blobs/object_publisher.h"
#include "bus/blobs/object_remover.h"
#include "bus/blobs/open_directory.h"

namespace moonpool::bus {

class DirectoryStore final : public BlobStore {
 public:
  enum class Access {
    kReadWrite,
    // Looks only: makes, locks, sweeps and moves nothing, and verbs that would answer kFailedPrecondition. For
    // `moonpool ctl` beside a running bus. (`ctl rm` opens for writing, which is as safe as a second bus.)
    kReadOnly,
  };
  struct Options {
    Path root;
    uint64_t quota_bytes = uint64_t{20} << 30;
    // Left to everybody else on the file system.
    uint64_t free_margin_bytes = uint64_t{64} << 20;
    // How long to wait for other buses' changes before giving up with kBusy.
    Duration lock_wait_max = std::chrono::seconds(10);
    // How often Tick counts the directory and tends aliases, if nothing is in doubt.
    Duration recount_interval = std::chrono::minutes(10);
    Access access = Access::kReadWrite;
  };

  // Makes the directory if it is absent, sweeps what dead owners left, sets aside what is damaged.
  // kPermission: it belongs to somebody else or others may enter it; kUnsupported: another format version;
  // kFailedPrecondition: a directory that is not a store. `files`, `clock` and `rng` outlive the store.
  static Result<std::unique_ptr<DirectoryStore>> Open(FileSystem& files, const Clock& clock, Rng& rng, Options options);

  Result<std::vector<std::optional<ObjectRef>>> BatchExists(std::span<const Digest256> keys) override;
  Result<ObjectHeader> ReadHeader(const ObjectId& object) override;
  Result<std::unique_ptr<Reservation>> Reserve(uint64_t bytes) override;
  Result<PublishReceipt> Publish(PublishRequest request, std::unique_ptr<Reservation> reservation) override;
  Result<FetchReceipt> Fetch(const ObjectHeader& header, const Path& destination, const Deadline& deadline) override;
  void Touch(const ObjectId& object, double hotness) override;
  Result<std::vector<ObjectSummary>> List() override;
  Result<void> Remove(const ObjectId& object) override;
  Result<void> Verify(const ObjectId& object) override;
  void Quarantine(const ObjectId& object, const std::string& reason) override;
  Result<StoreStats> Stats() override;
  Result<std::string> GetCanary(const Digest256& identity, int number) override;
  Result<void> PutCanary(const Digest256& identity, int number, std::string_view bytes) override;
  void Tick() override;

  // What the directory costs, counted file by file under the lock. Stats().bytes equals it, except after a kill or
  // a removal by hand: then Stats may say more until the next recount.
  Result<uint64_t> CountBytes();

 private:
  DirectoryStore(FileSystem& files, const Clock& clock, Rng& rng, Options options);
  Result<void> Start();
  Result<void> RequireWritable() const;
  Result<ObjectSummary> Summarize(const ObjectId& id);
  Result<void> TickLocked();

  const Options options_;
  OpenDirectory directory_;
  // Stateless apart from the survey's list of leftovers; all borrow directory_.
  ObjectRemover remover_{directory_};
  DirectorySurvey survey_{directory_, remover_};
  CanaryShelf canaries_{directory_};
  Evictor evictor_{directory_, survey_, remover_, canaries_};
  ObjectPublisher publisher_{directory_, survey_, remover_, evictor_};
  ObjectFetcher fetcher_{directory_};
  std::atomic<int64_t> recounted_at_ns_{0};  // of the steady clock; only decides when the next recount is due
};

}  // namespace moonpool::bus

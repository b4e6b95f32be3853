// BlobStore: where KV snapshots live. The seam between the bus and a store; DirectoryStore is the embedded
// default, a pooled store comes later.
//
// An object is one llama.cpp sequence-state file, stored whole as the server wrote it (decision 7), together
// with a header that repeats its full identity (decision 4). An alias per block boundary makes each prefix of
// its tokens findable by key; an alias carries no payload. An object is visible only when whole.
//
// Thread-safe, and safe to share between processes where the implementation says so. Keys already contain the
// namespace and the model's fingerprint (bus/keys), so no verb takes either (field report B09).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/sha256.h"
#include "base/token_id.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// The name of a stored object, unique for ever: 16 hex digits of its last key, '-', 16 random hex digits.
using ObjectId = std::string;

// The stored canary that founded a family of fingerprints (decision 6).
struct CanaryRef {
  Digest256 identity;
  int number = 0;

  bool operator==(const CanaryRef&) const = default;
};

// Decision 4: everything a reader compares before it trusts the payload.
struct ObjectHeader {
  ObjectId id;
  Digest256 fingerprint;         // ModelFingerprint::Id()
  std::string fingerprint_text;  // its canonical encoding, for people and for `ctl inspect`
  std::string model_name;        // a label for people; identity is the fingerprint
  std::string name_space;
  uint32_t block_tokens = 0;
  // Tokens [first_token, first_token + tokens.size()) of the sequence. Today first_token is always 0; an object
  // that holds only the blocks after a stored prefix would start later and name `parent`.
  uint64_t first_token = 0;
  std::optional<ObjectId> parent;
  std::vector<TokenId> tokens;
  std::vector<Digest256> keys;  // one per whole block of `tokens`
  std::string layout;           // state layout incl. stream count, as the payload has it (bus/kvstate)
  // The canary of the object's family: kept as long as an object names it. An object that names none keeps all.
  std::optional<CanaryRef> canary;
  uint64_t payload_bytes = 0;
  uint64_t chunk_bytes = 0;               // checksum grain
  std::vector<uint64_t> chunk_checksums;  // XXH3 of each chunk of the payload
  int64_t created_wall_ms = 0;
};

// What an alias says: `object` holds (at least) the first `blocks` blocks of the chain that ends in the key.
struct ObjectRef {
  ObjectId object;
  uint32_t blocks = 0;
};

struct PublishRequest {
  ObjectHeader header;  // id, payload_bytes, chunks and created_wall_ms are filled in by the store
  Path source;          // the saved file; consumed on success and on failure
  double hotness = 0;   // see Touch
};

struct PublishReceipt {
  ObjectId object;
  uint64_t payload_bytes = 0;
  uint32_t aliases_new = 0;
  std::vector<ObjectId> retired;  // objects that this one begins with whole and replaces (decision 7)
  std::vector<ObjectId> evicted;  // objects removed to make room
  TransferKind transfer = TransferKind::kRename;
  Duration checksum_time{};
};

struct FetchReceipt {
  uint64_t payload_bytes = 0;
  TransferKind transfer = TransferKind::kHardLink;
  Duration fetch_time{};   // until the bytes stood under the new name
  Duration verify_time{};  // the one read-and-checksum pass
};

// One line of `ctl ls`. Damaged or foreign objects are listed too, with `problem` set.
struct ObjectSummary {
  ObjectId id;
  std::string model_name;
  std::string name_space;
  Digest256 fingerprint;
  Digest256 last_key;
  uint64_t tokens = 0;
  uint64_t payload_bytes = 0;
  int64_t created_wall_ms = 0;
  int64_t last_used_wall_ms = 0;
  uint32_t aliases = 0;  // of its boundaries, how many are served by it
  std::optional<std::string> problem;
};

struct StoreStats {
  uint64_t objects = 0;
  uint64_t aliases = 0;
  uint64_t bytes = 0;           // on disk, headers and quarantine included
  uint64_t reserved_bytes = 0;  // announced by writers, not yet written
  uint64_t quota_bytes = 0;
  uint64_t quarantined = 0;
  uint64_t evictions_total = 0;
  uint64_t corrupt_total = 0;
};

// Bytes that a writer will need, counted against the quota from now on. Given back when dropped.
class Reservation {
 public:
  virtual ~Reservation() = default;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // For each key, the object that serves it, or nothing. One batch, no payload is touched. An alias whose object
  // is gone counts as absent.
  virtual Result<std::vector<std::optional<ObjectRef>>> BatchExists(std::span<const Digest256> keys) = 0;

  // kNotFound; kCorrupt (the object is then quarantined and never offered again); kUnsupported: written by a
  // format this build does not know.
  virtual Result<ObjectHeader> ReadHeader(const ObjectId& object) = 0;

  // Room for a coming Publish of about `bytes`: evicts if needed. kQuota if the quota cannot hold it, kNoSpace
  // if the file system cannot.
  virtual Result<std::unique_ptr<Reservation>> Reserve(uint64_t bytes) = 0;

  // Makes the file at `source` visible under its chain of keys, or changes nothing. kAlreadyExists if the whole
  // chain is already served; kQuota, kNoSpace, kIo, kCorrupt with a sentence each. `reservation` may be null.
  virtual Result<PublishReceipt> Publish(PublishRequest request, std::unique_ptr<Reservation> reservation) = 0;

  // Puts the payload of `object` at `destination` (a new name, on the server's side) and verifies every chunk
  // under that name. On failure nothing stands at `destination`. kNotFound, kCorrupt (quarantined), kNoSpace,
  // kDeadlineExceeded.
  virtual Result<FetchReceipt> Fetch(const ObjectHeader& header, const Path& destination, const Deadline& deadline) = 0;

  // Tells the store that an object was used now, and how hot its prefix is (fan-out; 0 = cold). Feeds eviction.
  virtual void Touch(const ObjectId& object, double hotness) = 0;

  virtual Result<std::vector<ObjectSummary>> List() = 0;
  virtual Result<void> Remove(const ObjectId& object) = 0;  // kNotFound, kBusy (being read)
  // Reads the whole object and checks it; a damaged one is quarantined and the answer kCorrupt says what was seen.
  virtual Result<void> Verify(const ObjectId& object) = 0;
  // Takes an object out of service because of what a reader saw in it.
  virtual void Quarantine(const ObjectId& object, const std::string& reason) = 0;
  virtual Result<StoreStats> Stats() = 0;

  // Canaries (decision 6): whole small state files, numbered per declared identity, exempt from eviction while
  // objects of their family exist. PutCanary is put-if-absent: kAlreadyExists tells that somebody was faster.
  virtual Result<std::string> GetCanary(const Digest256& identity, int number) = 0;
  virtual Result<void> PutCanary(const Digest256& identity, int number, std::string_view bytes) = 0;

  // Work that must not sit in a caller's path: sweep own leftovers, recount, drop orphaned aliases.
  virtual void Tick() = 0;
};

}  // namespace moonpool::bus

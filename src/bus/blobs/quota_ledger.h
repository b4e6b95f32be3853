// QuotaLedger: the bytes that a store directory holds and is about to hold, for all processes that share it.
//
// stored:    in ROOT/usage, a small record with a checksum. Raised before bytes appear and lowered after they went,
//            so whoever is killed in between leaves a sum that is too high, never too low; a recount corrects it.
// reserved:  by each owner in its own owner file in tmp/, so that it ends with its owner.
// generation: counts the changes, and tells a process that others changed the directory since it last looked.
//
// Everything here is guarded by the directory's lock, shown by a Hold, except OwnReserved and Forget.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "bus/blobs/directory_layout.h"
#include "bus/blobs/directory_lock.h"
#include "bus/blobs/temp_files.h"

namespace moonpool::bus {

struct Usage {
  uint64_t stored_bytes = 0;
  uint64_t generation = 0;
  bool operator==(const Usage&) const = default;
};

// kCorrupt: the record is absent, torn or damaged.
Result<Usage> ReadUsage(FileSystem& files, const DirectoryLayout& layout);
// What all owners together announced; may be read without the lock, then it is a snapshot of each.
Result<uint64_t> ReadReserved(FileSystem& files, const DirectoryLayout& layout);

class QuotaLedger {
 public:
  static Result<std::unique_ptr<QuotaLedger>> Open(FileSystem& files, DirectoryLayout layout, TempFiles& temp,
                                                   const DirectoryLock::Hold& hold);

  // Reads the record; call first after every Acquire. kCorrupt asks for a recount (Set).
  Result<void> Load(const DirectoryLock::Hold& hold);
  uint64_t stored_bytes(const DirectoryLock::Hold&) const { return usage_.stored_bytes; }
  Result<uint64_t> ReservedBytes(const DirectoryLock::Hold& hold);

  Result<void> Add(uint64_t bytes, const DirectoryLock::Hold& hold);       // before the bytes appear
  Result<void> Subtract(uint64_t bytes, const DirectoryLock::Hold& hold);  // after they went
  Result<void> Set(uint64_t bytes, const DirectoryLock::Hold& hold);       // as counted

  Result<void> Reserve(uint64_t bytes, const DirectoryLock::Hold& hold);
  // Lowers what this owner reserved. The owner file follows now or, if that fails, with the next change.
  void Unreserve(uint64_t bytes, const DirectoryLock::Hold& hold);
  // The same without the lock: the owner file follows with the next change.
  void Forget(uint64_t bytes) { own_reserved_.fetch_sub(bytes); }

  // Whether others changed the directory since MarkSeen.
  bool ChangedByOthers(const DirectoryLock::Hold&) const { return usage_.generation != seen_generation_; }
  void MarkSeen(const DirectoryLock::Hold&) { seen_generation_ = usage_.generation; }

  // The sum may be too high: something failed half-way. A recount clears it.
  void Doubt() { doubtful_.store(true); }
  void ClearDoubt() { doubtful_.store(false); }
  bool doubtful() const { return doubtful_.load(); }

 private:
  QuotaLedger(FileSystem& files, DirectoryLayout layout, TempFiles& temp, std::unique_ptr<File> file)
      : files_(files), layout_(std::move(layout)), temp_(temp), file_(std::move(file)) {}
  Result<void> Write(Usage usage);
  Result<void> WriteOwn(uint64_t reserved_bytes);

  FileSystem& files_;
  const DirectoryLayout layout_;
  TempFiles& temp_;
  const std::unique_ptr<File> file_;
  Usage usage_;
  uint64_t seen_generation_ = ~uint64_t{0};
  uint64_t own_written_ = 0;               // what the owner file says
  std::atomic<uint64_t> own_reserved_{0};  // lowered without the lock too, see Forget
  std::atomic<bool> doubtful_{false};      // a hint, read anywhere
};

}  // namespace moonpool::bus

// PrefixFinder: the longest stored prefix of a prompt that an engine can use. The index suggests and learns, the
// store's one batched answer decides, and the object's header is compared with the request, token by token,
// before anything is offered (decision 4): a hash collision or a lying alias ends as a miss.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "bus/blobs/blob_store.h"
#include "bus/core/engine_profile.h"
#include "bus/core/slot_tickets.h"
#include "bus/prefix/prefix_index.h"
#include "moonpool/result.h"

namespace moonpool::bus {

struct StoredPrefix {
  size_t blocks = 0;                   // longest prefix that the store has, usable or not
  std::string reason;                  // why nothing is offered: "no_prefix", "not_exact_continuation", "identity", ...
  std::optional<ObjectHeader> object;  // what would be fetched
  uint64_t restorable_tokens = 0;      // min(matched, prompt - 1), at block grain; 0 without an object
  double hotness = 0;
};

class PrefixFinder {
 public:
  PrefixFinder(BlobStore& store, PrefixIndex& index, const Clock& clock)
      : store_(store), index_(index), clock_(clock) {}

  Result<StoredPrefix> Find(const EngineProfile& profile, const TicketPrompt& prompt);
  // How many leading blocks are stored, by one batched query.
  Result<size_t> StoredBlocks(const std::vector<BlockKey>& keys);
  // Fills the index from the store: at the start of the bus.
  void Rebuild();

 private:
  Result<std::vector<std::optional<ObjectRef>>> Ask(const std::vector<BlockKey>& keys);

  BlobStore& store_;
  PrefixIndex& index_;
  const Clock& clock_;
};

}  // namespace moonpool::bus

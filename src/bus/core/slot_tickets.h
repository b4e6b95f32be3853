// SlotTickets: who owns which slot of which engine. One ticket per slot; a ticket lives from Prepare until Commit,
// Release, its deadline, or until its engine goes. Owner of all tickets. Thread-safe (one leaf mutex).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/token_id.h"
#include "bus/keys/block_key.h"

namespace moonpool::bus {

// The prompt a ticket was given for, as the engine sees it. Immutable, shared with commits and flights.
struct TicketPrompt {
  std::string name_space;
  std::vector<TokenId> tokens;
  std::vector<BlockKey> keys;  // of its whole blocks
};

struct Ticket {
  std::string id;
  std::string engine;
  std::string incarnation;  // of the server process
  uint32_t slot = 0;
  std::shared_ptr<const TicketPrompt> prompt;
  uint64_t promised_tokens = 0;  // the completion's cache_n should be at least this
  bool restored = false;         // by the bus, into this slot
  bool resident = false;         // the slot held the prefix already
  bool committing = false;
  bool promise_checked = false;  // a kept ticket commits twice; the promise is judged once
  TimePoint deadline{};
  std::optional<TimePoint> idle_since;  // its slot was seen idle since then
};

class SlotTickets {
 public:
  SlotTickets(const Clock& clock, Rng& rng) : clock_(clock), rng_(rng) {}

  // A ticket for ticket.engine and ticket.slot, with a fresh id; nothing if the slot is owned.
  std::optional<std::string> Take(Ticket ticket, Duration ttl) EXCLUDES(mutex_);
  std::optional<Ticket> Find(const std::string& id) const EXCLUDES(mutex_);
  bool Owned(const std::string& engine, uint32_t slot) const EXCLUDES(mutex_);
  // What the restore turned out to be; no effect if the ticket is gone.
  void SetOutcome(const std::string& id, uint64_t promised_tokens, bool restored, bool resident) EXCLUDES(mutex_);

  // The ticket, now committing: nobody else may commit it, and its end waits for EndCommit. Nothing if there is
  // no such ticket or it is committing already.
  std::optional<Ticket> BeginCommit(const std::string& id, bool judge_promise) EXCLUDES(mutex_);
  // The save has ended. `keep` goes on owning the slot (for `ttl` from now), unless it was released meanwhile.
  void EndCommit(const std::string& id, bool keep, Duration ttl) EXCLUDES(mutex_);

  // False if there is no such ticket. A committing one is let go when its commit ends.
  bool Release(const std::string& id) EXCLUDES(mutex_);
  // All tickets of an engine end, committing ones too; answers their ids.
  std::vector<std::string> DropEngine(const std::string& engine) EXCLUDES(mutex_);

  // What a look at the slot told: idle or busy. Remembers since when it is idle.
  void SlotSeen(const std::string& engine, uint32_t slot, bool idle) EXCLUDES(mutex_);
  // Ends the slot's ticket if the slot has been seen idle for `idle_min` or longer, and answers its id: its holder
  // has most likely gone, and somebody else wants the slot.
  std::optional<std::string> TakeOver(const std::string& engine, uint32_t slot, Duration idle_min) EXCLUDES(mutex_);
  // Ends tickets whose deadline has passed. Answers their ids.
  std::vector<std::string> Expire() EXCLUDES(mutex_);

  std::vector<Ticket> All() const EXCLUDES(mutex_);
  // Whether a slot of the engine is only held until its save has ended.
  bool AnyCommitting(const std::string& engine) const EXCLUDES(mutex_);
  // Returns when a ticket of any engine has ended, or at the deadline.
  void AwaitEnd(const Deadline& deadline) const EXCLUDES(mutex_);

 private:
  void Erase(const std::string& id) REQUIRES(mutex_);

  const Clock& clock_;
  Rng& rng_;
  mutable Mutex mutex_;
  mutable CondVar ended_;
  uint64_t ended_total_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, Ticket> tickets_ GUARDED_BY(mutex_);
  std::map<std::pair<std::string, uint32_t>, std::string> owners_ GUARDED_BY(mutex_);  // (engine, slot) -> id
  std::map<std::string, bool> released_ GUARDED_BY(mutex_);  // committing tickets to let go afterwards
};

}  // namespace moonpool::bus

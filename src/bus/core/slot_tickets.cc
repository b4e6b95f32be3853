#include "bus/core/slot_tickets.h"

#include <algorithm>

namespace moonpool::bus {

std::optional<std::string> SlotTickets::Take(Ticket ticket, Duration ttl) {
  MutexLock lock(mutex_);
  const auto place = std::make_pair(ticket.engine, ticket.slot);
  if (owners_.contains(place)) return std::nullopt;
  ticket.id = rng_.HexId(16);
  ticket.deadline = clock_.Now() + ttl;
  owners_[place] = ticket.id;
  const std::string id = ticket.id;
  tickets_.emplace(id, std::move(ticket));
  return id;
}

std::optional<Ticket> SlotTickets::Find(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return std::nullopt;
  return found->second;
}

bool SlotTickets::Owned(const std::string& engine, uint32_t slot) const {
  MutexLock lock(mutex_);
  return owners_.contains({engine, slot});
}

void SlotTickets::SetOutcome(const std::string& id, uint64_t promised_tokens, bool restored, bool resident) {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return;
  found->second.promised_tokens = promised_tokens;
  found->second.restored = restored;
  found->second.resident = resident;
}

std::optional<Ticket> SlotTickets::BeginCommit(const std::string& id, bool judge_promise) {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(id);
  if (found == tickets_.end() || found->second.committing) return std::nullopt;
  found->second.committing = true;
  Ticket copy = found->second;
  if (judge_promise) found->second.promise_checked = true;
  return copy;
}

void SlotTickets::EndCommit(const std::string& id, bool keep, Duration ttl) {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return;
  if (!keep || released_.contains(id)) {
    Erase(id);
    return;
  }
  found->second.committing = false;
  found->second.idle_since.reset();
  found->second.deadline = clock_.Now() + ttl;
}

bool SlotTickets::Release(const std::string& id) {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return false;
  if (found->second.committing) {
    released_[id] = true;
  } else {
    Erase(id);
  }
  return true;
}

std::vector<std::string> SlotTickets::DropEngine(const std::string& engine) {
  MutexLock lock(mutex_);
  std::vector<std::string> ended;
  for (const auto& [id, ticket] : tickets_) {
    if (ticket.engine == engine) ended.push_back(id);
  }
  for (const std::string& id : ended) Erase(id);
  return ended;
}

void SlotTickets::SlotSeen(const std::string& engine, uint32_t slot, bool idle) {
  MutexLock lock(mutex_);
  const auto owner = owners_.find({engine, slot});
  if (owner == owners_.end()) return;
  Ticket& ticket = tickets_.at(owner->second);
  if (!idle || ticket.committing) {
    ticket.idle_since.reset();
  } else if (!ticket.idle_since) {
    ticket.idle_since = clock_.Now();
  }
}

std::optional<std::string> SlotTickets::TakeOver(const std::string& engine, uint32_t slot, Duration idle_min) {
  MutexLock lock(mutex_);
  const auto owner = owners_.find({engine, slot});
  if (owner == owners_.end()) return std::nullopt;
  const Ticket& ticket = tickets_.at(owner->second);
  if (ticket.committing || !ticket.idle_since || clock_.Now() - *ticket.idle_since < idle_min) return std::nullopt;
  const std::string id = ticket.id;
  Erase(id);
  return id;
}

std::vector<std::string> SlotTickets::Expire() {
  MutexLock lock(mutex_);
  std::vector<std::string> ended;
  for (const auto& [id, ticket] : tickets_) {
    // The deadlines of its own steps end a commit.
    if (!ticket.committing && clock_.Now() >= ticket.deadline) ended.push_back(id);
  }
  for (const std::string& id : ended) Erase(id);
  return ended;
}

std::vector<Ticket> SlotTickets::All() const {
  MutexLock lock(mutex_);
  std::vector<Ticket> all;
  for (const auto& [id, ticket] : tickets_) all.push_back(ticket);
  return all;
}

bool SlotTickets::AnyCommitting(const std::string& engine) const {
  MutexLock lock(mutex_);
  return std::any_of(tickets_.begin(), tickets_.end(),
                     [&](const auto& entry) { return entry.second.engine == engine && entry.second.committing; });
}

void SlotTickets::AwaitEnd(const Deadline& deadline) const {
  MutexLock lock(mutex_);
  const uint64_t seen = ended_total_;
  while (ended_total_ == seen && !deadline.Passed()) clock_.WaitUntil(ended_, mutex_, deadline.At());
}

void SlotTickets::Erase(const std::string& id) {
  const auto found = tickets_.find(id);
  owners_.erase({found->second.engine, found->second.slot});
  released_.erase(id);
  tickets_.erase(found);
  ++ended_total_;
  ended_.NotifyAll();
}

}  // namespace moonpool::bus

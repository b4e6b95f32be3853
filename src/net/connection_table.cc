#include "net/connection_table.h"

#include <utility>

namespace moonpool::net {

ConnectionTable::Admission ConnectionTable::Admit(std::shared_ptr<HttpConnection> connection) {
  std::shared_ptr<HttpConnection> evicted;
  Admission admission = Admission::kServe;
  {
    MutexLock lock(mutex_);
    if (entries_.size() >= connections_max_) evicted = TakeOldestIdle();
    if (entries_.size() >= connections_max_) {
      admission = entries_.size() >= connections_max_ + kRefusalsMax ? Admission::kDrop : Admission::kRefuse;
    }
    if (admission != Admission::kDrop) {
      HttpConnection* const key = connection.get();
      entries_.emplace(key, Entry{std::move(connection), {}, false});
    }
  }
  if (evicted) evicted->PostClose();
  return admission;
}

void ConnectionTable::SetIdle(HttpConnection& connection, bool idle) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(&connection);
  if (found == entries_.end() || found->second.idle == idle) return;
  if (idle) {
    found->second.idle_place = idle_.insert(idle_.end(), &connection);
  } else {
    idle_.erase(found->second.idle_place);
  }
  found->second.idle = idle;
}

void ConnectionTable::Remove(HttpConnection& connection) {
  std::shared_ptr<HttpConnection> removed;  // let go outside the lock
  MutexLock lock(mutex_);
  const auto found = entries_.find(&connection);
  if (found == entries_.end()) return;
  if (found->second.idle) idle_.erase(found->second.idle_place);
  removed = std::move(found->second.connection);
  entries_.erase(found);
  if (entries_.empty()) emptied_.NotifyAll();
}

bool ConnectionTable::EvictIdle() {
  std::shared_ptr<HttpConnection> evicted;
  {
    MutexLock lock(mutex_);
    evicted = TakeOldestIdle();
  }
  if (evicted) evicted->PostClose();
  return evicted != nullptr;
}

// It leaves the table at once, so that the bound counts the newcomer in its place.
std::shared_ptr<HttpConnection> ConnectionTable::TakeOldestIdle() {
  if (idle_.empty()) return nullptr;
  const auto found = entries_.find(idle_.front());
  idle_.pop_front();
  std::shared_ptr<HttpConnection> connection = std::move(found->second.connection);
  entries_.erase(found);
  ++evicted_;
  return connection;
}

std::vector<std::shared_ptr<HttpConnection>> ConnectionTable::All() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<HttpConnection>> all;
  for (const auto& [key, entry] : entries_) all.push_back(entry.connection);
  return all;
}

bool ConnectionTable::AwaitEmpty(TimePoint until) {
  MutexLock lock(mutex_);
  while (!entries_.empty()) {
    const Duration left = until - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return false;
    emptied_.WaitFor(mutex_, left);
  }
  return true;
}

uint64_t ConnectionTable::Open() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

uint64_t ConnectionTable::Evicted() const {
  MutexLock lock(mutex_);
  return evicted_;
}

}  // namespace moonpool::net

// ConnectionTable: the open connections of one HttpServer, with a bound, in order of how long they have been idle.
// Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "net/http_connection.h"

namespace moonpool::net {

class ConnectionTable {
 public:
  // Beside the connections that are served, so many may be told that the server is full.
  static constexpr uint32_t kRefusalsMax = 64;

  enum class Admission { kServe, kRefuse, kDrop };

  explicit ConnectionTable(uint32_t connections_max) : connections_max_(connections_max) {}

  // Adds the connection unless the answer is kDrop. Makes room by closing the one that has been idle longest.
  Admission Admit(std::shared_ptr<HttpConnection> connection) EXCLUDES(mutex_);
  void SetIdle(HttpConnection& connection, bool idle) EXCLUDES(mutex_);
  void Remove(HttpConnection& connection) EXCLUDES(mutex_);
  // Closes the connection that has been idle longest; false if none is idle.
  bool EvictIdle() EXCLUDES(mutex_);

  std::vector<std::shared_ptr<HttpConnection>> All() const EXCLUDES(mutex_);
  // Waits in real time until none is left; false when `until` came first.
  bool AwaitEmpty(TimePoint until) EXCLUDES(mutex_);
  uint64_t Open() const EXCLUDES(mutex_);
  uint64_t Evicted() const EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<HttpConnection> connection;  // shared with the connection's own pending operations
    std::list<HttpConnection*>::iterator idle_place;
    bool idle = false;
  };
  std::shared_ptr<HttpConnection> TakeOldestIdle() REQUIRES(mutex_);

  const uint32_t connections_max_;
  mutable Mutex mutex_;
  CondVar emptied_;
  std::unordered_map<HttpConnection*, Entry> entries_ GUARDED_BY(mutex_);
  std::list<HttpConnection*> idle_ GUARDED_BY(mutex_);  // idle longest in front
  uint64_t evicted_ GUARDED_BY(mutex_) = 0;
};

}  // namespace moonpool::net

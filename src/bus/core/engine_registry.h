// EngineRegistry: the engines of the bus by name. Owner of the sessions; hands out shared references, because a
// call may be under way on an engine that a reload of the configuration takes out. Thread-safe (leaf mutex).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "bus/core/engine_session.h"

namespace moonpool::bus {

using SessionRef = std::shared_ptr<EngineSession>;

class EngineRegistry {
 public:
  SessionRef Find(const std::string& name) const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(name);
    return found == sessions_.end() ? nullptr : found->second;
  }

  std::vector<SessionRef> All() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::vector<SessionRef> all;
    for (const auto& [name, session] : sessions_) all.push_back(session);
    return all;
  }

  void Replace(std::map<std::string, SessionRef> sessions) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    sessions_ = std::move(sessions);
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, SessionRef> sessions_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus

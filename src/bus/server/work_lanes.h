// WorkLanes: the threads on which calls may block. Three lanes, because the calls depend on each other: a Prepare may
// wait for another agent's Commit, so a crowd of waiting Prepares must never keep a Commit from running, and neither
// may keep a Lookup, a Release or a scrape waiting. Each lane has a bounded queue; a call that finds it full is refused
// at once. Thread-safe; owned by BusServer.
#pragma once

#include <functional>

#include "base/executor.h"
#include "bus/server/bus_calls.h"

namespace moonpool::bus {

struct LaneSizes {
  int quick_threads = 4;
  size_t quick_queue_max = 256;
  int prepare_threads = 64;  // so many Prepares may wait at the same time
  size_t prepare_queue_max = 64;
  int commit_threads = 16;
  size_t commit_queue_max = 64;
};

class WorkLanes {
 public:
  explicit WorkLanes(const LaneSizes& sizes)
      : quick_(sizes.quick_threads, sizes.quick_queue_max),
        prepares_(sizes.prepare_threads, sizes.prepare_queue_max),
        commits_(sizes.commit_threads, sizes.commit_queue_max) {}

  // False: the lane is full or closed, and `work` will not run.
  bool Post(Verb verb, std::function<void()> work) { return LaneOf(verb).Post(std::move(work)); }
  bool PostQuick(std::function<void()> work) { return quick_.Post(std::move(work)); }

  // Runs what is queued, then joins. After the doors have stopped.
  void Shutdown() {
    quick_.Shutdown();
    prepares_.Shutdown();
    commits_.Shutdown();
  }

 private:
  Executor& LaneOf(Verb verb) {
    switch (verb) {
      case Verb::kPrepare: return prepares_;
      case Verb::kCommit:
      case Verb::kProbe: return commits_;  // a probe evaluates a prompt: seconds, but nobody waits for it
      case Verb::kLookup:
      case Verb::kRelease: break;
    }
    return quick_;
  }

  ThreadPool quick_;
  ThreadPool prepares_;
  ThreadPool commits_;
};

}  // namespace moonpool::bus

// InterruptWatch: what happens on SIGINT, SIGTERM and SIGHUP while a demo or benchmark runs: the children are killed,
// the scratch folder is removed, the process ends with 128 + the signal's number. Made first, on the main thread,
// before any other thread; owned by the command. Thread-safe.
//
// The signals are blocked everywhere and taken by a thread of its own, because the main thread waits inside calls that
// take seconds, and because none of this could be done in a signal handler.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <set>
#include <thread>

#include "base/file_system.h"
#include "base/mutex.h"

namespace moonpool::app {

class InterruptWatch {
 public:
  InterruptWatch();
  // The signals do what they did before.
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  void AddChild(pid_t pid) EXCLUDES(mutex_);
  // Before the child is reaped: its pid may be another process's afterwards.
  void RemoveChild(pid_t pid) EXCLUDES(mutex_);
  // An empty path: there is none (any more).
  void SetDirectory(Path directory) EXCLUDES(mutex_);

 private:
  void Watch();
  [[noreturn]] void EndProcess(int signal) EXCLUDES(mutex_);

  sigset_t previous_mask_{};
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  Mutex mutex_;
  std::set<pid_t> children_ GUARDED_BY(mutex_);
  Path directory_ GUARDED_BY(mutex_);
  std::thread thread_;  // last: runs while everything above lives
};

}  // namespace moonpool::app

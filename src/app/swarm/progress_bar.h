// ProgressBar: shows how far a run of seconds to minutes has come: one line that moves on a terminal, one plain line
// per step elsewhere (logs, pipes). Thread-safe; owned by the command. On a terminal a thread keeps the clock in the
// line moving, so that a long evaluation does not look like a hang.
#pragma once

#include <cstdio>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace moonpool::app {

// One state of the line, without line break: "bus      [######----]  3/6   12.4 s  agent 4". At most `columns` wide.
std::string RenderBar(const std::string& title, size_t done, size_t total, double seconds, size_t columns);

class ProgressBar {
 public:
  // `out` outlives the bar. `moving`: it is a terminal.
  ProgressBar(std::FILE* out, bool moving, const Clock& clock);
  // Leaves the last state on the screen.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // A new line for a new piece of work; the one before stays as it is.
  void Begin(std::string title, size_t steps) EXCLUDES(mutex_);
  void Step() EXCLUDES(mutex_);

 private:
  void KeepMoving() EXCLUDES(mutex_);
  void Draw() REQUIRES(mutex_);
  void EndLine() REQUIRES(mutex_);

  std::FILE* const out_;
  const bool moving_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  std::string title_ GUARDED_BY(mutex_);
  size_t done_ GUARDED_BY(mutex_) = 0;
  size_t total_ GUARDED_BY(mutex_) = 0;
  TimePoint begun_ GUARDED_BY(mutex_){};
  bool ending_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses everything above
};

// The one for stderr.
bool StderrIsTerminal();

}  // namespace moonpool::app

// ChildProcess: one program that we started: it dies when we die, however that happens. Owned by whoever started it,
// from Start to the destructor, which stops it. One thread, and that must be the one that started it and outlives it:
// the kernel ends the child with that thread.
//
// Its stdin is empty, its stderr goes to a file, its stdout is read by ReadLine. It is in a process group of its own,
// so Ctrl-C on the terminal reaches only us, and InterruptWatch ends it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "app/swarm/interrupt_watch.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "moonpool/result.h"

namespace moonpool::app {

struct ChildCommand {
  std::string name{};                      // for messages: "server a"
  std::vector<std::string> arguments{};    // the first is the program's path
  std::vector<std::string> environment{};  // "NAME=value", before ours; MOONPOOL_... of ours stay with us
  Path log{};
};

class ChildProcess {
 public:
  // kIo if the system cannot start another process; a program that cannot be run ends with status 127 at once.
  static Result<std::unique_ptr<ChildProcess>> Start(ChildCommand command, InterruptWatch& interrupts,
                                                     const Clock& clock);
  // Stop(2 s).
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& name() const { return command_.name; }
  bool Running() const;

  // The next line of its stdout, without the line break. kUnavailable with the end of its log if it ended first;
  // kDeadlineExceeded.
  Result<std::string> ReadLine(const Deadline& deadline);
  // SIGTERM, and SIGKILL after `grace`. Idempotent.
  void Stop(Duration grace);
  // The last lines of its log, for messages.
  std::string LogTail() const;

 private:
  ChildProcess(ChildCommand command, pid_t pid, int pid_fd, int stdout_fd, InterruptWatch& interrupts,
               const Clock& clock)
      : command_(std::move(command)),
        pid_(pid),
        pid_fd_(pid_fd),
        stdout_fd_(stdout_fd),
        interrupts_(interrupts),
        clock_(clock) {}
  bool AwaitEnd(Duration allowed) const;

  const ChildCommand command_;
  const pid_t pid_;
  int pid_fd_;  // -1 once it was stopped and reaped
  int stdout_fd_;
  std::string unread_;
  InterruptWatch& interrupts_;  // outlives the child
  const Clock& clock_;
};

}  // namespace moonpool::app

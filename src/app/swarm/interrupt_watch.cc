#include "app/swarm/interrupt_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace moonpool::app {

InterruptWatch::InterruptWatch() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ours, signal);
  pthread_sigmask(SIG_BLOCK, &ours, &previous_mask_);
  signal_fd_ = signalfd(-1, &ours, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  MP_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0);
  thread_ = std::thread([this] { Watch(); });
}

InterruptWatch::~InterruptWatch() {
  MP_CHECK(eventfd_write(stop_fd_, 1) == 0);
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

void InterruptWatch::AddChild(pid_t pid) {
  MutexLock lock(mutex_);
  children_.insert(pid);
}

void InterruptWatch::RemoveChild(pid_t pid) {
  MutexLock lock(mutex_);
  children_.erase(pid);
}

void InterruptWatch::SetDirectory(Path directory) {
  MutexLock lock(mutex_);
  directory_ = std::move(directory);
}

void InterruptWatch::Watch() {
  while (true) {
    std::array<pollfd, 2> entries{pollfd{.fd = signal_fd_, .events = POLLIN, .revents = 0},
                                  pollfd{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
    if (poll(entries.data(), entries.size(), -1) <= 0) continue;
    if (entries[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) EndProcess(static_cast<int>(info.ssi_signo));
  }
}

void InterruptWatch::EndProcess(int signal) {
  std::fputs("\ninterrupted: stopping the servers and removing their files\n", stderr);
  MutexLock lock(mutex_);  // kept to the end: nobody starts or reaps a child any more
  for (const pid_t pid : children_) kill(pid, SIGKILL);
  for (const pid_t pid : children_) waitpid(pid, nullptr, 0);  // or else they still write where we remove
  std::error_code error;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, error);
  if (error) std::fprintf(stderr, "%s: cannot be removed: %s\n", directory_.c_str(), error.message().c_str());
  _exit(128 + signal);
}

}  // namespace moonpool::app

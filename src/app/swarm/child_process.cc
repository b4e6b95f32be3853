#include "app/swarm/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace moonpool::app {
namespace {

constexpr Duration kGrace = std::chrono::seconds(2);

int PollMs(Duration left) {
  return static_cast<int>(
      std::min<int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1, 60'000));
}

// Whether `fd` has something to read within `allowed`. An interrupted wait counts as nothing.
bool Readable(int fd, Duration allowed) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, PollMs(allowed)) > 0;
}

// Between fork and exec only calls that are safe after a fork of a process with threads; everything was prepared.
[[noreturn]] void RunProgram(pid_t parent, int stdout_fd, int null_fd, int log_fd, char* const* arguments,
                             char* const* environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the call: no signal will come any more
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(null_fd, 0);
  dup2(stdout_fd, 1);
  dup2(log_fd, 2);
  execve(arguments[0], arguments, environment);
  constexpr std::string_view kMessage = "the program cannot be run\n";
  [[maybe_unused]] const ssize_t written = write(2, kMessage.data(), kMessage.size());
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(ChildCommand command, InterruptWatch& interrupts,
                                                          const Clock& clock) {
  std::vector<std::string> environment = command.environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("MOONPOOL_")) environment.emplace_back(*entry);
  }
  const std::vector<char*> arguments = Pointers(command.arguments);
  const std::vector<char*> variables = Pointers(environment);

  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int log_fd = open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  std::array<int, 2> out{-1, -1};
  const bool piped = pipe2(out.data(), O_CLOEXEC) == 0;
  const pid_t parent = getpid();
  pid_t pid = -1;
  if (null_fd >= 0 && log_fd >= 0 && piped) pid = fork();
  const int error = errno;
  if (pid == 0) RunProgram(parent, out[1], null_fd, log_fd, arguments.data(), variables.data());
  for (const int fd : {null_fd, log_fd, out[1]}) {
    if (fd >= 0) close(fd);
  }
  const int pid_fd = pid < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pid_fd < 0) {
    if (out[0] >= 0) close(out[0]);
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    return Fail(ErrorCode::kIo, fmt::format("{}: cannot be started: {}", command.name, std::strerror(error)));
  }
  interrupts.AddChild(pid);
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(command), pid, pid_fd, out[0], interrupts, clock));
}

ChildProcess::~ChildProcess() {
  Stop(kGrace);
  close(stdout_fd_);
}

bool ChildProcess::Running() const { return pid_fd_ >= 0 && !AwaitEnd(Duration::zero()); }

bool ChildProcess::AwaitEnd(Duration allowed) const {
  const Deadline deadline(clock_, allowed);
  do {
    pollfd entry{.fd = pid_fd_, .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, allowed == Duration::zero() ? 0 : PollMs(deadline.Left())) > 0) return true;
  } while (!deadline.Passed());
  return false;
}

Result<std::string> ChildProcess::ReadLine(const Deadline& deadline) {
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    if (deadline.Passed()) return Fail(ErrorCode::kDeadlineExceeded, fmt::format("{}: says nothing", command_.name));
    if (!Readable(stdout_fd_, deadline.Left())) continue;
    std::array<char, 4096> piece;
    const ssize_t count = read(stdout_fd_, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return Fail(ErrorCode::kUnavailable, fmt::format("{} ended; its log ends with:\n{}", command_.name, LogTail()));
    }
    unread_.append(piece.data(), static_cast<size_t>(count));
  }
}

void ChildProcess::Stop(Duration grace) {
  if (pid_fd_ < 0) return;
  kill(pid_, SIGTERM);
  if (!AwaitEnd(grace)) kill(pid_, SIGKILL);
  // The pid is ours until it is reaped; before that nobody else may signal it any more.
  interrupts_.RemoveChild(pid_);
  waitpid(pid_, nullptr, 0);
  close(pid_fd_);
  pid_fd_ = -1;
}

std::string ChildProcess::LogTail() const {
  constexpr size_t kBytesMax = 1500;
  std::ifstream file(command_.log, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() > kBytesMax) text.erase(0, text.size() - kBytesMax);
  return text.empty() ? "(nothing)" : text;
}

}  // namespace moonpool::app

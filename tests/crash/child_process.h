// ChildProcess: a program that a test starts, talks to and kills. Only ever ends the process it started.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace moonpool::testing {

class ChildProcess {
 public:
  // `environment` entries ("NAME=value") are added to ours.
  explicit ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
    int to_child[2];
    int from_child[2];
    MP_CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(from_child, O_CLOEXEC) == 0);
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    MP_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    input_ = to_child[1];
    output_ = from_child[0];
  }
  ~ChildProcess() {
    Kill();
    CloseInput();
    close(output_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void CloseInput() {
    if (input_ >= 0) close(std::exchange(input_, -1));
  }
  // Up to the next newline, or the end.
  std::string ReadLine() {
    std::string line;
    char byte;
    while (read(output_, &byte, 1) == 1 && byte != '\n') line.push_back(byte);
    return line;
  }
  // kill -9, and reaped.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }
  // The exit status, or 128 + the signal that ended it.
  int Wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Whether it has not ended by itself; asks without waiting.
  bool Running() {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == 0) return true;
    pid_ = -1;
    return false;
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
};

}  // namespace moonpool::testing

// LlamaProcess: a real llama.cpp server for one test, through python/llama_server.py. Ends with this object; the
// child watches its stdin too, so it never outlives the test program.
//
// Needs what `make setup` puts under the state root (MOONPOOL_STATE, or .state in the source tree); when that is
// missing the error says so, and the test fails.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "moonpool/result.h"

namespace moonpool::testing {

class LlamaProcess {
 public:
  static std::filesystem::path StateRoot() {
    const char* state = std::getenv("MOONPOOL_STATE");
    return state != nullptr ? std::filesystem::path(state) : std::filesystem::path(MOONPOOL_SOURCE_DIR) / ".state";
  }
  // SmolLM2 135M: plain attention, 30 layers.
  static std::filesystem::path PlainModel() { return StateRoot() / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"; }
  // Gemma 3 270M: 3 full and 15 sliding-window layers.
  static std::filesystem::path SlidingWindowModel() { return StateRoot() / "models" / "gemma-3-270m-q4_k_m.gguf"; }

  // `flags` as python/llama_server.py takes them ("--np=2"). Returns when the server answers.
  static Result<std::unique_ptr<LlamaProcess>> Start(const std::filesystem::path& model,
                                                     const std::filesystem::path& slot_directory,
                                                     const std::vector<std::string>& flags) {
    const char* named = std::getenv("MOONPOOL_PYTHON");
    const std::string python = named != nullptr ? named : (StateRoot() / "venv" / "bin" / "python").string();
    for (const std::filesystem::path& needed : {std::filesystem::path(python), model}) {
      if (std::filesystem::exists(needed)) continue;
      return moonpool::Fail(ErrorCode::kNotFound, needed.string() + " is missing: run make setup");
    }
    std::vector<std::string> arguments = {python,
                                          MOONPOOL_SOURCE_DIR "/python/llama_server.py",
                                          "--exit-on-stdin-close",
                                          "--no-parent-death-signal",
                                          "--model=" + model.string(),
                                          "--slot-dir=" + slot_directory.string()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());

    std::unique_ptr<LlamaProcess> process(new LlamaProcess);
    if (!process->Spawn(arguments)) return moonpool::Fail(ErrorCode::kIo, "cannot start " + python);
    const std::string line = process->ReadLine(std::chrono::seconds(240));
    const nlohmann::json ready = nlohmann::json::parse(line, nullptr, false);
    if (!ready.is_object()) {
      return moonpool::Fail(ErrorCode::kUnavailable,
                            "the server did not start; see the log beside " + slot_directory.string());
    }
    process->url_ = ready.value("url", "");
    return process;
  }

  ~LlamaProcess() { End(SIGTERM); }
  LlamaProcess(const LlamaProcess&) = delete;
  LlamaProcess& operator=(const LlamaProcess&) = delete;

  const std::string& url() const { return url_; }
  pid_t pid() const { return pid_; }
  // As a crash looks to everybody else.
  void Kill() { End(SIGKILL); }
  // Stops it as SIGSTOP does; returns when no thread of it runs any more.
  void Freeze() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  void Thaw() const { ::kill(pid_, SIGCONT); }

 private:
  LlamaProcess() = default;

  bool Spawn(const std::vector<std::string>& arguments) {
    int to_child[2];
    int from_child[2];
    if (::pipe2(to_child, O_CLOEXEC) != 0) return false;
    if (::pipe2(from_child, O_CLOEXEC) != 0) {
      ::close(to_child[0]);
      ::close(to_child[1]);
      return false;
    }
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], 1);
    const bool spawned = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    ::close(to_child[0]);
    ::close(from_child[1]);
    stdin_ = to_child[1];
    stdout_ = from_child[0];
    if (!spawned) pid_ = 0;
    return spawned;
  }

  std::string ReadLine(std::chrono::milliseconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    std::string line;
    while (!line.ends_with('\n')) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      pollfd entry{.fd = stdout_, .events = POLLIN, .revents = 0};
      if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) <= 0) break;
      char byte = 0;
      if (::read(stdout_, &byte, 1) != 1) break;
      line += byte;
    }
    return line;
  }

  void End(int signal) {
    if (const pid_t pid = std::exchange(pid_, 0); pid > 0) {
      ::kill(pid, signal);
      ::kill(pid, SIGCONT);  // it may have been frozen
      ::waitpid(pid, nullptr, 0);
    }
    for (int* fd : {&stdin_, &stdout_}) {
      if (*fd >= 0) ::close(std::exchange(*fd, -1));
    }
  }

  pid_t pid_ = 0;
  int stdin_ = -1;   // the child ends when this closes
  int stdout_ = -1;  // kept open: the child must not fail when it writes
  std::string url_;
};

}  // namespace moonpool::testing

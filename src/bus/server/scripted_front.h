// ScriptedFront: a bus for tests of the doors. Answers what the test says, remembers what it was asked, and can hold
// Prepares until the test lets them go. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "bus/server/bus_front.h"

namespace moonpool::testing {

class ScriptedFront final : public bus::BusFront {
 public:
  Result<bus::LookupReply> Lookup(const bus::PromptRequest& request) override {
    MutexLock lock(mutex_);
    last_ = request;
    if (failure_) return Fail(*failure_);
    bus::LookupReply reply;
    reply.decision = bus::Decision::kRestore;
    reply.reason = "hit";
    reply.prompt_tokens = request.tokens.size();
    return reply;
  }

  // While held: waits until Let() or until the caller has gone. Asks `cancelled` often, as the core does.
  Result<bus::PrepareReply> Prepare(const bus::PromptRequest& request,
                                    const std::function<bool()>& cancelled) override {
    MutexLock lock(mutex_);
    last_ = request;
    ++waiting_;
    changed_.NotifyAll();
    while (held_ && !cancelled()) changed_.WaitFor(mutex_, std::chrono::milliseconds(2));
    --waiting_;
    if (cancelled()) ++cancelled_;
    changed_.NotifyAll();
    if (failure_) return Fail(*failure_);
    bus::PrepareReply reply;
    reply.decision = bus::Decision::kLead;
    reply.reason = "cold";
    reply.slot = 1;
    reply.ticket = "ticket-1";
    reply.tokens = request.tokens;
    return reply;
  }

  Result<bus::CommitReply> Commit(const bus::CommitRequest& request) override {
    MutexLock lock(mutex_);
    commits_.push_back(request);
    bus::CommitReply reply;
    reply.status = bus::CommitStatus::kAccepted;
    reply.reason = "accepted";
    return reply;
  }
  bus::ReleaseReply Release(const std::string& ticket) override { return {.released = ticket == "ticket-1"}; }
  Result<bus::EngineStatus> Probe(const std::string& engine, std::optional<uint32_t>) override {
    bus::EngineStatus status;
    status.name = engine;
    status.state = "ready";
    return status;
  }
  bool Ready() const override {
    MutexLock lock(mutex_);
    return ready_;
  }
  std::vector<bus::EngineStatus> Engines() const override {
    MutexLock lock(mutex_);
    return engines_;
  }
  bus::BusCounts Counts() const override { return {}; }
  Result<bus::StoreStats> Store() const override { return bus::StoreStats{}; }

  void Hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void Let() {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  // Blocks until so many Prepares wait inside.
  void AwaitWaiting(int count) {
    MutexLock lock(mutex_);
    while (waiting_ != count) changed_.WaitFor(mutex_, std::chrono::milliseconds(2));
  }
  void AwaitCancelled(int count) {
    MutexLock lock(mutex_);
    while (cancelled_ < count) changed_.WaitFor(mutex_, std::chrono::milliseconds(2));
  }
  void FailWith(Error error) {
    MutexLock lock(mutex_);
    failure_ = std::move(error);
  }
  void SetReady(bool ready) {
    MutexLock lock(mutex_);
    ready_ = ready;
  }
  void SetEngines(std::vector<bus::EngineStatus> engines) {
    MutexLock lock(mutex_);
    engines_ = std::move(engines);
  }
  bus::PromptRequest last() const {
    MutexLock lock(mutex_);
    return last_;
  }
  std::vector<bus::CommitRequest> commits() const {
    MutexLock lock(mutex_);
    return commits_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool held_ GUARDED_BY(mutex_) = false;
  bool ready_ GUARDED_BY(mutex_) = true;
  int waiting_ GUARDED_BY(mutex_) = 0;
  int cancelled_ GUARDED_BY(mutex_) = 0;
  std::optional<Error> failure_ GUARDED_BY(mutex_);
  bus::PromptRequest last_ GUARDED_BY(mutex_);
  std::vector<bus::CommitRequest> commits_ GUARDED_BY(mutex_);
  std::vector<bus::EngineStatus> engines_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::testing

// Committer: Commit and Release. Counts what completions report, judges promises, and publishes slots in the
// background within a budget. A Commit never sits in a reply's path unless its caller asks to wait.
#pragma once

#include <memory>
#include <string>

#include "base/mutex.h"
#include "bus/core/bus_owners.h"
#include "bus/core/bus_types.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class Committer {
 public:
  explicit Committer(BusOwners& owners) : owners_(owners) {}

  CommitReply Commit(const CommitRequest& request);
  ReleaseReply Release(const std::string& ticket);

  // Ends tickets whose time is over, with their flights.
  void Expire();
  // Waits until no commit is queued or running; false if the deadline came first.
  bool AwaitIdle(const Deadline& deadline) EXCLUDES(mutex_);

 private:
  struct Job {
    CommitRequest request;
    Ticket ticket;
    SessionRef session;
    ProfileRef profile;
    PhaseTimes times;
    std::optional<SavedSlot> saved;
  };
  using JobRef = std::shared_ptr<Job>;

  void CountEvaluation(const CommitRequest& request, const Ticket& ticket);
  // What is known before anything is saved: the answer if there is nothing to save, or nothing.
  std::optional<CommitReply> SkipEarly(const Job& job);
  // Looks at the slot: judges the promise, remembers what the slot holds.
  Result<uint64_t> LookAtSlot(const Job& job);
  CommitReply SaveNow(const JobRef& job);
  CommitReply PublishNow(const JobRef& job);
  // The slot is free again (or kept), and the flight ends if nothing will be published.
  void EndSave(const Job& job, bool published_later);
  CommitReply Answer(CommitStatus status, std::string reason, std::string detail) const;
  void Count(const CommitReply& reply, const PhaseTimes& times);
  bool TakePermit() EXCLUDES(mutex_);
  void ReturnPermit() EXCLUDES(mutex_);

  BusOwners& owners_;
  Mutex mutex_;
  CondVar idle_;
  uint32_t running_ GUARDED_BY(mutex_) = 0;  // queued or running
};

}  // namespace moonpool::bus

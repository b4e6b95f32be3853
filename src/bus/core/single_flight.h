// SingleFlight: of agents that arrive together on a cold prefix one leads and the others wait for its prefill
// (decision 11). A flight is a leader's promise to publish the blocks of its prompt; it lands when they are
// visible, and is abandoned when the leader is gone. Owner of all flights of one bus.
//
// Thread-safe (one leaf mutex). Waiting is bounded by the caller's deadline and by what waiting is worth.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "bus/keys/block_key.h"

namespace moonpool::bus {

// What the waiters may know of a leader.
struct FlightLeader {
  std::string ticket;
  std::string engine;
  uint32_t slot = 0;
  std::optional<Duration> recompute;  // estimated time of its prefill; none without samples
};

class SingleFlight {
 public:
  enum class Outcome { kLanded, kLeaderGone, kTimedOut, kCancelled };
  enum class LeaderSeen { kBusy, kIdle, kGone };

  // Asks whether a leader's slot works, is idle, or its engine is gone. Called without the lock.
  using LookAtLeader = std::function<LeaderSeen(const FlightLeader&)>;

  struct Flight;
  using FlightRef = std::shared_ptr<Flight>;

  explicit SingleFlight(const Clock& clock) : clock_(clock) {}

  // A flight that will bring at least one block more than the `stored_blocks` that are there, or nothing.
  FlightRef Find(std::span<const BlockKey> keys, size_t stored_blocks) EXCLUDES(mutex_);
  // As Find, but if there is none, `leader` leads from now on for `keys` and the answer is null.
  FlightRef FindOrLead(std::vector<BlockKey> keys, size_t stored_blocks, FlightLeader leader) EXCLUDES(mutex_);

  struct WaitLimits {
    Duration wait_max;     // of this caller
    Duration leader_idle;  // a leader's slot idle for so long without a Commit: it is gone
    Duration look_every = std::chrono::milliseconds(250);
  };
  // Waits until the flight ends; kTimedOut after limits.wait_max, or when twice the leader's recompute time has
  // passed since it started.
  Outcome Await(const FlightRef& flight, const WaitLimits& limits, const LookAtLeader& look,
                const std::function<bool()>& cancelled) EXCLUDES(mutex_);

  // The leader's Commit has begun: an idle slot no longer means that it is gone.
  void Committing(const std::string& ticket) EXCLUDES(mutex_);
  // The blocks are visible. / They will not come. Both end the flight, if the ticket leads one.
  void Land(const std::string& ticket) EXCLUDES(mutex_);
  void Abandon(const std::string& ticket) EXCLUDES(mutex_);
  bool Leads(const std::string& ticket) const EXCLUDES(mutex_);
  size_t flights() const EXCLUDES(mutex_);

 private:
  FlightRef FindLocked(std::span<const BlockKey> keys, size_t stored_blocks) REQUIRES(mutex_);
  void End(const std::string& ticket, Outcome outcome) REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::list<FlightRef> flights_ GUARDED_BY(mutex_);  // a handful; bounded by the number of slots
};

}  // namespace moonpool::bus

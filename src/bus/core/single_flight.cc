#include "bus/core/single_flight.h"

#include <algorithm>

namespace moonpool::bus {

// All fields but the constant ones are guarded by SingleFlight::mutex_.
struct SingleFlight::Flight {
  const FlightLeader leader;
  const std::vector<BlockKey> keys;
  const TimePoint started;
  std::optional<Outcome> outcome;
  std::optional<TimePoint> idle_since;
  TimePoint looked;  // when somebody last asked after the leader
  bool committing = false;

  Flight(FlightLeader leader_in, std::vector<BlockKey> keys_in, TimePoint now)
      : leader(std::move(leader_in)), keys(std::move(keys_in)), started(now), looked(now) {}
};

SingleFlight::FlightRef SingleFlight::FindLocked(std::span<const BlockKey> keys, size_t stored_blocks) {
  // Keys are chained: the leader's prompt shares the first n blocks exactly if its n-th key is ours.
  if (keys.size() <= stored_blocks) return nullptr;
  for (const FlightRef& flight : flights_) {
    if (flight->keys.size() > stored_blocks && flight->keys[stored_blocks] == keys[stored_blocks]) return flight;
  }
  return nullptr;
}

SingleFlight::FlightRef SingleFlight::Find(std::span<const BlockKey> keys, size_t stored_blocks) {
  MutexLock lock(mutex_);
  return FindLocked(keys, stored_blocks);
}

SingleFlight::FlightRef SingleFlight::FindOrLead(std::vector<BlockKey> keys, size_t stored_blocks,
                                                 FlightLeader leader) {
  MutexLock lock(mutex_);
  if (FlightRef found = FindLocked(keys, stored_blocks)) return found;
  flights_.push_back(std::make_shared<Flight>(std::move(leader), std::move(keys), clock_.Now()));
  return nullptr;
}

SingleFlight::Outcome SingleFlight::Await(const FlightRef& flight, const WaitLimits& limits, const LookAtLeader& look,
                                          const std::function<bool()>& cancelled) {
  TimePoint until = clock_.Now() + limits.wait_max;
  if (flight->leader.recompute) until = std::min(until, flight->started + 2 * *flight->leader.recompute);
  while (true) {
    bool look_now = false;
    {
      MutexLock lock(mutex_);
      if (flight->outcome) return *flight->outcome;
      const TimePoint now = clock_.Now();
      if (now >= until) return Outcome::kTimedOut;
      if (!flight->committing && now - flight->looked >= limits.look_every) {
        flight->looked = now;  // one waiter looks for all
        look_now = true;
      } else {
        clock_.WaitUntil(changed_, mutex_, std::min(until, now + limits.look_every));
      }
    }
    if (cancelled && cancelled()) return Outcome::kCancelled;
    if (!look_now) continue;

    const LeaderSeen seen = look(flight->leader);
    MutexLock lock(mutex_);
    if (flight->outcome || flight->committing) continue;
    const TimePoint now = clock_.Now();
    if (seen == LeaderSeen::kBusy) flight->idle_since.reset();
    if (seen == LeaderSeen::kIdle && !flight->idle_since) flight->idle_since = now;
    const bool idle_too_long = flight->idle_since && now - *flight->idle_since >= limits.leader_idle;
    if (seen == LeaderSeen::kGone || idle_too_long) End(flight->leader.ticket, Outcome::kLeaderGone);
  }
}

void SingleFlight::Committing(const std::string& ticket) {
  MutexLock lock(mutex_);
  for (const FlightRef& flight : flights_) {
    if (flight->leader.ticket == ticket) flight->committing = true;
  }
}

void SingleFlight::Land(const std::string& ticket) {
  MutexLock lock(mutex_);
  End(ticket, Outcome::kLanded);
}

void SingleFlight::Abandon(const std::string& ticket) {
  MutexLock lock(mutex_);
  End(ticket, Outcome::kLeaderGone);
}

void SingleFlight::End(const std::string& ticket, Outcome outcome) {
  flights_.remove_if([&](const FlightRef& flight) {
    if (flight->leader.ticket != ticket) return false;
    flight->outcome = outcome;
    return true;
  });
  changed_.NotifyAll();
}

bool SingleFlight::Leads(const std::string& ticket) const {
  MutexLock lock(mutex_);
  return std::any_of(flights_.begin(), flights_.end(),
                     [&](const FlightRef& flight) { return flight->leader.ticket == ticket; });
}

size_t SingleFlight::flights() const {
  MutexLock lock(mutex_);
  return flights_.size();
}

}  // namespace moonpool::bus

// EngineSession: the bus's side of one inference server: whether it can be reached, what it is, what its slots are
// known to hold, which of them are in doubt. Owner of that state. Thread-safe; no lock is held across a call to
// the server.
//
// States: unreachable -> probing -> ready; bypass (reachable, but the bus does not serve it, with a reason);
// suspect (it refused a restore: nothing is restored until an erase succeeded and a new canary proved it sane);
// given_up (probing failed probe_attempts_max times; tried again at the longest interval).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "bus/core/bus_config.h"
#include "bus/core/canary_probe.h"
#include "bus/core/engine_profile.h"
#include "bus/core/slot_tickets.h"
#include "bus/engine/inference_engine.h"

namespace moonpool::bus {

using ProfileRef = std::shared_ptr<const EngineProfile>;

// Tokens a slot held when the bus last knew, and the server's task number then.
struct Residency {
  std::shared_ptr<const TicketPrompt> prompt;
  uint64_t task = 0;
};

enum class SessionState { kUnreachable, kProbing, kReady, kBypass, kSuspect, kGivenUp };
std::string_view SessionStateName(SessionState state);

class EngineSession {
 public:
  EngineSession(const BusConfig& config, EngineConfig engine_config, std::unique_ptr<InferenceEngine> engine,
                FileSystem& files, const Clock& clock, SlotTickets& tickets, EngineNotes& notes);

  const EngineConfig& config() const { return engine_config_; }
  InferenceEngine& engine() { return *engine_; }

  struct Status {
    SessionState state = SessionState::kUnreachable;
    std::string reason;  // a bounded word: "not_probed", "unreachable", "restarted", ...
    std::string detail;
    ProfileRef profile;
    EngineProps props;
    uint64_t restarts_seen = 0;
  };
  Status GetStatus() const EXCLUDES(mutex_);
  // Probed or given up, or not there: what /readyz waits for.
  bool Settled() const EXCLUDES(mutex_);

  // The profile, after asking the server whether it is still the process that was probed and has the same
  // adapters. An error names the reason for a bypass in its message's first word.
  Result<ProfileRef> Current(const Deadline& deadline) EXCLUDES(mutex_);

  // Asks again: kFailedPrecondition unless the server is still the process, model and adapters of `profile`. What a
  // server computed or saved counts only if this holds before and after.
  Result<void> Confirm(const EngineProfile& profile, const Deadline& deadline) EXCLUDES(mutex_);

  // Health, restarts, doubts; true if a probe is due and should be run (ProbeNow) by some executor.
  bool Tick() EXCLUDES(mutex_);
  // Probes on an idle, empty slot, or on `slot` whatever it holds.
  Result<void> ProbeNow(CanaryProbe& probe, std::optional<uint32_t> slot) EXCLUDES(mutex_);

  // Whether the files that the profile's digest was taken of are still what the server loaded.
  Result<bool> ModelUntouched(const EngineProfile& profile) const;

  void BecomeSuspect(const std::string& detail) EXCLUDES(mutex_);

  // A slot whose last action timed out: the server may still carry it out. Out of use until erased; `late_file`
  // is what a late save would write, removed then.
  void Doubt(uint32_t slot, const Path& late_file = {}) EXCLUDES(mutex_);
  bool InDoubt(uint32_t slot) const EXCLUDES(mutex_);

  void Remember(uint32_t slot, Residency residency) EXCLUDES(mutex_);
  void Forget(uint32_t slot) EXCLUDES(mutex_);
  std::optional<Residency> Resident(uint32_t slot) const EXCLUDES(mutex_);

  // The namespace that a slot was last given to since the server's start, if any.
  void SetTenant(uint32_t slot, const std::string& name_space) EXCLUDES(mutex_);
  std::optional<std::string> Tenant(uint32_t slot) const EXCLUDES(mutex_);

  // How long slot actions waited for the server's loop while it was busy, smoothed; milliseconds.
  void ObserveServerWait(double milliseconds) EXCLUDES(mutex_);
  double ServerWaitMs() const EXCLUDES(mutex_);

 private:
  void SetState(SessionState state, std::string reason, std::string detail) REQUIRES(mutex_);
  void ProbeFailed(const Error& error) EXCLUDES(mutex_);
  void LookFailed(const Error& error) EXCLUDES(mutex_);
  void SawIncarnation(const EngineProps& props) EXCLUDES(mutex_);
  void EraseDoubtful() EXCLUDES(mutex_);

  const BusConfig& config_;
  const EngineConfig engine_config_;
  const std::unique_ptr<InferenceEngine> engine_;
  FileSystem& files_;
  const Clock& clock_;
  SlotTickets& tickets_;
  EngineNotes& notes_;

  mutable Mutex mutex_;
  SessionState state_ GUARDED_BY(mutex_) = SessionState::kUnreachable;
  std::string reason_ GUARDED_BY(mutex_) = "not_probed";
  std::string detail_ GUARDED_BY(mutex_);
  ProfileRef profile_ GUARDED_BY(mutex_);
  // The model as it was when the present server process was first probed: what it computes with, whatever is
  // written to the file later (field report B02).
  std::optional<LoadedModel> loaded_ GUARDED_BY(mutex_);
  EngineProps props_ GUARDED_BY(mutex_);
  uint64_t restarts_seen_ GUARDED_BY(mutex_) = 0;
  uint32_t attempts_ GUARDED_BY(mutex_) = 0;
  bool probing_ GUARDED_BY(mutex_) = false;
  bool contacted_ GUARDED_BY(mutex_) = false;  // at least one answer or refusal since the start
  TimePoint next_try_ GUARDED_BY(mutex_){};
  TimePoint next_check_ GUARDED_BY(mutex_){};
  Duration backoff_ GUARDED_BY(mutex_);                                // between looks at a server that is away
  Duration probe_backoff_ GUARDED_BY(mutex_);                          // between attempts to probe
  std::map<uint32_t, std::vector<Path>> doubtful_ GUARDED_BY(mutex_);  // with the files of late saves
  std::map<uint32_t, Residency> resident_ GUARDED_BY(mutex_);
  std::map<uint32_t, std::string> tenants_ GUARDED_BY(mutex_);
  double server_wait_ms_ GUARDED_BY(mutex_) = 0;
};

}  // namespace moonpool::bus

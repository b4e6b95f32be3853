#include "bus/core/engine_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace moonpool::bus {
namespace {

constexpr Duration kHealthEvery = std::chrono::seconds(1);

bool SameAdapters(const std::vector<LoraAdapter>& a, const std::vector<LoraAdapter>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const LoraAdapter& x, const LoraAdapter& y) { return x.path == y.path && x.scale == y.scale; });
}

}  // namespace

std::string_view SessionStateName(SessionState state) {
  switch (state) {
    case SessionState::kUnreachable: return "unreachable";
    case SessionState::kProbing: return "probing";
    case SessionState::kReady: return "ready";
    case SessionState::kBypass: return "bypass";
    case SessionState::kSuspect: return "suspect";
    case SessionState::kGivenUp: return "given_up";
  }
  return "unreachable";
}

EngineSession::EngineSession(const BusConfig& config, EngineConfig engine_config,
                             std::unique_ptr<InferenceEngine> engine, FileSystem& files, const Clock& clock,
                             SlotTickets& tickets, EngineNotes& notes)
    : config_(config),
      engine_config_(std::move(engine_config)),
      engine_(std::move(engine)),
      files_(files),
      clock_(clock),
      tickets_(tickets),
      notes_(notes),
      backoff_(config.engine_backoff_min),
      probe_backoff_(config.engine_backoff_min) {}

EngineSession::Status EngineSession::GetStatus() const {
  MutexLock lock(mutex_);
  return {state_, reason_, detail_, profile_, props_, restarts_seen_};
}

bool EngineSession::Settled() const {
  MutexLock lock(mutex_);
  switch (state_) {
    case SessionState::kReady:
    case SessionState::kGivenUp: return true;
    case SessionState::kUnreachable: return contacted_;
    case SessionState::kProbing:
    case SessionState::kBypass:
    case SessionState::kSuspect: return false;
  }
  return false;
}

void EngineSession::SetState(SessionState state, std::string reason, std::string detail) {
  if (state_ != state || reason_ != reason) {
    log::Info("engine_state_changed engine={} state={} reason={} detail=\"{}\"", engine_config_.name,
              SessionStateName(state), reason, detail);
  }
  state_ = state;
  reason_ = std::move(reason);
  detail_ = std::move(detail);
}

Result<ProfileRef> EngineSession::Current(const Deadline& deadline) {
  ProfileRef profile;
  {
    MutexLock lock(mutex_);
    if (state_ != SessionState::kReady) return Fail(ErrorCode::kFailedPrecondition, reason_ + ": " + detail_);
    profile = profile_;
  }
  const auto props = engine_->Props(deadline);
  if (!props) {
    MutexLock lock(mutex_);
    contacted_ = true;
    if (props.error().code == ErrorCode::kUnavailable) {
      SetState(SessionState::kUnreachable, "unreachable", props.error().message);
      next_check_ = clock_.Now();
    }
    return Fail(ErrorCode::kUnavailable, "unreachable: " + props.error().message);
  }
  if (props->incarnation != profile->incarnation) {
    SawIncarnation(*props);
    return Fail(ErrorCode::kFailedPrecondition, "restarted: the server was started anew and is not probed yet");
  }
  // A model written over in place is another one; half of it may be what the server computes with by now.
  const auto untouched = ModelUntouched(*profile);
  if (!untouched) return Fail(ErrorCode::kFailedPrecondition, "model_unseen: " + untouched.error().message);
  if (!*untouched) {
    MutexLock lock(mutex_);
    profile_.reset();
    next_try_ = clock_.Now();
    SetState(SessionState::kBypass, "model_changed", "the model's file is not the one that the server loaded");
    return Fail(ErrorCode::kFailedPrecondition, reason_ + ": " + detail_);
  }
  // Scales can be changed by anybody at any time; a server without adapters cannot get any.
  if (!profile->adapters.empty()) {
    const auto adapters = engine_->LoraAdapters(deadline);
    if (!adapters || !SameAdapters(*adapters, profile->adapters)) {
      MutexLock lock(mutex_);
      profile_.reset();
      SetState(SessionState::kProbing, "not_probed", "the LoRA adapters or their scales have changed");
      next_try_ = clock_.Now();
      return Fail(ErrorCode::kFailedPrecondition, reason_ + ": " + detail_);
    }
  }
  return profile;
}

Result<void> EngineSession::Confirm(const EngineProfile& profile, const Deadline& deadline) {
  const auto current = Current(deadline.AtMost(config_.engine_call_timeout));
  if (!current) return Fail(ErrorCode::kFailedPrecondition, current.error().message);
  const bool same =
      (*current)->incarnation == profile.incarnation && (*current)->fingerprint_id == profile.fingerprint_id;
  if (!same) return Fail(ErrorCode::kFailedPrecondition, "restarted: the server was started anew meanwhile");
  return {};
}

Result<bool> EngineSession::ModelUntouched(const EngineProfile& profile) const {
  const auto now = StampsOf(files_, profile.model.shards);
  if (now) return *now == profile.model_stamps;
  if (now.error().code == ErrorCode::kNotFound) return false;
  return Fail(now.error());
}

void EngineSession::SawIncarnation(const EngineProps& props) {
  {
    MutexLock lock(mutex_);
    if (profile_ && profile_->incarnation != props.incarnation) {
      ++restarts_seen_;
      log::Info("engine_restarted engine={}", engine_config_.name);
    }
    profile_.reset();
    props_ = props;
    resident_.clear();
    tenants_.clear();
    doubtful_.clear();
    attempts_ = 0;
    probe_backoff_ = config_.engine_backoff_min;
    next_try_ = clock_.Now();
    SetState(SessionState::kProbing, "not_probed", "waiting for an idle, empty slot to probe");
  }
  tickets_.DropEngine(engine_config_.name);
}

bool EngineSession::Tick() {
  bool due = false;
  {
    MutexLock lock(mutex_);
    due = clock_.Now() >= next_check_;
    // Whatever comes, not again at once; a look that fails sets a longer pause.
    if (due) next_check_ = clock_.Now() + kHealthEvery;
  }
  if (due) {
    const Deadline deadline(clock_, config_.engine_call_timeout);
    const auto healthy = engine_->Health(deadline);
    auto props = healthy ? engine_->Props(deadline) : Result<EngineProps>(Fail(healthy.error()));
    if (!props) {
      LookFailed(props.error());
      return false;
    }
    bool changed = false;
    {
      MutexLock lock(mutex_);
      contacted_ = true;
      const bool known = profile_ && profile_->incarnation == props->incarnation;
      const bool waiting = !profile_ && props_.incarnation == props->incarnation;
      if (known && state_ == SessionState::kUnreachable) {
        SetState(SessionState::kReady, "", "");  // it was only away from us
      } else if (waiting && state_ == SessionState::kUnreachable) {
        changed = true;
      }
      backoff_ = config_.engine_backoff_min;
      changed = changed || (!known && !waiting);
    }
    if (changed) SawIncarnation(*props);
    EraseDoubtful();
  }
  MutexLock lock(mutex_);
  const bool wants_probe = state_ == SessionState::kProbing || state_ == SessionState::kBypass ||
                           state_ == SessionState::kSuspect || state_ == SessionState::kGivenUp;
  // One that never told what it is has nothing to probe.
  return wants_probe && !props_.incarnation.empty() && !probing_ && clock_.Now() >= next_try_;
}

void EngineSession::LookFailed(const Error& error) {
  MutexLock lock(mutex_);
  contacted_ = true;
  backoff_ = std::min(backoff_ * 2, config_.engine_backoff_max);
  next_check_ = clock_.Now() + backoff_;
  switch (error.code) {
    case ErrorCode::kUnavailable: SetState(SessionState::kUnreachable, "unreachable", error.message); return;
    case ErrorCode::kPermission: SetState(SessionState::kGivenUp, "no_permission", error.message); return;
    case ErrorCode::kUnsupported: SetState(SessionState::kGivenUp, "unsupported", error.message); return;
    case ErrorCode::kDeadlineExceeded:
      // A busy server may be slow to answer; one that never did has not been reached.
      if (!profile_) SetState(SessionState::kUnreachable, "unreachable", error.message);
      return;
    default:
      if (!profile_) SetState(SessionState::kGivenUp, "bad_answers", error.message);
  }
}

void EngineSession::EraseDoubtful() {
  std::map<uint32_t, std::vector<Path>> doubtful;
  {
    MutexLock lock(mutex_);
    doubtful = doubtful_;
  }
  for (const auto& [slot, late_files] : doubtful) {
    if (tickets_.Owned(engine_config_.name, slot)) continue;
    // Actions are carried out in order: when the erase is answered, the doubtful one is over.
    if (!engine_->EraseSlot(slot, Deadline(clock_, config_.engine_call_timeout))) continue;
    for (const Path& path : late_files) (void)files_.Remove(path);
    MutexLock lock(mutex_);
    doubtful_.erase(slot);
  }
}

Result<void> EngineSession::ProbeNow(CanaryProbe& probe, std::optional<uint32_t> wanted_slot) {
  std::optional<LoadedModel> loaded;
  bool suspect = false;
  {
    MutexLock lock(mutex_);
    loaded = loaded_;
    if (probing_) return Fail(ErrorCode::kBusy, "a probe of this engine is running");
    probing_ = true;
    suspect = state_ == SessionState::kSuspect;
  }
  const Deadline deadline(clock_, config_.probe_timeout);
  const auto run = [&]() -> Result<EngineProfile> {
    MP_ASSIGN_OR_RETURN(const EngineProps props, engine_->Props(deadline.AtMost(config_.engine_call_timeout)));
    // A suspect server is the same process as before; only a canary tells whether it is sane.
    if (!wanted_slot && !suspect) {
      if (const auto note = notes_.Find(engine_config_.url, props.incarnation)) {
        auto adopted = probe.Adopt(*engine_, engine_config_, props, *note, deadline);
        if (adopted) return adopted;
        log::Info("engine_note_refused engine={} reason=\"{}\"", engine_config_.name, adopted.error().message);
      }
    }
    MP_ASSIGN_OR_RETURN(const auto slots, engine_->Slots(deadline.AtMost(config_.engine_call_timeout)));
    if (wanted_slot && *wanted_slot >= props.total_slots) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("slot {} is out of range: the server has {}", *wanted_slot, props.total_slots));
    }
    for (const SlotInfo& slot : slots) {
      const bool usable = !slot.processing && slot.tokens_cached == 0;
      if (wanted_slot ? slot.id != *wanted_slot : !usable) continue;
      Ticket ticket;
      ticket.engine = engine_config_.name;
      ticket.slot = slot.id;
      const auto held = tickets_.Take(ticket, config_.probe_timeout);
      if (!held) continue;
      bool slot_erased = true;
      auto profile = probe.Run(*engine_, engine_config_, props, loaded, slot.id, deadline, slot_erased);
      if (!slot_erased) Doubt(slot.id);  // or it would never be empty enough for the next probe
      tickets_.Release(*held);
      if (!profile) return profile;
      MP_ASSIGN_OR_RETURN(const EngineProps after, engine_->Props(deadline.AtMost(config_.engine_call_timeout)));
      if (after.incarnation != props.incarnation) {
        return Fail(ErrorCode::kFailedPrecondition, "the server was started anew during the probe");
      }
      return profile;
    }
    return Fail(ErrorCode::kBusy, wanted_slot ? fmt::format("slot {} is in use by a ticket", *wanted_slot)
                                              : "no slot is idle and empty; `moonpool ctl probe ENGINE --slot N` "
                                                "gives up what slot N holds");
  };
  auto profile = run();
  if (!profile) {
    ProbeFailed(profile.error());
    return Fail(profile.error());
  }
  notes_.Keep(engine_config_.url, NoteOf(*profile));
  MutexLock lock(mutex_);
  probing_ = false;
  attempts_ = 0;
  probe_backoff_ = config_.engine_backoff_min;
  resident_.clear();
  profile_ = std::make_shared<const EngineProfile>(std::move(*profile));
  loaded_ = {profile_->incarnation, profile_->fingerprint.declared.model_digest};
  SetState(SessionState::kReady, "", "");
  log::Info("engine_probed engine={} fingerprint={} {}", engine_config_.name, profile_->fingerprint_hex.substr(0, 16),
            profile_->fingerprint.Describe());
  return {};
}

void EngineSession::ProbeFailed(const Error& error) {
  MutexLock lock(mutex_);
  probing_ = false;
  ++attempts_;
  probe_backoff_ = std::min(probe_backoff_ * 2, config_.engine_backoff_max);
  next_try_ = clock_.Now() + probe_backoff_;
  if (error.code == ErrorCode::kUnavailable) {
    SetState(SessionState::kUnreachable, "unreachable", error.message);
    next_check_ = clock_.Now() + probe_backoff_;
    return;
  }
  // That no slot is free for another try says less than why the first one failed.
  if (error.code == ErrorCode::kBusy && state_ != SessionState::kProbing && reason_ != "not_probed") {
    if (attempts_ >= config_.probe_attempts_max && state_ == SessionState::kBypass) state_ = SessionState::kGivenUp;
    return;
  }
  const char* reason = error.message.starts_with("model_changed: ")   ? "model_changed"
                       : error.code == ErrorCode::kBusy               ? "not_probed"
                       : error.code == ErrorCode::kFailedPrecondition ? "not_probed"
                       : error.code == ErrorCode::kUnsupported        ? "unsupported"
                       : error.code == ErrorCode::kQuota              ? "canary_families_full"
                       : error.code == ErrorCode::kPermission         ? "no_permission"
                                                                      : "probe_failed";
  // A suspect engine stays suspect until a probe has proved it sane.
  const SessionState state = state_ == SessionState::kSuspect          ? SessionState::kSuspect
                             : attempts_ >= config_.probe_attempts_max ? SessionState::kGivenUp
                                                                       : SessionState::kBypass;
  SetState(state, reason, error.message);
}

void EngineSession::BecomeSuspect(const std::string& detail) {
  MutexLock lock(mutex_);
  attempts_ = 0;
  next_try_ = clock_.Now();
  resident_.clear();
  SetState(SessionState::kSuspect, "suspect", detail);
}

void EngineSession::Doubt(uint32_t slot, const Path& late_file) {
  MutexLock lock(mutex_);
  std::vector<Path>& late_files = doubtful_[slot];
  if (!late_file.empty()) late_files.push_back(late_file);
  resident_.erase(slot);
}

bool EngineSession::InDoubt(uint32_t slot) const {
  MutexLock lock(mutex_);
  return doubtful_.contains(slot);
}

void EngineSession::Remember(uint32_t slot, Residency residency) {
  MutexLock lock(mutex_);
  resident_[slot] = std::move(residency);
}

void EngineSession::Forget(uint32_t slot) {
  MutexLock lock(mutex_);
  resident_.erase(slot);
}

std::optional<Residency> EngineSession::Resident(uint32_t slot) const {
  MutexLock lock(mutex_);
  const auto found = resident_.find(slot);
  if (found == resident_.end()) return std::nullopt;
  return found->second;
}

void EngineSession::SetTenant(uint32_t slot, const std::string& name_space) {
  MutexLock lock(mutex_);
  tenants_[slot] = name_space;
}

std::optional<std::string> EngineSession::Tenant(uint32_t slot) const {
  MutexLock lock(mutex_);
  const auto found = tenants_.find(slot);
  if (found == tenants_.end()) return std::nullopt;
  return found->second;
}

void EngineSession::ObserveServerWait(double milliseconds) {
  MutexLock lock(mutex_);
  server_wait_ms_ = server_wait_ms_ == 0 ? milliseconds : 0.7 * server_wait_ms_ + 0.3 * milliseconds;
}

double EngineSession::ServerWaitMs() const {
  MutexLock lock(mutex_);
  return server_wait_ms_;
}

}  // namespace moonpool::bus

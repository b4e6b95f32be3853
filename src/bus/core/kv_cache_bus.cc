#include "bus/core/kv_cache_bus.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/log.h"
#include "bus/core/bus_owners.h"
#include "bus/core/committer.h"
#include "bus/core/preparer.h"

namespace moonpool::bus {

class KvCacheBus::State {
 public:
  State(BusConfig config, Seams seams_in)
      : seams(std::move(seams_in)),
        owners(std::move(config), seams.files, seams.clock, seams.rng, seams.executor, seams.store),
        preparer(owners),
        committer(owners),
        notes(seams.files, seams.rng, owners.config.engine_notes),
        probe(owners.config, {seams.files, seams.clock, seams.rng, seams.store, seams.digests}) {
    owners.finder.Rebuild();
  }

  const Seams seams;
  BusOwners owners;
  Preparer preparer;
  Committer committer;
  EngineNotes notes;
  CanaryProbe probe;
  std::atomic<bool> draining = false;
  Mutex mutex;
  CondVar looks_ended;
  std::set<const EngineSession*> looking GUARDED_BY(mutex);  // engines that a look or probe is under way at
  TimePoint store_tick GUARDED_BY(mutex){};
};

KvCacheBus::KvCacheBus(BusConfig config, Seams seams)
    : state_(std::make_unique<State>(std::move(config), std::move(seams))) {}

KvCacheBus::~KvCacheBus() {
  state_->draining = true;
  state_->committer.AwaitIdle(Deadline(state_->seams.clock, std::chrono::minutes(1)));
  MutexLock lock(state_->mutex);
  while (!state_->looking.empty()) state_->looks_ended.Wait(state_->mutex);
}

Result<void> KvCacheBus::Configure(const std::vector<EngineConfig>& engines) {
  BusOwners& owners = state_->owners;
  std::map<std::string, SessionRef> sessions;
  std::set<Path> slot_dirs;
  for (const EngineConfig& config : engines) {
    if (config.name.empty() || config.name.size() > 64) {
      return Fail(ErrorCode::kInvalidArgument, "an engine needs a name of 1 to 64 characters");
    }
    if (sessions.contains(config.name)) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("two engines are called '{}'", config.name));
    }
    if (config.slot_dir.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("engine '{}' needs its slot directory (the server's --slot-save-path)", config.name));
    }
    const SessionRef present = owners.engines.Find(config.name);
    if (present && present->config() == config) {
      sessions[config.name] = present;
      continue;
    }
    auto engine = state_->seams.make_engine(config);
    if (!engine) return Fail(WithContext(engine.error(), fmt::format("engine '{}'", config.name)));
    sessions[config.name] =
        std::make_shared<EngineSession>(owners.config, config, std::move(*engine), state_->seams.files,
                                        state_->seams.clock, owners.tickets, state_->notes);
  }
  for (const SessionRef& before : owners.engines.All()) {
    const auto after = sessions.find(before->config().name);
    if (after != sessions.end() && after->second == before) continue;
    for (const std::string& ended : owners.tickets.DropEngine(before->config().name)) owners.flights.Abandon(ended);
    log::Info("engine_removed engine={}", before->config().name);
  }
  owners.engines.Replace(std::move(sessions));
  return {};
}

Result<LookupReply> KvCacheBus::Lookup(const PromptRequest& request) { return state_->preparer.Lookup(request); }

Result<PrepareReply> KvCacheBus::Prepare(const PromptRequest& request, const std::function<bool()>& cancelled) {
  if (state_->draining) {
    PrepareReply reply;
    reply.reason = "draining";
    reply.detail = "the bus is shutting down";
    return reply;
  }
  return state_->preparer.Prepare(request, cancelled);
}

Result<CommitReply> KvCacheBus::Commit(const CommitRequest& request) {
  if (request.ticket.empty()) return Fail(ErrorCode::kInvalidArgument, "ticket is missing");
  if (request.timings && !(request.timings->prompt_ms >= 0)) {
    return Fail(ErrorCode::kInvalidArgument, "timings.prompt_ms must not be negative");
  }
  return state_->committer.Commit(request);
}

ReleaseReply KvCacheBus::Release(const std::string& ticket) { return state_->committer.Release(ticket); }

Result<EngineStatus> KvCacheBus::Probe(const std::string& engine, std::optional<uint32_t> slot) {
  const SessionRef session = state_->owners.engines.Find(engine);
  if (!session) return Fail(ErrorCode::kNotFound, fmt::format("there is no engine '{}'", engine));
  MP_RETURN_IF_ERROR(session->ProbeNow(state_->probe, slot));
  for (EngineStatus& status : Engines()) {
    if (status.name == engine) return status;
  }
  return Fail(ErrorCode::kNotFound, fmt::format("engine '{}' was removed meanwhile", engine));
}

void KvCacheBus::Tick() {
  BusOwners& owners = state_->owners;
  state_->committer.Expire();
  // A server that hangs keeps its own look waiting, and a large model takes minutes to hash: neither may hold up
  // the thread that ticks, or the other engines.
  for (const SessionRef& session : owners.engines.All()) {
    {
      MutexLock lock(state_->mutex);
      if (state_->draining || !state_->looking.insert(session.get()).second) continue;
    }
    const auto finished = [this, session] {
      MutexLock lock(state_->mutex);
      state_->looking.erase(session.get());
      state_->looks_ended.NotifyAll();
    };
    const bool posted = owners.executor.Post([this, session, finished] {
      if (session->Tick()) (void)session->ProbeNow(state_->probe, std::nullopt);
      finished();
    });
    if (!posted) finished();
  }
  {
    MutexLock lock(state_->mutex);
    if (state_->seams.clock.Now() < state_->store_tick) return;
    state_->store_tick = state_->seams.clock.Now() + std::chrono::seconds(10);
  }
  owners.store.Tick();
}

bool KvCacheBus::Ready() const {
  const auto sessions = state_->owners.engines.All();
  return std::all_of(sessions.begin(), sessions.end(), [](const SessionRef& session) { return session->Settled(); });
}

std::vector<EngineStatus> KvCacheBus::Engines() const {
  const BusOwners& owners = state_->owners;
  std::vector<EngineStatus> all;
  const auto tickets = owners.tickets.All();
  for (const SessionRef& session : owners.engines.All()) {
    const EngineSession::Status known = session->GetStatus();
    EngineStatus status;
    status.name = session->config().name;
    status.url = session->config().url;
    status.state = SessionStateName(known.state);
    status.reason = known.detail.empty() ? known.reason : known.reason + ": " + known.detail;
    status.total_slots = known.props.total_slots;
    status.context_tokens = known.props.context_tokens;
    status.restarts_seen = known.restarts_seen;
    status.tickets = static_cast<uint32_t>(std::count_if(
        tickets.begin(), tickets.end(), [&](const Ticket& ticket) { return ticket.engine == status.name; }));
    if (known.profile) {
      status.model = known.profile->model_name;
      status.fingerprint = known.profile->fingerprint_hex;
      status.describe = known.profile->fingerprint.Describe();
      status.memory_class = MemoryClassName(known.profile->memory);
      status.total_slots = known.profile->total_slots;
      status.context_tokens = known.profile->context_tokens;
      status.bytes_per_token = known.profile->bytes_per_token;
      const auto record = owners.ledger.Total(known.profile->fingerprint_hex, known.profile->build);
      status.promised_total = record.promised;
      status.kept_total = record.kept;
      status.restores_declined = record.broken_in_row >= owners.config.promises_broken_max;
      if (status.restores_declined) {
        status.reason = fmt::format(
            "promises_broken: of {} restores {} were of use to the server; "
            "every {}th request tries again",
            record.promised, record.kept, owners.config.promise_probe_every);
      }
    }
    all.push_back(std::move(status));
  }
  return all;
}

BusCounts KvCacheBus::Counts() const { return state_->owners.counters.Snapshot(); }

BlobStore& KvCacheBus::store() { return state_->seams.store; }

bool KvCacheBus::Drain(const Deadline& deadline) {
  state_->draining = true;
  return state_->committer.AwaitIdle(deadline);
}

}  // namespace moonpool::bus

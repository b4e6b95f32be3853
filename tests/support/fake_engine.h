// FakeEngine: an inference server in the test's process. Its slots hold token lists, its slot files are real state
// files (support/state_builder.h), its reuse is the common prefix; each verb can be made to fail, to answer late
// (the action is carried out, the caller is told that the time is over), or to wait for the test.
//
// Thread-safe. What it computes is a pure function of the tokens, so two fakes of one seed are one model.
#pragma once

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "bus/engine/inference_engine.h"
#include "bus/kvstate/sequence_state.h"
#include "support/state_builder.h"

namespace moonpool::testing {

// A server process: its slots go when it restarts. Shared by the FakeEngine handles that tests and the bus hold.
class FakeServer {
 public:
  struct Options {
    StateOptions state;  // version, types, streams, seed ...: what this server's files look like
    uint32_t slots = 1;
    uint32_t context_tokens = 100'000;
    Path slot_dir;
    std::string model_path;
    bool restores_are_useful = true;  // false: restore answers 200 and the completion evaluates everything (B16)
    double ms_per_token = 1;          // what its timings claim
  };

  explicit FakeServer(Options options) : options_(std::move(options)), slots_(options_.slots) {}

  // Scripts the next call of a verb ("props", "slots", "save", "restore", "erase", "complete", "tokenize",
  // "health"): the error is answered instead. `late` carries the action out all the same:
  // a restore at once, a save before the next erase.
  void FailNext(const std::string& verb, Error error, bool late = false) {
    MutexLock lock(mutex_);
    scripts_[verb].push_back({std::move(error), late});
  }
  void FailAlways(const std::string& verb, std::optional<Error> error) {
    MutexLock lock(mutex_);
    always_[verb] = std::move(error);
  }
  // Calls of the verb wait until Open(verb).
  void Hold(const std::string& verb) {
    MutexLock lock(mutex_);
    held_[verb] = true;
  }
  void Open(const std::string& verb) {
    MutexLock lock(mutex_);
    held_[verb] = false;
    changed_.NotifyAll();
  }
  // The next restore begins and does not end: its caller waits until its deadline, which `wait` is told so that a test
  // can let that time pass. Until FinishStalled() the server answers no slot action; then the restore happens.
  void StallNextRestore(std::function<void(const Deadline&)> wait) {
    MutexLock lock(mutex_);
    stall_ = std::move(wait);
  }
  void FinishStalled() {
    MutexLock lock(mutex_);
    if (!stalled_) return;
    slots_.at(stalled_->slot).tokens = std::move(stalled_->tokens);
    slots_.at(stalled_->slot).task = ++tasks_;
    stalled_.reset();
  }
  void AwaitCalls(const std::string& verb, int count) {
    MutexLock lock(mutex_);
    while (calls_[verb] < count) changed_.Wait(mutex_);
  }
  int Calls(const std::string& verb) {
    MutexLock lock(mutex_);
    return calls_[verb];
  }
  void Restart() {
    MutexLock lock(mutex_);
    StartAnew();
  }
  // The server process ends after the next call of the verb and another one takes its place.
  void RestartAfter(const std::string& verb) {
    MutexLock lock(mutex_);
    restart_after_ = verb;
  }
  void SetDown(bool down) {
    MutexLock lock(mutex_);
    down_ = down;
  }
  void SetBusy(uint32_t slot, bool busy) {
    MutexLock lock(mutex_);
    slots_.at(slot).busy = busy;
  }
  void SetRestoresUseful(bool useful) {
    MutexLock lock(mutex_);
    options_.restores_are_useful = useful;
  }
  void SetSeed(uint64_t seed) {
    MutexLock lock(mutex_);
    options_.state.seed = seed;
  }
  void SetAdapters(std::vector<bus::LoraAdapter> adapters) {
    MutexLock lock(mutex_);
    adapters_ = std::move(adapters);
  }
  // Files saved from now on begin with an image of that many words (0: none).
  void SetMediaWords(uint32_t words) {
    MutexLock lock(mutex_);
    options_.state.media_words = words;
  }
  // Bytes the server appends to, or (negative) leaves out of, every file it saves.
  void DamageSaves(int bytes) {
    MutexLock lock(mutex_);
    damage_ = bytes;
  }
  std::vector<TokenId> Tokens(uint32_t slot) {
    MutexLock lock(mutex_);
    return slots_.at(slot).tokens;
  }
  // What another client of the server may do to a slot.
  void Overwrite(uint32_t slot, std::vector<TokenId> tokens) {
    MutexLock lock(mutex_);
    slots_.at(slot).tokens = std::move(tokens);
    slots_.at(slot).task = ++tasks_;
  }
  // Files that restores were asked to read, as they were at that moment.
  std::vector<std::vector<std::byte>> RestoredFiles() {
    MutexLock lock(mutex_);
    return restored_files_;
  }

 private:
  friend class FakeEngine;
  struct Script {
    Error error;
    bool late = false;
  };
  struct Slot {
    std::vector<TokenId> tokens;
    size_t useless = 0;  // leading tokens that a restore claimed and that do not count
    uint64_t task = 0;
    bool busy = false;
  };
  struct StalledRestore {
    uint32_t slot = 0;
    std::vector<TokenId> tokens;
  };

  // The scripted error of this call, if any; waits while the verb is held.
  std::optional<Script> Enter(const std::string& verb) REQUIRES(mutex_) {
    ++calls_[verb];
    changed_.NotifyAll();
    while (held_[verb]) changed_.Wait(mutex_);
    if (down_) return Script{{ErrorCode::kUnavailable, "connection refused"}, false};
    if (auto& queue = scripts_[verb]; !queue.empty()) {
      Script script = queue.front();
      queue.pop_front();
      return script;
    }
    if (const auto& error = always_[verb]) return Script{*error, false};
    if (stalled_ && (verb == "save" || verb == "restore" || verb == "erase")) {
      return Script{{ErrorCode::kDeadlineExceeded, "no answer in time"}, false};
    }
    return std::nullopt;
  }

  void StartAnew() REQUIRES(mutex_) {
    ++starts_;
    slots_.assign(options_.slots, {});
  }
  void Leave(const std::string& verb) REQUIRES(mutex_) {
    if (restart_after_ != verb) return;
    restart_after_.clear();
    StartAnew();
  }

  Mutex mutex_;
  CondVar changed_;
  std::string restart_after_ GUARDED_BY(mutex_);
  Options options_ GUARDED_BY(mutex_);
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  std::map<std::string, std::deque<Script>> scripts_ GUARDED_BY(mutex_);
  std::map<std::string, std::optional<Error>> always_ GUARDED_BY(mutex_);
  std::map<std::string, bool> held_ GUARDED_BY(mutex_);
  std::map<std::string, int> calls_ GUARDED_BY(mutex_);
  std::vector<bus::LoraAdapter> adapters_ GUARDED_BY(mutex_);
  std::vector<std::vector<std::byte>> restored_files_ GUARDED_BY(mutex_);
  std::function<void(const Deadline&)> stall_ GUARDED_BY(mutex_);
  std::optional<StalledRestore> stalled_ GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, std::string>> late_saves_ GUARDED_BY(mutex_);
  uint64_t tasks_ GUARDED_BY(mutex_) = 0;
  int starts_ GUARDED_BY(mutex_) = 1;
  int damage_ GUARDED_BY(mutex_) = 0;
  bool down_ GUARDED_BY(mutex_) = false;
};

// A connection to a FakeServer.
class FakeEngine final : public bus::InferenceEngine {
 public:
  explicit FakeEngine(std::shared_ptr<FakeServer> server) : server_(std::move(server)) {}

  Result<void> Health(const Deadline&) override {
    MutexLock lock(server_->mutex_);
    if (auto script = server_->Enter("health")) return Fail(script->error);
    return {};
  }

  Result<bus::EngineProps> Props(const Deadline&) override {
    MutexLock lock(server_->mutex_);
    if (auto script = server_->Enter("props")) return Fail(script->error);
    bus::EngineProps props;
    props.incarnation = "start" + std::to_string(server_->starts_);
    props.model_path = server_->options_.model_path;
    props.build = "fake";
    props.total_slots = server_->options_.slots;
    props.context_tokens = server_->options_.context_tokens;
    return props;
  }

  Result<std::vector<bus::SlotInfo>> Slots(const Deadline&) override {
    MutexLock lock(server_->mutex_);
    if (auto script = server_->Enter("slots")) return Fail(script->error);
    std::vector<bus::SlotInfo> slots;
    for (uint32_t id = 0; id < server_->slots_.size(); ++id) {
      const auto& slot = server_->slots_[id];
      slots.push_back({.id = id, .processing = slot.busy, .task = slot.task, .tokens_cached = slot.tokens.size()});
    }
    return slots;
  }

  Result<std::vector<bus::LoraAdapter>> LoraAdapters(const Deadline&) override {
    MutexLock lock(server_->mutex_);
    if (auto script = server_->Enter("lora")) return Fail(script->error);
    return server_->adapters_;
  }

  // One token per character, a BOS (1) in front.
  Result<std::vector<TokenId>> Tokenize(std::string_view text, const Deadline&) override {
    MutexLock lock(server_->mutex_);
    if (auto script = server_->Enter("tokenize")) return Fail(script->error);
    std::vector<TokenId> tokens = {1};
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }

  Result<bus::Completion> Complete(const bus::CompletionRequest& request, const Deadline&) override {
    MutexLock lock(server_->mutex_);
    if (auto script = server_->Enter("complete")) return Fail(script->error);
    auto& slot = server_->slots_.at(request.slot);
    const auto common = static_cast<size_t>(
        std::mismatch(slot.tokens.begin(), slot.tokens.end(), request.prompt.begin(), request.prompt.end()).first -
        slot.tokens.begin());
    size_t cached = std::min(common, request.prompt.size() - 1);
    if (slot.useless > 0) cached = 0;
    bus::Completion completion;
    completion.slot = request.slot;
    completion.timings.prompt_tokens_cached = cached;
    completion.timings.prompt_tokens_evaluated = request.prompt.size() - cached;
    completion.timings.prompt_ms =
        server_->options_.ms_per_token * static_cast<double>(completion.timings.prompt_tokens_evaluated);
    const uint32_t predicted = std::max(request.predict_max, 1u);
    completion.timings.predicted_tokens = predicted;
    slot.tokens = request.prompt;
    slot.useless = 0;
    for (uint32_t i = 0; i < predicted; ++i) {
      const auto token = static_cast<TokenId>(2 + (request.prompt.size() * 31 + i * 7) % 200);
      completion.tokens.push_back(token);
      if (i + 1 < predicted) slot.tokens.push_back(token);  // the last sampled one has no KV yet
    }
    slot.task = ++server_->tasks_;
    return completion;
  }

  Result<bus::SlotSave> SaveSlot(uint32_t id, const std::string& file_name, const Deadline&) override {
    MutexLock lock(server_->mutex_);
    const auto script = server_->Enter("save");
    if (script) {
      if (script->late) server_->late_saves_.push_back({id, file_name});
      return Fail(script->error);
    }
    auto saved = Save(id, file_name);
    server_->Leave("save");
    return saved;
  }

  Result<bus::SlotSave> Save(uint32_t id, const std::string& file_name) REQUIRES(server_->mutex_) {
    const auto& slot = server_->slots_.at(id);
    StateOptions state = server_->options_.state;
    state.tokens = slot.tokens;
    if (state.streams > 1) state.stream = id;
    state.sequence_id = static_cast<int32_t>(id);
    std::vector<std::byte> bytes = BuildState(state);
    const uint64_t claimed = bytes.size();
    bytes.resize(static_cast<size_t>(static_cast<int64_t>(bytes.size()) + server_->damage_));
    std::ofstream out(server_->options_.slot_dir / file_name, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) return Fail(ErrorCode::kInternal, "Unable to save slot");
    ++server_->tasks_;
    return bus::SlotSave{.tokens = slot.tokens.size(), .bytes = claimed, .server_ms = 1, .wall = {}};
  }

  Result<bus::SlotRestore> RestoreSlot(uint32_t id, const std::string& file_name, const Deadline& deadline) override {
    MutexLock lock(server_->mutex_);
    const auto script = server_->Enter("restore");
    if (script && !script->late) return Fail(script->error);
    std::ifstream in(server_->options_.slot_dir / file_name, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const auto raw = std::as_bytes(std::span(text));
    std::vector<std::byte> bytes(raw.begin(), raw.end());
    server_->restored_files_.push_back(bytes);
    auto& slot = server_->slots_.at(id);
    slot.tokens.clear();
    const bus::MemorySource source(bytes);
    const auto state = bus::ParseSequenceState(source, server_->options_.state.memory);
    const bool fits =
        state && (state->attention.empty() || state->attention.front().streams == server_->options_.state.streams);
    if (!fits) return Fail(ErrorCode::kInvalidArgument, "Unable to restore slot");
    if (const auto wait = std::exchange(server_->stall_, nullptr)) {
      server_->stalled_ = {id, state->tokens};
      wait(deadline);
      return Fail(ErrorCode::kDeadlineExceeded, "no answer in time");
    }
    slot.tokens = state->tokens;
    slot.useless = server_->options_.restores_are_useful ? 0 : 1;
    slot.task = ++server_->tasks_;
    if (script) return Fail(script->error);
    const bus::SlotRestore reply{.tokens = slot.tokens.size(), .bytes = bytes.size(), .server_ms = 1, .wall = {}};
    server_->Leave("restore");
    return reply;
  }

  Result<uint64_t> EraseSlot(uint32_t id, const Deadline&) override {
    MutexLock lock(server_->mutex_);
    if (auto script = server_->Enter("erase")) return Fail(script->error);
    // Slot actions are carried out in order: what timed out before is done first.
    for (const auto& [late_slot, late_name] : server_->late_saves_) (void)Save(late_slot, late_name);
    server_->late_saves_.clear();
    auto& slot = server_->slots_.at(id);
    const uint64_t erased = slot.tokens.size();
    slot.tokens.clear();
    slot.useless = 0;
    slot.task = ++server_->tasks_;
    return erased;
  }

 private:
  const std::shared_ptr<FakeServer> server_;
};

}  // namespace moonpool::testing

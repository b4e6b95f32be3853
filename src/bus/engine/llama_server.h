// LlamaServer: an InferenceEngine that is a llama.cpp server, spoken to over HTTP. Owned by whoever made it (the
// EngineSession of bus/core). Thread-safe.
//
// What the server does not check is checked here before anything is sent: slot ids against total_slots (the server
// takes them modulo that), file names. Its answers are untrusted input: bounded, and every field checked.
// Slot actions go one at a time (SlotActionQueue) over connections of their own and are never repeated.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "bus/engine/inference_engine.h"
#include "bus/engine/slot_action_queue.h"
#include "net/http_client.h"

namespace moonpool::bus {

struct LlamaServerOptions {
  std::string url{};      // "http://127.0.0.1:8080"; see net::HttpEndpoint::Parse
  std::string api_key{};  // empty: none is sent
  // Router mode: which of its models is meant. Sent in the body of every POST and the query of every GET.
  std::string model{};
  uint64_t answer_bytes_max = 256ull << 20;                   // of the answers that grow with the prompt
  Duration health_interval = std::chrono::milliseconds(200);  // of WaitHealthy
};

class LlamaServer final : public InferenceEngine {
 public:
  // Does not connect. kInvalidArgument for a bad URL. `clock` outlives the server.
  static Result<std::unique_ptr<LlamaServer>> Make(LlamaServerOptions options, const Clock& clock);

  Result<void> Health(const Deadline& deadline) override;
  // `incarnation` also changes when the server is seen to sleep: it loses its slots then, like after a restart.
  Result<EngineProps> Props(const Deadline& deadline) override EXCLUDES(mutex_);
  Result<std::vector<SlotInfo>> Slots(const Deadline& deadline) override;
  Result<std::vector<LoraAdapter>> LoraAdapters(const Deadline& deadline) override;
  Result<std::vector<TokenId>> Tokenize(std::string_view text, const Deadline& deadline) override;
  Result<Completion> Complete(const CompletionRequest& request, const Deadline& deadline) override EXCLUDES(mutex_);
  Result<SlotSave> SaveSlot(uint32_t slot, const std::string& file_name, const Deadline& deadline) override;
  Result<SlotRestore> RestoreSlot(uint32_t slot, const std::string& file_name, const Deadline& deadline) override;
  Result<uint64_t> EraseSlot(uint32_t slot, const Deadline& deadline) override;

  // Asks until the server is healthy. Goes on while it cannot be reached or loads its model; other errors end it.
  Result<void> WaitHealthy(const Deadline& deadline);

  // Whether an action on `slot` was sent and never answered, so that the server may still carry it out. Settled by an
  // erase that is answered (the server takes actions of one slot in order) or by another incarnation. /slots cannot
  // settle it: a slot that never ran a task shows no tokens, whatever was restored into it.
  bool ActionInDoubt(uint32_t slot) const EXCLUDES(mutex_);

  const net::HttpEndpoint& endpoint() const { return client_.endpoint(); }

 private:
  LlamaServer(LlamaServerOptions options, net::HttpEndpoint endpoint, const Clock& clock);

  // The body of a 200 answer.
  Result<std::string> Call(net::HttpCall call, const Deadline& deadline) EXCLUDES(mutex_);
  Result<std::string> Get(std::string_view path, uint64_t answer_bytes_max, const Deadline& deadline);
  struct ActionResult {
    std::string body;
    Duration wall{};
  };
  Result<ActionResult> SlotAction(uint32_t slot, std::string_view action, const std::string* file_name,
                                  const Deadline& deadline) EXCLUDES(mutex_);
  Result<void> CheckSlot(uint32_t slot, const Deadline& deadline) EXCLUDES(mutex_);

  const LlamaServerOptions options_;
  const Clock& clock_;
  net::HttpClient client_;
  SlotActionQueue actions_;
  mutable Mutex mutex_;
  CondVar never_;  // WaitHealthy sleeps on it; nobody notifies
  // From the last /props; forgotten when the server could not be reached, as the next one may have fewer.
  std::optional<uint32_t> total_slots_ GUARDED_BY(mutex_);
  std::string media_marker_ GUARDED_BY(mutex_);
  bool sleeping_ GUARDED_BY(mutex_) = false;
  uint64_t sleeps_seen_ GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, std::string> doubts_ GUARDED_BY(mutex_);  // slot -> the action nobody answered
};

}  // namespace moonpool::bus

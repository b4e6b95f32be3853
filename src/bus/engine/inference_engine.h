// InferenceEngine: what the bus asks of one inference server. LlamaServer (llama_server.h) speaks to a real
// llama.cpp server over HTTP; tests/support has a fake with scripted faults.
//
// Thread-safe. Every call ends by its deadline with kDeadlineExceeded, but a slot action that timed out may still
// be carried out by the server later: EngineSession (bus/core) keeps the slot out of use until it knows.
// Errors: kUnavailable (refused, reset, loading), kDeadlineExceeded, kPermission (401), kUnsupported (404: an old
// server; 501: the feature is off), kInvalidArgument (400 and slot ids outside total_slots),
// kFailedPrecondition (503), kInternal (500 and answers that make no sense).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/token_id.h"
#include "moonpool/result.h"

namespace moonpool::bus {

struct EngineProps {
  std::string incarnation;  // differs after every start of the server process (media_marker of /props)
  std::string model_path;
  std::string model_alias;
  std::string build;
  uint32_t total_slots = 0;
  uint32_t context_tokens = 0;  // per slot
  bool has_vision = false;
  bool has_audio = false;
  bool sleeping = false;
};

struct SlotInfo {
  uint32_t id = 0;
  bool processing = false;
  uint64_t task = 0;           // id_task; changes with every request that the slot served
  uint64_t tokens_cached = 0;  // absent in the answer counts as 0
};

struct LoraAdapter {
  std::string path;
  double scale = 0;
};

// From the completion's own `timings`: the only source of savings (decision 9).
struct EvaluationTimings {
  uint64_t prompt_tokens_evaluated = 0;  // prompt_n
  uint64_t prompt_tokens_cached = 0;     // cache_n
  double prompt_ms = 0;
  uint64_t predicted_tokens = 0;
  double predicted_ms = 0;
};

struct CompletionRequest {
  std::vector<TokenId> prompt;
  uint32_t predict_max = 0;
  uint32_t slot = 0;
  bool cache_prompt = true;
  double temperature = 0;
  uint64_t seed = 1;
  uint32_t top_probabilities = 0;  // n_probs
};

struct Completion {
  std::string text;
  std::vector<TokenId> tokens;
  uint32_t slot = 0;
  bool truncated = false;
  EvaluationTimings timings;
  Duration first_token_after{};  // wall time to the first streamed token
  Duration total{};
};

struct SlotSave {
  uint64_t tokens = 0;
  uint64_t bytes = 0;  // as the server says; always compare with the file
  double server_ms = 0;
  Duration wall{};
};

struct SlotRestore {
  uint64_t tokens = 0;
  uint64_t bytes = 0;
  double server_ms = 0;
  Duration wall{};
};

class InferenceEngine {
 public:
  virtual ~InferenceEngine() = default;

  virtual Result<void> Health(const Deadline& deadline) = 0;
  virtual Result<EngineProps> Props(const Deadline& deadline) = 0;
  virtual Result<std::vector<SlotInfo>> Slots(const Deadline& deadline) = 0;
  virtual Result<std::vector<LoraAdapter>> LoraAdapters(const Deadline& deadline) = 0;
  // As the server itself tokenizes a string prompt: specials added and parsed.
  virtual Result<std::vector<TokenId>> Tokenize(std::string_view text, const Deadline& deadline) = 0;
  virtual Result<Completion> Complete(const CompletionRequest& request, const Deadline& deadline) = 0;
  // `file_name` is a plain name inside the server's slot directory.
  virtual Result<SlotSave> SaveSlot(uint32_t slot, const std::string& file_name, const Deadline& deadline) = 0;
  virtual Result<SlotRestore> RestoreSlot(uint32_t slot, const std::string& file_name, const Deadline& deadline) = 0;
  virtual Result<uint64_t> EraseSlot(uint32_t slot, const Deadline& deadline) = 0;
};

}  // namespace moonpool::bus

// What callers of the bus say and hear: plain values, mirrored field by field by proto/kvcache_bus.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/token_id.h"
#include "bus/arbiter/restore_arbiter.h"

namespace moonpool::bus {

// A prompt as one engine would see it. Exactly one of `tokens` and `text` is given.
struct PromptRequest {
  std::string engine;      // a name of the configuration
  std::string name_space;  // part of every key; "" is a namespace like any other
  std::vector<TokenId> tokens;
  std::optional<std::string> text;  // tokenized exactly as that server does it
  std::optional<int64_t> slot;      // a wish; none: the bus chooses
  std::optional<int64_t> wait_ms;   // how long a Prepare may wait for a leader; none: the bus's default
  bool has_media = false;           // images or audio behind placeholder tokens: always bypassed
};

enum class Decision {
  kRestore,    // the slot holds `restored_tokens` tokens of the prompt now
  kRecompute,  // evaluate the prompt; nothing was restored
  kLead,       // as kRecompute, and others wait for this prompt: prefill, Commit early
  kBypass,     // the bus does not take part in this request; there is no ticket
};
std::string_view DecisionName(Decision decision);  // "RESTORE", ...

// Where the time of a Prepare or Commit went, in milliseconds.
struct PhaseTimes {
  double lookup_ms = 0;
  double flight_wait_ms = 0;
  double fetch_ms = 0;
  double verify_ms = 0;
  double rewrite_ms = 0;
  double server_wait_ms = 0;
  double restore_ms = 0;
  double save_ms = 0;
  double publish_ms = 0;
};

struct LookupReply {
  Decision decision = Decision::kBypass;
  std::string reason;  // a short word from a bounded set: "hit", "no_prefix", "slower", "not_probed", ...
  std::string detail;  // a sentence for people
  uint64_t prompt_tokens = 0;
  uint64_t stored_tokens = 0;      // longest stored prefix at block grain
  uint64_t restorable_tokens = 0;  // what a restore would promise: min(stored, prompt - 1)
  std::string object;              // that would be fetched; empty if none
  uint32_t block_tokens = 0;
  ArbiterVerdict estimates;
};

struct PrepareReply {
  std::optional<uint32_t> slot;  // to be sent as id_slot; none with kBypass
  uint64_t restored_tokens = 0;  // promised: the completion's cache_n will be at least this
  Decision decision = Decision::kBypass;
  std::string reason;
  std::string detail;
  std::string ticket;  // owns the slot until Commit, Release or its deadline; empty with kBypass
  int64_t ticket_ttl_ms = 0;
  uint64_t prompt_tokens = 0;
  std::vector<TokenId> tokens;  // of a text prompt: send these, and both sides mean the same
  ArbiterVerdict estimates;
  PhaseTimes times;
};

// The completion's own `timings` (decision 9).
struct ObservedTimings {
  uint64_t prompt_n = 0;
  uint64_t cache_n = 0;
  double prompt_ms = 0;
  uint64_t predicted_n = 0;
};

enum class CommitWait { kNone, kSaved, kPublished };

struct CommitRequest {
  std::string ticket;
  std::optional<ObservedTimings> timings;
  CommitWait wait = CommitWait::kNone;
  bool keep = false;       // the ticket goes on owning the slot after the save
  bool truncated = false;  // the completion said so: nothing is stored
};

enum class CommitStatus { kAccepted, kSaved, kPublished, kSkipped, kFailed };
std::string_view CommitStatusName(CommitStatus status);

struct CommitReply {
  CommitStatus status = CommitStatus::kSkipped;
  std::string reason;  // "exists", "no_new_block", "budget", "slot_changed", "truncated", ...
  std::string detail;
  uint64_t stored_tokens = 0;  // at block grain, once published
  std::string object;
  PhaseTimes times;
};

struct ReleaseReply {
  bool released = false;  // false: no such ticket (any more)
};

// One engine, as /readyz, `doctor` and GET /v1/stats show it.
struct EngineStatus {
  std::string name;
  std::string url;
  std::string state;   // "unreachable", "loading", "probing", "ready", "bypass", "suspect", "given_up"
  std::string reason;  // why it is not ready
  std::string model;
  std::string fingerprint;  // hex; empty before the probe
  std::string describe;     // ModelFingerprint::Describe()
  std::string memory_class;
  uint32_t total_slots = 0;
  uint32_t context_tokens = 0;
  uint64_t bytes_per_token = 0;
  uint32_t tickets = 0;
  uint64_t restarts_seen = 0;
  uint64_t promised_total = 0;
  uint64_t kept_total = 0;
  bool restores_declined = false;  // promises were not kept; `reason` says which
};

}  // namespace moonpool::bus

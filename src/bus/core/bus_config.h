// BusConfig: every setting of the bus core, with its unit and default, stated once. The command line, the
// configuration file and the documentation are checked against this struct.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "bus/arbiter/restore_arbiter.h"
#include "bus/keys/block_key.h"
#include "bus/prefix/prefix_index.h"

namespace moonpool::bus {

// One inference server, as the operator names it.
struct EngineConfig {
  std::string name;
  std::string url;           // http://host:port
  Path slot_dir;             // the directory given to the server as --slot-save-path, as the bus sees it
  Path model;                // the GGUF file; empty: what /props tells
  Path projector;            // multimodal projector, if one is loaded
  std::string api_key;       // sent as a bearer token; empty: none
  std::string router_model;  // "model" field for servers in router mode; empty: none
  std::string epoch;         // folded into the key: change it to part from everything stored before
  bool swa_full = false;     // the server runs with --swa-full (only exact continuations are restored)

  bool operator==(const EngineConfig&) const = default;
};

struct BusConfig {
  uint32_t block_tokens = kDefaultBlockTokens;
  bool fold_context = false;  // fold the context length into every key
  bool canary_exact = false;  // compare canaries byte by byte
  uint64_t prompt_tokens_max = 4u << 20;

  Path engine_notes;  // file that remembers probed servers over a restart of the bus; empty: none

  Duration engine_call_timeout = std::chrono::seconds(2);   // /health, /props, /slots, /tokenize
  Duration slot_action_timeout = std::chrono::seconds(30);  // save, erase
  Duration prepare_timeout = std::chrono::seconds(30);      // everything of a Prepare but the waiting for a leader
  Duration probe_timeout = std::chrono::minutes(5);         // the canary's evaluation
  Duration ticket_ttl = std::chrono::minutes(10);
  Duration ticket_idle = std::chrono::seconds(30);           // an idle slot's ticket may then be taken over
  Duration flight_wait_default = std::chrono::seconds(120);  // wait_ms of a Prepare that names none
  Duration leader_idle = std::chrono::seconds(2);            // a leader's slot idle for so long: it is gone
  Duration engine_backoff_min = std::chrono::milliseconds(500);
  Duration engine_backoff_max = std::chrono::seconds(30);
  uint32_t probe_attempts_max = 5;    // then the engine is given up until it restarts or is probed by hand
  uint32_t commits_max = 8;           // queued or running; beyond: skipped
  uint32_t promises_broken_max = 3;   // in a row: the model is no longer restored
  uint32_t promise_probe_every = 16;  // ... but every n-th time it is tried again
  ArbiterConfig arbiter;
  PrefixIndex::Limits index;
};

}  // namespace moonpool::bus

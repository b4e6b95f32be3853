// CanaryProbe: learns what an engine is (decision 6). What /props does not tell - KV types, flash attention,
// rotation, state version, RoPE overrides, build - shows in a fixed prompt of 256 tokens that the server
// evaluates and saves on an idle, empty slot. The saved file gives the layout; its K/V rows tell servers apart:
// for one declared identity the store keeps canaries numbered 0 to 7, and a server joins the first family whose
// rows are close enough to its own, or founds one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/rng.h"
#include "bus/blobs/blob_store.h"
#include "bus/core/bus_config.h"
#include "bus/core/engine_notes.h"
#include "bus/core/engine_profile.h"
#include "bus/engine/inference_engine.h"
#include "bus/keys/model_digest.h"
#include "moonpool/result.h"

namespace moonpool::bus {

inline constexpr uint32_t kCanaryTokens = 256;
inline constexpr int kCanaryFamiliesMax = 8;
// A family is joined if the first layer's K rows are this near, and every layer's rows that near (relative L2).
inline constexpr double kCanaryFirstLayerMax = 0.001;
inline constexpr double kCanaryAnyLayerMax = 0.15;

// The prompt: the same for every server of a vocabulary. A source of its own, so that it never changes.
std::vector<TokenId> CanaryPrompt(uint32_t vocabulary);

// What is worth remembering of a probed server.
EngineNote NoteOf(const EngineProfile& profile);

class CanaryProbe {
 public:
  // Borrowed; outlive the probe.
  struct Seams {
    FileSystem& files;
    const Clock& clock;
    Rng& rng;
    BlobStore& store;
    ModelDigests& digests;
  };
  CanaryProbe(const BusConfig& config, Seams seams) : config_(config), seams_(seams) {}

  // `loaded`: what this server process was found to have loaded earlier; another model in the file's place is
  // kFailedPrecondition with "model_changed" as the first word. `slot_erased` turns false if the canary could not be
  // taken out of the slot again.
  //
  // Evaluates and saves the canary on `slot`, which the caller knows to be idle and may be emptied; the slot is
  // erased afterwards. kFailedPrecondition: somebody else used the slot meanwhile; kUnsupported: an engine that
  // the bus cannot serve, with the reason; kQuota: all eight families are taken.
  Result<EngineProfile> Run(InferenceEngine& engine, const EngineConfig& engine_config, const EngineProps& props,
                            const std::optional<LoadedModel>& loaded, uint32_t slot, const Deadline& deadline,
                            bool& slot_erased);

  // The profile of a server process that was probed before and went on running. Its model, adapters and family are
  // looked at anew: kFailedPrecondition if they are not what the note is about.
  Result<EngineProfile> Adopt(InferenceEngine& engine, const EngineConfig& engine_config, const EngineProps& props,
                              const EngineNote& note, const Deadline& deadline);

 private:
  // What /props and the model's file tell.
  Result<EngineProfile> Describe(const EngineConfig& engine_config, const EngineProps& props);
  static void Seal(const Digest256& family, const CanaryRef& canary, EngineProfile& profile);
  Result<DeclaredIdentity> Declare(InferenceEngine& engine, const EngineConfig& engine_config, const EngineProps& props,
                                   EngineProfile& profile, const Deadline& deadline);
  Result<std::string> SaveCanary(InferenceEngine& engine, const EngineConfig& engine_config, uint32_t slot,
                                 const std::vector<TokenId>& prompt, const Deadline& deadline);
  struct Family {
    Digest256 id;
    CanaryRef canary;
  };
  Result<Family> JoinFamily(const Digest256& identity, std::string_view canary, const SequenceState& state,
                            const EngineProfile& profile);

  const BusConfig& config_;
  const Seams seams_;
};

}  // namespace moonpool::bus

#include "bus/core/canary_probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fault.h"
#include "base/log.h"
#include "bus/core/slot_file.h"
#include "bus/keys/gguf_model.h"

namespace moonpool::bus {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

MemoryClass ClassOf(const GgufModel& model) {
  if (model.recurrent) return model.attention ? MemoryClass::kHybrid : MemoryClass::kRecurrent;
  return model.sliding_window > 0 ? MemoryClass::kSlidingWindow : MemoryClass::kPlain;
}

// The metadata's class first. A file that adds up as plain attention is plain, whatever the metadata hints at
// (a build that ignores a window, for instance).
Result<SequenceState> ParseAs(const ByteSource& source, MemoryClass& memory, const ParseLimits& limits) {
  auto state = ParseSequenceState(source, memory, limits);
  if (state || memory == MemoryClass::kPlain) return state;
  auto plain = ParseSequenceState(source, MemoryClass::kPlain, limits);
  if (!plain) return state;
  memory = MemoryClass::kPlain;
  return plain;
}

std::string TypeName(uint32_t ggml_type) {
  switch (ggml_type) {
    case 0: return "f32";
    case 1: return "f16";
    case 2: return "q4_0";
    case 3: return "q4_1";
    case 6: return "q5_0";
    case 7: return "q5_1";
    case 8: return "q8_0";
    case 20: return "iq4_nl";
    case 30: return "bf16";
    default: return fmt::format("type{}", ggml_type);
  }
}

std::string KvTypes(const SequenceState& state) {
  if (state.attention.empty() || state.attention.front().layers.empty()) return "none";
  const LayerState& layer = state.attention.front().layers.front();
  return TypeName(layer.k.ggml_type) + "/" + (layer.v ? TypeName(layer.v->ggml_type) : "none");
}

}  // namespace

std::string MemoryClassName(MemoryClass memory) {
  switch (memory) {
    case MemoryClass::kPlain: return "plain";
    case MemoryClass::kSlidingWindow: return "sliding_window";
    case MemoryClass::kRecurrent: return "recurrent";
    case MemoryClass::kHybrid: return "hybrid";
  }
  return "unknown";
}

ParseLimits StateLimits(const GgufModel& model) {
  ParseLimits limits;
  limits.vocabulary = model.vocabulary;
  limits.without_v = model.key_length > 0 && model.value_length == 0;  // MLA
  return limits;
}

std::vector<TokenId> CanaryPrompt(uint32_t vocabulary) {
  // A linear congruential sequence (constants of Numerical Recipes, 2nd ed., ch. 7.1). The lowest ids, where
  // vocabularies keep their control tokens, are left out if the vocabulary is large enough.
  const uint32_t first = vocabulary > 2048 ? 1024 : 0;
  const uint32_t range = std::clamp(vocabulary - first, 1u, 16384u);
  std::vector<TokenId> prompt(kCanaryTokens);
  uint32_t state = 20261130;
  for (TokenId& token : prompt) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<TokenId>(first + (state >> 8) % range);
  }
  return prompt;
}

Result<std::string> CanaryProbe::SaveCanary(InferenceEngine& engine, const EngineConfig& engine_config, uint32_t slot,
                                            const std::vector<TokenId>& prompt, const Deadline& deadline) {
  MP_FAULT("probe.evaluate");
  CompletionRequest request;
  request.prompt = prompt;
  request.slot = slot;
  request.predict_max = 0;
  MP_ASSIGN_OR_RETURN(const Completion completion, engine.Complete(request, deadline));
  (void)completion;
  SlotFile file(seams_.files, engine_config.slot_dir, seams_.rng);
  MP_ASSIGN_OR_RETURN(const SlotSave saved, engine.SaveSlot(slot, file.name(), deadline));
  MP_FAULT("probe.saved");
  if (saved.tokens != prompt.size()) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("slot {} holds {} tokens after the canary's {}: somebody else used it", slot, saved.tokens,
                            prompt.size()));
  }
  return ReadWholeFile(seams_.files, file.path(), 1ull << 30);
}

Result<DeclaredIdentity> CanaryProbe::Declare(InferenceEngine& engine, const EngineConfig& engine_config,
                                              const EngineProps& props, EngineProfile& profile,
                                              const Deadline& deadline) {
  DeclaredIdentity identity;
  MP_ASSIGN_OR_RETURN(identity.model_digest, seams_.digests.Of(profile.model.shards));
  identity.tokenizer_hash = profile.model.tokenizer_hash;
  identity.rope_hash = profile.model.rope_hash;
  identity.kv_types = profile.kv_types;
  identity.layout = profile.layout;
  identity.block_tokens = config_.block_tokens;
  identity.sliding_window = profile.model.sliding_window;
  identity.operator_epoch = engine_config.epoch;
  if (config_.fold_context || profile.model.rope_depends_on_context) identity.context_tokens = props.context_tokens;
  if (!engine_config.projector.empty()) {
    MP_ASSIGN_OR_RETURN(identity.projector_digest, seams_.digests.Of({engine_config.projector}));
  }
  // A server without the endpoint has no adapters to tell of.
  auto adapters = engine.LoraAdapters(deadline);
  if (!adapters && adapters.error().code != ErrorCode::kUnsupported) return Fail(adapters.error());
  if (adapters) profile.adapters = *adapters;
  for (const LoraAdapter& adapter : profile.adapters) {
    if (!Path(adapter.path).is_absolute()) {
      return Fail(ErrorCode::kUnsupported,
                  "the LoRA adapter's path is relative, so its file is not known: start the "
                  "server with an absolute path");
    }
    auto digest = seams_.digests.Of({adapter.path});
    if (!digest) {
      return Fail(ErrorCode::kUnsupported,
                  "the LoRA adapter cannot be read, so its identity is not known: " + digest.error().message);
    }
    identity.adapters.push_back({*digest, adapter.scale});
  }
  return identity;
}

Result<CanaryProbe::Family> CanaryProbe::JoinFamily(const Digest256& identity, std::string_view canary,
                                                    const SequenceState& state, const EngineProfile& profile) {
  const MemorySource own(Bytes(canary));
  for (int number = 0; number < kCanaryFamiliesMax; ++number) {
    MP_FAULT("probe.family");
    auto known = seams_.store.GetCanary(identity, number);
    if (!known && known.error().code == ErrorCode::kNotFound) {
      auto put = seams_.store.PutCanary(identity, number, canary);
      if (put) return Family{Sha256Of(canary), {identity, number}};
      if (put.error().code != ErrorCode::kAlreadyExists) return Fail(put.error());
      known = seams_.store.GetCanary(identity, number);  // somebody was faster: compare with the winner
    }
    if (!known) return Fail(known.error());
    const MemorySource other(Bytes(*known));
    const auto other_state = ParseSequenceState(other, profile.memory, StateLimits(profile.model));
    if (!other_state) {
      log::Warn("canary_unreadable identity={} number={} error=\"{}\"", identity.ToHex(), number,
                other_state.error().message);
      continue;
    }
    const auto distance = CompareStates(own, state, other, *other_state);
    // States whose rows cannot be read as numbers (recurrent ones) are compared byte by byte.
    const bool exact = config_.canary_exact || !distance;
    const bool near =
        distance && distance->first_layer_k <= kCanaryFirstLayerMax && distance->worst_layer <= kCanaryAnyLayerMax;
    const bool same = distance ? distance->first_layer_k == 0 && distance->worst_layer == 0 : canary == *known;
    if (exact ? same : near) return Family{Sha256Of(*known), {identity, number}};
  }
  return Fail(ErrorCode::kQuota, fmt::format("all {} canary families of this model are taken by servers that differ "
                                             "from this one; `moonpool ctl rm` of old objects frees them",
                                             kCanaryFamiliesMax));
}

Result<std::vector<FileStamp>> StampsOf(FileSystem& files, const std::vector<Path>& shards) {
  std::vector<FileStamp> stamps;
  for (const Path& path : shards) {
    MP_ASSIGN_OR_RETURN(const FileInfo info, files.Info(path));
    stamps.push_back({info.device, info.inode, info.size_bytes, info.modified_ns, info.changed_ns});
  }
  return stamps;
}

Result<EngineProfile> CanaryProbe::Describe(const EngineConfig& engine_config, const EngineProps& props) {
  EngineProfile profile;
  profile.incarnation = props.incarnation;
  // Whether a restore is of use depends on the cache's size, too.
  profile.build = props.build + (engine_config.swa_full ? " swa-full" : "");
  profile.total_slots = props.total_slots;
  profile.context_tokens = props.context_tokens;
  const Path model_path = engine_config.model.empty() ? Path(props.model_path) : engine_config.model;
  if (!model_path.is_absolute() && engine_config.model.empty()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the server names its model by the relative path '{}', which means nothing here: give the "
                            "engine model=/the/file, or start the server with an absolute path",
                            model_path.string()));
  }
  auto model = ReadGgufModel(seams_.files, model_path);
  if (!model) return Fail(WithContext(model.error(), "model file " + model_path.string()));
  profile.model = *model;
  MP_ASSIGN_OR_RETURN(profile.model_stamps, StampsOf(seams_.files, model->shards));
  profile.model_name = !model->name.empty() ? model->name : model_path.stem().string();
  profile.memory = ClassOf(*model);
  if (model->sparse) {
    return Fail(ErrorCode::kUnsupported,
                "the model's attention is sparse: its state has parts that are not understood");
  }
  return profile;
}

void CanaryProbe::Seal(const Digest256& family, const CanaryRef& canary, EngineProfile& profile) {
  profile.fingerprint.canary_family = family;
  profile.canary = canary;
  profile.fingerprint_id = profile.fingerprint.Id();
  profile.fingerprint_hex = profile.fingerprint_id.ToHex();
}

Result<EngineProfile> CanaryProbe::Adopt(InferenceEngine& engine, const EngineConfig& engine_config,
                                         const EngineProps& props, const EngineNote& note, const Deadline& deadline) {
  MP_FAULT("probe.adopt");
  MP_ASSIGN_OR_RETURN(EngineProfile profile, Describe(engine_config, props));
  profile.memory = note.memory;
  profile.kv_types = note.kv_types;
  profile.layout = note.layout;
  profile.streams = note.streams;
  profile.rewritable = note.rewritable;
  profile.bytes_per_token = note.bytes_per_token;
  MP_ASSIGN_OR_RETURN(profile.fingerprint.declared, Declare(engine, engine_config, props, profile, deadline));
  MP_ASSIGN_OR_RETURN(const std::string canary, seams_.store.GetCanary(note.canary.identity, note.canary.number));
  if (profile.fingerprint.declared.Id() != note.canary.identity || Sha256Of(canary) != note.family) {
    return Fail(ErrorCode::kFailedPrecondition, "what was known of this server does not hold any more");
  }
  Seal(note.family, note.canary, profile);
  return profile;
}

Result<EngineProfile> CanaryProbe::Run(InferenceEngine& engine, const EngineConfig& engine_config,
                                       const EngineProps& props, const std::optional<LoadedModel>& loaded,
                                       uint32_t slot, const Deadline& deadline, bool& slot_erased) {
  MP_ASSIGN_OR_RETURN(EngineProfile profile, Describe(engine_config, props));
  const std::vector<TokenId> prompt = CanaryPrompt(profile.model.vocabulary);
  auto canary = SaveCanary(engine, engine_config, slot, prompt, deadline);
  // The canary must not stay in the slot, whatever became of it.
  const auto erased = engine.EraseSlot(slot, deadline);
  slot_erased = erased.has_value();
  if (!canary) return Fail(canary.error());
  if (!erased) return Fail(WithContext(erased.error(), "erasing the canary"));

  const MemorySource source(Bytes(*canary));
  auto state = ParseAs(source, profile.memory, StateLimits(profile.model));
  if (!state) return Fail(WithContext(state.error(), "the server's state file is not understood"));
  if (state->tokens != prompt) {
    return Fail(ErrorCode::kFailedPrecondition, "the saved slot does not hold the canary: somebody else used it");
  }
  profile.streams = state->attention.empty() ? 1 : state->attention.front().streams;
  profile.rewritable = state->Rewritable();
  profile.kv_types = KvTypes(*state);
  profile.layout = state->LayoutDescriptor();
  profile.bytes_per_token = state->BytesPerToken();

  MP_ASSIGN_OR_RETURN(profile.fingerprint.declared, Declare(engine, engine_config, props, profile, deadline));
  if (loaded && loaded->incarnation == props.incarnation &&
      loaded->digest != profile.fingerprint.declared.model_digest) {
    return Fail(ErrorCode::kFailedPrecondition,
                "model_changed: the file holds another model than the server loaded; restart the server");
  }
  MP_ASSIGN_OR_RETURN(const Family family, JoinFamily(profile.fingerprint.declared.Id(), *canary, *state, profile));
  Seal(family.id, family.canary, profile);
  return profile;
}

EngineNote NoteOf(const EngineProfile& profile) {
  return {.incarnation = profile.incarnation,
          .kv_types = profile.kv_types,
          .layout = profile.layout,
          .memory = profile.memory,
          .streams = profile.streams,
          .rewritable = profile.rewritable,
          .bytes_per_token = profile.bytes_per_token,
          .canary = profile.canary,
          .family = profile.fingerprint.canary_family};
}

}  // namespace moonpool::bus

#include "bus/keys/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bus/keys/ggml_type.h"
#include "bus/keys/gguf_architecture.h"
#include "bus/keys/gguf_metadata.h"

namespace moonpool::bus {
namespace {

constexpr uint64_t kUint32Max = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kHeadsMax = 1 << 20;
constexpr uint64_t kHeadLengthMax = 1 << 20;
constexpr uint64_t kCellBytes = 12;
constexpr size_t kArchitectureBytesMax = 64;
constexpr size_t kNameBytesMax = 256;
constexpr int kLinksMax = 16;

// The keys of one architecture.
class ModelDescription {
 public:
  ModelDescription(const GgufMetadata& metadata, const GgufLimits& limits) : metadata_(metadata), limits_(limits) {}

  Result<GgufModel> Describe() {
    MP_RETURN_IF_ERROR(DescribeIdentity());
    MP_RETURN_IF_ERROR(DescribeLayers());
    MP_RETURN_IF_ERROR(DescribeHeads());
    MP_RETURN_IF_ERROR(DescribeWindow());
    MP_RETURN_IF_ERROR(DescribeRope());
    model_.media_capable = metadata_.HasPrefix(Key("vision.")) || metadata_.HasPrefix(Key("audio.")) ||
                           metadata_.Find(Key("rope.dimension_sections")) != nullptr;
    return std::move(model_);
  }

 private:
  std::string Key(std::string_view rest) const { return fmt::format("{}.{}", model_.architecture, rest); }

  // The key's value, or `otherwise` if it is absent.
  Result<uint64_t> Uint(std::string_view rest, uint64_t value_max, uint64_t otherwise) const {
    MP_ASSIGN_OR_RETURN(const auto value, metadata_.Uint(Key(rest), value_max));
    return value.value_or(otherwise);
  }

  tl::unexpected<Error> Corrupt(std::string_view what) const {
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", metadata_.Name(), what));
  }

  Result<void> DescribeIdentity() {
    MP_ASSIGN_OR_RETURN(const auto architecture, metadata_.Text("general.architecture"));
    // It becomes part of key names, labels and messages.
    const auto is_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
             c == '.';
    };
    if (!architecture || architecture->empty() || architecture->size() > kArchitectureBytesMax ||
        !std::all_of(architecture->begin(), architecture->end(), is_name)) {
      return Corrupt("general.architecture is missing or no name");
    }
    model_.architecture = *architecture;
    known_ = FindGgufArchitecture(model_.architecture);
    if (const GgufValue* name = metadata_.Find("general.name"); name != nullptr && name->bytes) {
      model_.name = name->bytes->substr(0, kNameBytesMax);
    }
    MP_ASSIGN_OR_RETURN(const auto file_type, metadata_.Uint("general.file_type", kUint32Max));
    model_.file_type = file_type.value_or(0);
    model_.vocabulary = metadata_.Vocabulary();
    MP_ASSIGN_OR_RETURN(const uint64_t context, Uint("context_length", kUint32Max, 0));
    model_.context_train = static_cast<uint32_t>(context);
    model_.tokenizer_hash = metadata_.TokenizerHash();
    return {};
  }

  Result<void> DescribeLayers() {
    MP_ASSIGN_OR_RETURN(const auto blocks, metadata_.Uint(Key("block_count"), kUint32Max));
    if (!blocks) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: no language model ({} is missing)", metadata_.Name(), Key("block_count")));
    }
    if (*blocks == 0 || *blocks > limits_.layers_max) return Corrupt(fmt::format("a model of {} layers", *blocks));
    model_.blocks = static_cast<uint32_t>(*blocks);

    for (const std::string_view rest :
         {"ssm.", "wkv.", "shortconv.", "kda.", "full_attention_interval", "attention.recurrent_layers"}) {
      if (metadata_.HasPrefix(Key(rest))) model_.recurrent = true;
    }
    if (known_.listed) model_.recurrent = model_.recurrent || known_.mix != LayerMix::kAttention;
    model_.sparse = metadata_.HasPrefix(Key("attention.indexer.")) || metadata_.HasPrefix(Key("attention.compress_"));
    return {};
  }

  Result<void> DescribeHeads() {
    MP_ASSIGN_OR_RETURN(auto heads, metadata_.Uints(Key("attention.head_count"), kHeadsMax));
    MP_ASSIGN_OR_RETURN(auto kv_heads, metadata_.Uints(Key("attention.head_count_kv"), kHeadsMax));
    MP_RETURN_IF_ERROR(Spread(heads, "attention.head_count"));
    MP_RETURN_IF_ERROR(Spread(kv_heads, "attention.head_count_kv"));
    if (!kv_heads) kv_heads = heads;
    MP_ASSIGN_OR_RETURN(const uint64_t embedding, Uint("embedding_length", kUint32Max, 0));
    const uint64_t heads_most = heads ? *std::max_element(heads->begin(), heads->end()) : 0;
    const uint64_t length = heads_most == 0 ? 0 : embedding / heads_most;
    MP_ASSIGN_OR_RETURN(const uint64_t key_length, Uint("attention.key_length", kHeadLengthMax, length));
    MP_ASSIGN_OR_RETURN(const uint64_t value_length, Uint("attention.value_length", kHeadLengthMax, length));
    MP_ASSIGN_OR_RETURN(const uint64_t lora_rank, Uint("attention.kv_lora_rank", kHeadLengthMax, 0));
    model_.key_length = static_cast<uint32_t>(std::min(key_length, kHeadLengthMax));
    // MLA files of today name the compressed row as the key; V is computed from it.
    const bool latent = lora_rank > 0 && metadata_.Find(Key("attention.key_length_mla")) != nullptr;
    model_.value_length = latent ? 0 : static_cast<uint32_t>(std::min(value_length, kHeadLengthMax));
    if (kv_heads) {
      for (const uint64_t count : *kv_heads) model_.kv_heads.push_back(static_cast<uint32_t>(count));
      MP_RETURN_IF_ERROR(LeaveOutLayersWithoutRows());
    }
    const bool some_attention =
        std::any_of(model_.kv_heads.begin(), model_.kv_heads.end(), [](auto n) { return n > 0; });
    model_.attention = known_.listed ? known_.mix != LayerMix::kRecurrent : !model_.recurrent || some_attention;
    if (!model_.attention) model_.kv_heads.clear();
    return {};
  }

  // One value for all layers becomes one per layer.
  Result<void> Spread(std::optional<std::vector<uint64_t>>& values, std::string_view rest) const {
    if (!values) return {};
    if (values->size() == 1) values->resize(model_.blocks, values->front());
    if (values->size() != model_.blocks) {
      return Corrupt(fmt::format("{} has {} entries for {} layers", Key(rest), values->size(), model_.blocks));
    }
    return {};
  }

  // Layers that take part in the block count but keep no KV rows.
  Result<void> LeaveOutLayersWithoutRows() {
    MP_ASSIGN_OR_RETURN(const uint64_t interval, Uint("full_attention_interval", kUint32Max, 0));
    for (size_t i = 0; interval > 0 && i < model_.kv_heads.size(); ++i) {
      if ((i + 1) % interval != 0) model_.kv_heads[i] = 0;
    }
    MP_ASSIGN_OR_RETURN(const uint64_t shared, Uint("attention.shared_kv_layers", kUint32Max, 0));
    MP_ASSIGN_OR_RETURN(const uint64_t predicted, Uint("nextn_predict_layers", kUint32Max, 0));
    const uint64_t without = std::min<uint64_t>(std::max(shared, predicted), model_.kv_heads.size());
    std::fill(model_.kv_heads.end() - static_cast<std::ptrdiff_t>(without), model_.kv_heads.end(), 0);
    return {};
  }

  Result<void> DescribeWindow() {
    MP_ASSIGN_OR_RETURN(const auto window, metadata_.Uint(Key("attention.sliding_window"), kUint32Max));
    uint64_t size = 0;
    switch (known_.window) {
      case WindowRule::kFile: size = window.value_or(0); break;
      case WindowRule::kBuiltIn: size = window.value_or(known_.window_default); break;
      case WindowRule::kRequired: size = window.value_or(0) > 0 ? *window : known_.window_default; break;
      case WindowRule::kNone: break;
    }
    model_.sliding_window = static_cast<uint32_t>(size);
    return {};
  }

  Result<void> DescribeRope() {
    MP_ASSIGN_OR_RETURN(model_.rope_hash, metadata_.HashOf(Key("rope.")));
    MP_ASSIGN_OR_RETURN(const auto scaling, metadata_.Text(Key("rope.scaling.type")));
    model_.rope_depends_on_context =
        metadata_.HasRopeFactorTensors() || (scaling && (*scaling == "longrope" || *scaling == "dynamic"));
    return {};
  }

  const GgufMetadata& metadata_;
  const GgufLimits& limits_;
  GgufModel model_;
  GgufArchitecture known_;
};

// The file that `path` names in the end: model caches keep links to their blobs, and Open follows none.
Result<Path> ResolveLinks(FileSystem& files, Path path) {
  for (int i = 0; i < kLinksMax; ++i) {
    MP_ASSIGN_OR_RETURN(const FileInfo info, files.Info(path));
    if (info.kind != FileKind::kSymlink) return path;
    MP_ASSIGN_OR_RETURN(const std::string target, files.ReadSymlink(path));
    path = path.parent_path() / target;  // an absolute target replaces the directory
  }
  return Fail(ErrorCode::kUnsupported, fmt::format("too many links end at {}", path.string()));
}

// "base-00001-of-00003.gguf", number and count replaced.
std::string ShardName(std::string_view base, uint64_t number, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", base, number, count);
}

struct Shard {
  Path path;  // links resolved
  GgufMetadata metadata;
};

Result<Shard> ReadShard(FileSystem& files, const Path& path, const GgufLimits& limits) {
  MP_ASSIGN_OR_RETURN(Path resolved, ResolveLinks(files, path));
  MP_ASSIGN_OR_RETURN(const auto file, files.Open(resolved));
  MP_ASSIGN_OR_RETURN(GgufMetadata metadata, GgufMetadata::Read(*file, path.string(), limits));
  return Shard{std::move(resolved), std::move(metadata)};
}

}  // namespace

std::optional<uint64_t> GgufModel::KvBytesPerToken(std::string_view k_type, std::string_view v_type) const {
  const auto k = FindGgmlType(k_type);
  const auto v = FindGgmlType(v_type);
  if (!k || !v || key_length == 0) return std::nullopt;
  uint64_t bytes = kCellBytes;
  bool any = false;
  for (const uint32_t heads : kv_heads) {
    const auto k_bytes = k->RowBytes(uint64_t{heads} * key_length);
    const auto v_bytes = v->RowBytes(uint64_t{heads} * value_length);
    if (!k_bytes || !v_bytes) return std::nullopt;
    bytes += *k_bytes + *v_bytes;  // bounded: 4096 layers of 2^20 heads of 2^20 elements of 8 bytes are below 2^56
    any = any || heads > 0;
  }
  return any ? std::optional(bytes) : std::nullopt;
}

Result<GgufModel> DescribeGgufModel(const GgufMetadata& metadata, const GgufLimits& limits) {
  return ModelDescription(metadata, limits).Describe();
}

Result<GgufModel> ReadGgufModel(FileSystem& files, const Path& path, const GgufLimits& limits) {
  MP_ASSIGN_OR_RETURN(const Shard first, ReadShard(files, path, limits));
  MP_ASSIGN_OR_RETURN(GgufModel model, DescribeGgufModel(first.metadata, limits));
  model.shards.push_back(first.path);
  MP_ASSIGN_OR_RETURN(const auto count, first.metadata.Uint("split.count", 99999));
  if (count.value_or(1) <= 1) return model;

  MP_ASSIGN_OR_RETURN(const auto number, first.metadata.Uint("split.no", 99999));
  if (number.value_or(0) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is shard {} of {}; name the first", path.string(), *number + 1, *count));
  }
  // The shards' names are told by the name that was given, not by the blob behind a link.
  const std::string name = path.filename().string();
  const std::string ending = ShardName("", 1, *count);
  if (!name.ends_with(ending)) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{} is one of {} shards, but its name does not end with {}",
                                                 path.string(), *count, ending));
  }
  const std::string base = name.substr(0, name.size() - ending.size());
  for (uint64_t i = 2; i <= *count; ++i) {
    MP_ASSIGN_OR_RETURN(const Shard shard, ReadShard(files, path.parent_path() / ShardName(base, i, *count), limits));
    MP_ASSIGN_OR_RETURN(const auto shard_number, shard.metadata.Uint("split.no", 99999));
    MP_ASSIGN_OR_RETURN(const auto shard_count, shard.metadata.Uint("split.count", 99999));
    if (shard_number != i - 1 || shard_count != count) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{} does not call itself shard {} of {}", shard.metadata.Name(), i, *count));
    }
    model.rope_depends_on_context = model.rope_depends_on_context || shard.metadata.HasRopeFactorTensors();
    model.shards.push_back(shard.path);
  }
  return model;
}

}  // namespace moonpool::bus

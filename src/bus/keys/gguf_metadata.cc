#include "bus/keys/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/checksum.h"
#include "bus/keys/canonical_encoding.h"
#include "bus/keys/ggml_type.h"
#include "bus/keys/quoted_text.h"

namespace moonpool::bus {
namespace {

constexpr uint64_t kKeyBytesMax = 65535;        // the format's own limit
constexpr uint64_t kTensorNameBytesMax = 1024;  // llama.cpp stops at 64
constexpr uint64_t kValueKeptBytesMax = 16 * 1024;
constexpr uint64_t kKeptBytesMax = 2 << 20;  // of all keys and values together
constexpr uint64_t kEntryBytes = 160;        // what a map entry costs beside its text
constexpr uint64_t kKeyLeastBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorLeastBytes = 8 + 1 + 4 + 4 + 8;
constexpr uint32_t kAlignmentDefault = 32;
constexpr uint32_t kAlignmentMax = 1 << 20;
constexpr uint32_t kDimensionsMax = 4;
constexpr std::string_view kTokenizerPrefix = "tokenizer.";

// Bytes of a fixed-size value; 0 for strings, arrays and numbers that are no type.
uint64_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool: return 1;
    case GgufType::kUint16:
    case GgufType::kInt16: return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32: return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64: return 8;
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return 0;
}

bool IsType(uint32_t number) { return number <= static_cast<uint32_t>(GgufType::kFloat64); }

// The element of a kept value as a whole number; nothing if it is none, negative or above `value_max`.
std::optional<uint64_t> WholeNumber(GgufType type, const char* bytes, uint64_t value_max) {
  const auto load = [bytes]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof value);
    return value;
  };
  int64_t number = -1;
  switch (type) {
    case GgufType::kUint8: number = load(uint8_t{}); break;
    case GgufType::kInt8: number = load(int8_t{}); break;
    case GgufType::kUint16: number = load(uint16_t{}); break;
    case GgufType::kInt16: number = load(int16_t{}); break;
    case GgufType::kUint32: number = load(uint32_t{}); break;
    case GgufType::kInt32: number = load(int32_t{}); break;
    case GgufType::kInt64: number = load(int64_t{}); break;
    case GgufType::kUint64: {
      const uint64_t wide = load(uint64_t{});
      if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      number = static_cast<int64_t>(wide);
      break;
    }
    case GgufType::kBool:
      number = load(uint8_t{});
      if (number > 1) return std::nullopt;
      break;
    default: return std::nullopt;
  }
  if (number < 0 || static_cast<uint64_t>(number) > value_max) return std::nullopt;
  return static_cast<uint64_t>(number);
}

void HashText(Sha256& hash, std::string_view text) {
  std::string length;
  AppendUint64(length, text.size());
  hash.Update(length);
  hash.Update(text);
}

void HashUint32(Sha256& hash, uint32_t value) {
  std::string bytes;
  AppendUint32(bytes, value);
  hash.Update(bytes);
}

void HashUint64(Sha256& hash, uint64_t value) {
  std::string bytes;
  AppendUint64(bytes, value);
  hash.Update(bytes);
}

std::string_view View(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

}  // namespace

// One pass over one file.
class GgufMetadataReader {
 public:
  GgufMetadataReader(const File& file, const std::string& name, uint64_t size_bytes, const GgufLimits& limits)
      : stream_(file, name, size_bytes, limits.metadata_bytes_max), limits_(limits) {
    metadata_.name_ = name;
  }

  Result<GgufMetadata> Read() {
    MP_RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < keys_; ++i) MP_RETURN_IF_ERROR(ReadKey());
    MP_RETURN_IF_ERROR(RefuseDuplicates("key"));
    MP_RETURN_IF_ERROR(CheckVocabulary());
    for (uint64_t i = 0; i < metadata_.tensors_; ++i) MP_RETURN_IF_ERROR(ReadTensor());
    MP_RETURN_IF_ERROR(RefuseDuplicates("tensor"));
    MP_RETURN_IF_ERROR(CheckExtent());
    return std::move(metadata_);
  }

 private:
  Result<void> ReadHeader() {
    MP_ASSIGN_OR_RETURN(const std::string magic, stream_.ReadText(4));
    if (magic == "FUGG") return stream_.Unsupported("a big-endian GGUF file");
    if (magic != "GGUF") return stream_.Corrupt("not a GGUF file");
    MP_ASSIGN_OR_RETURN(const uint32_t version, stream_.Read<uint32_t>());
    // A big-endian file has no mark of its own; its version is the one number that gives it away.
    if (version != 0 && (version & 0xffff) == 0) return stream_.Unsupported("a big-endian GGUF file");
    if (version != 2 && version != 3) {
      return stream_.Unsupported(fmt::format("GGUF version {} (2 and 3 are known)", version));
    }
    MP_ASSIGN_OR_RETURN(metadata_.tensors_, stream_.Read<uint64_t>());
    MP_ASSIGN_OR_RETURN(keys_, stream_.Read<uint64_t>());
    if (keys_ > stream_.LeftBytes() / kKeyLeastBytes) return stream_.Corrupt(fmt::format("{} keys declared", keys_));
    if (metadata_.tensors_ > stream_.LeftBytes() / kTensorLeastBytes) {
      return stream_.Corrupt(fmt::format("{} tensors declared", metadata_.tensors_));
    }
    if (keys_ > limits_.keys_max) return stream_.Unsupported(fmt::format("{} keys", keys_));
    if (metadata_.tensors_ > limits_.tensors_max) {
      return stream_.Unsupported(fmt::format("{} tensors", metadata_.tensors_));
    }
    names_.reserve(static_cast<size_t>(std::max(keys_, metadata_.tensors_)));
    return {};
  }

  Result<void> ReadKey() {
    MP_ASSIGN_OR_RETURN(const std::string key, ReadName(kKeyBytesMax, "key"));
    MP_ASSIGN_OR_RETURN(const uint32_t type_number, stream_.Read<uint32_t>());
    if (!IsType(type_number)) {
      return stream_.Corrupt(fmt::format("key {} has the unknown type {}", QuotedText(key), type_number));
    }
    GgufValue value;
    value.type = static_cast<GgufType>(type_number);
    uint64_t length_bytes = ScalarBytes(value.type);
    if (value.type == GgufType::kString) {
      MP_ASSIGN_OR_RETURN(value.count, stream_.Read<uint64_t>());
      length_bytes = value.count;
    } else if (value.type == GgufType::kArray) {
      MP_ASSIGN_OR_RETURN(length_bytes, ReadArrayHead(key, value));
    }
    if (length_bytes > stream_.LeftBytes()) {
      return stream_.Corrupt(fmt::format("the value of key {} ends beyond the file", QuotedText(key)));
    }
    MP_RETURN_IF_ERROR(CheckKnownType(key, value));
    return key.starts_with(kTokenizerPrefix) ? HashTokenizerValue(key, value, length_bytes)
                                             : KeepValue(key, value, length_bytes);
  }

  // The element type and count of an array; answers the bytes of its elements (strings: the least they can have).
  Result<uint64_t> ReadArrayHead(const std::string& key, GgufValue& value) {
    MP_ASSIGN_OR_RETURN(const uint32_t element_number, stream_.Read<uint32_t>());
    MP_ASSIGN_OR_RETURN(value.count, stream_.Read<uint64_t>());
    if (!IsType(element_number)) {
      return stream_.Corrupt(fmt::format("array {} has the unknown element type {}", QuotedText(key), element_number));
    }
    value.element_type = static_cast<GgufType>(element_number);
    if (value.element_type == GgufType::kArray) {
      return stream_.Unsupported(fmt::format("array {} holds arrays", QuotedText(key)));
    }
    const uint64_t element_bytes =
        value.element_type == GgufType::kString ? sizeof(uint64_t) : ScalarBytes(value.element_type);
    if (value.count > stream_.LeftBytes() / element_bytes) {
      return stream_.Corrupt(fmt::format("array {} declares {} elements", QuotedText(key), value.count));
    }
    return value.count * element_bytes;
  }

  // Types of the keys that others rely on, whatever the file does with the rest.
  Result<void> CheckKnownType(const std::string& key, const GgufValue& value) {
    const auto wrong = [&] { return stream_.Corrupt(fmt::format("key {} has a value of the wrong type", key)); };
    const auto array_of = [&](GgufType type) { return value.type == GgufType::kArray && value.element_type == type; };
    if (key == "general.alignment" && value.type != GgufType::kUint32) return wrong();
    if ((key == "general.architecture" || key == "general.name" || key == "tokenizer.ggml.model" ||
         key == "tokenizer.ggml.pre" || key == "tokenizer.chat_template") &&
        value.type != GgufType::kString) {
      return wrong();
    }
    if (key == "tokenizer.ggml.tokens") {
      if (!array_of(GgufType::kString)) return wrong();
      if (value.count > std::numeric_limits<int32_t>::max()) return stream_.Corrupt("more tokens than token ids");
      metadata_.vocabulary_ = static_cast<uint32_t>(value.count);
    } else if (key == "tokenizer.ggml.scores") {
      if (!array_of(GgufType::kFloat32)) return wrong();
      scores_ = value.count;
    } else if (key == "tokenizer.ggml.token_type") {
      if (!array_of(GgufType::kInt32) && !array_of(GgufType::kUint32)) return wrong();
      token_types_ = value.count;
    } else if (key == "tokenizer.ggml.merges") {
      if (!array_of(GgufType::kString)) return wrong();
    }
    return {};
  }

  Result<void> CheckVocabulary() {
    for (const auto& [name, count] : {std::pair{"scores", scores_}, std::pair{"token types", token_types_}}) {
      if (count && *count != metadata_.vocabulary_) {
        return stream_.Corrupt(fmt::format("{} {} for {} tokens", *count, name, metadata_.vocabulary_));
      }
    }
    return {};
  }

  Result<void> HashTokenizerValue(const std::string& key, const GgufValue& value, uint64_t length_bytes) {
    // The chat template forms the prompt, which the tokens repeat; models are re-published with new ones.
    const bool counts = !key.starts_with("tokenizer.chat_template");
    Sha256* const hash = counts ? &hash_ : nullptr;
    if (counts) {
      MP_RETURN_IF_ERROR(Spend(key.size() + sizeof(Digest256)));
      HashUint32(hash_, static_cast<uint32_t>(value.type));
      if (value.type == GgufType::kString) HashUint64(hash_, value.count);
      if (value.type == GgufType::kArray) {
        HashUint32(hash_, static_cast<uint32_t>(value.element_type));
        HashUint64(hash_, value.count);
      }
    }
    MP_RETURN_IF_ERROR(value.type == GgufType::kArray && value.element_type == GgufType::kString
                           ? stream_.SkipStrings(value.count, hash)
                           : stream_.Skip(length_bytes, hash));
    if (counts) metadata_.tokenizer_.emplace(key, hash_.Finish());
    return {};
  }

  Result<void> KeepValue(const std::string& key, GgufValue value, uint64_t length_bytes) {
    if (value.type == GgufType::kArray && value.element_type == GgufType::kString) {
      MP_RETURN_IF_ERROR(stream_.SkipStrings(value.count, nullptr));
    } else if (length_bytes > kValueKeptBytesMax) {
      MP_RETURN_IF_ERROR(stream_.Skip(length_bytes, nullptr));
    } else {
      MP_RETURN_IF_ERROR(Spend(length_bytes));
      MP_ASSIGN_OR_RETURN(value.bytes, stream_.ReadText(length_bytes));
    }
    if (key == "general.alignment") {
      std::memcpy(&alignment_, value.bytes->data(), sizeof alignment_);
      if (!std::has_single_bit(alignment_) || alignment_ > kAlignmentMax) {
        return stream_.Corrupt(fmt::format("general.alignment is {}", alignment_));
      }
    }
    MP_RETURN_IF_ERROR(Spend(key.size()));
    metadata_.values_.emplace(key, std::move(value));
    return {};
  }

  Result<void> ReadTensor() {
    MP_ASSIGN_OR_RETURN(const std::string name, ReadName(kTensorNameBytesMax, "tensor"));
    MP_ASSIGN_OR_RETURN(const uint32_t dimensions, stream_.Read<uint32_t>());
    if (dimensions > kDimensionsMax) {
      return stream_.Corrupt(fmt::format("tensor {} has {} dimensions", QuotedText(name), dimensions));
    }
    uint64_t elements = 1;
    uint64_t row_elements = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      MP_ASSIGN_OR_RETURN(const uint64_t size, stream_.Read<uint64_t>());
      if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / elements) {
        return stream_.Corrupt(fmt::format("tensor {} has a dimension of {}", QuotedText(name), size));
      }
      elements *= size;
      if (i == 0) row_elements = size;
    }
    MP_ASSIGN_OR_RETURN(const uint32_t type_number, stream_.Read<uint32_t>());
    MP_ASSIGN_OR_RETURN(const uint64_t offset, stream_.Read<uint64_t>());
    uint64_t size_bytes = 0;  // of a type that we do not know, only the beginning can be checked
    if (const auto type = FindGgmlType(type_number)) {
      const auto size = type->RowBytes(elements);
      if (row_elements % type->block_elements != 0 || !size) {
        return stream_.Corrupt(fmt::format("tensor {} is no whole number of {} blocks", QuotedText(name), type->name));
      }
      size_bytes = *size;
    }
    if (offset > std::numeric_limits<uint64_t>::max() - size_bytes) {
      return stream_.Corrupt(fmt::format("tensor {} lies beyond any file", QuotedText(name)));
    }
    if (offset % alignment_ != 0) return stream_.Corrupt(fmt::format("tensor {} is not aligned", QuotedText(name)));
    data_bytes_ = std::max(data_bytes_, offset + size_bytes);
    if (name.starts_with("rope_factors_long") || name.find(".rope_factors_long") != std::string::npos) {
      metadata_.rope_factor_tensors_ = true;
    }
    return {};
  }

  // All tensors lie inside the file; their data itself is not read.
  Result<void> CheckExtent() {
    if (metadata_.tensors_ == 0) return {};
    const uint64_t data_begin = (stream_.Offset() + alignment_ - 1) / alignment_ * alignment_;
    if (data_begin > stream_.SizeBytes() || data_bytes_ > stream_.SizeBytes() - data_begin) {
      return stream_.Corrupt(fmt::format("tensor data of {} bytes ends beyond the file", data_bytes_));
    }
    return {};
  }

  Result<std::string> ReadName(uint64_t bytes_max, std::string_view what) {
    MP_ASSIGN_OR_RETURN(const uint64_t length, stream_.Read<uint64_t>());
    if (length == 0 || length > bytes_max) {
      return stream_.Corrupt(fmt::format("a {} with a name of {} bytes", what, length));
    }
    MP_ASSIGN_OR_RETURN(std::string name, stream_.ReadText(length));
    names_.push_back(Xxh3(std::as_bytes(std::span(name))));
    return name;
  }

  // Names are compared by a 64-bit hash: it is enough to find a mistake, and a file made to collide is refused,
  // which is no loss.
  Result<void> RefuseDuplicates(std::string_view what) {
    std::sort(names_.begin(), names_.end());
    if (std::adjacent_find(names_.begin(), names_.end()) != names_.end()) {
      return stream_.Corrupt(fmt::format("two {}s with one name", what));
    }
    names_.clear();
    return {};
  }

  Result<void> Spend(uint64_t bytes) {
    kept_bytes_ += bytes + kEntryBytes;
    if (kept_bytes_ > kKeptBytesMax) return stream_.Unsupported("more small values than any model has");
    return {};
  }

  GgufStream stream_;
  const GgufLimits limits_;
  GgufMetadata metadata_;
  uint64_t keys_ = 0;
  uint32_t alignment_ = kAlignmentDefault;  // a power of two
  uint64_t data_bytes_ = 0;                 // end of the last tensor, from the beginning of the data
  uint64_t kept_bytes_ = 0;
  std::optional<uint64_t> scores_;
  std::optional<uint64_t> token_types_;
  std::vector<uint64_t> names_;
  Sha256 hash_;
};

Result<GgufMetadata> GgufMetadata::Read(const File& file, const std::string& name, const GgufLimits& limits) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, file.Info());
  return GgufMetadataReader(file, name, info.size_bytes, limits).Read();
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool GgufMetadata::HasPrefix(std::string_view prefix) const {
  const auto found = values_.lower_bound(prefix);
  return found != values_.end() && found->first.starts_with(prefix);
}

Result<std::optional<uint64_t>> GgufMetadata::Uint(const std::string& key, uint64_t value_max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<uint64_t> number;
  if (ScalarBytes(value->type) > 0) number = WholeNumber(value->type, value->bytes->data(), value_max);
  if (!number) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}: key {} is no whole number up to {}", name_, QuotedText(key), value_max));
  }
  return number;
}

Result<std::optional<std::string>> GgufMetadata::Text(const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString || !value->bytes) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: key {} is no short text", name_, QuotedText(key)));
  }
  return value->bytes;
}

Result<std::optional<std::vector<uint64_t>>> GgufMetadata::Uints(const std::string& key, uint64_t value_max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray) {
    MP_ASSIGN_OR_RETURN(const auto number, Uint(key, value_max));
    return std::vector<uint64_t>{*number};
  }
  std::vector<uint64_t> numbers;
  const uint64_t element_bytes = ScalarBytes(value->element_type);
  for (uint64_t i = 0; value->bytes && element_bytes > 0 && i < value->count; ++i) {
    const auto number = WholeNumber(value->element_type, value->bytes->data() + i * element_bytes, value_max);
    if (!number) break;
    numbers.push_back(*number);
  }
  if (numbers.empty() || numbers.size() != value->count) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: key {} is no short list of whole numbers up to {}", name_,
                                                 QuotedText(key), value_max));
  }
  return numbers;
}

Digest256 GgufMetadata::TokenizerHash() const {
  Sha256 hash;
  for (const auto& [key, digest] : tokenizer_) {
    HashText(hash, key);
    hash.Update(View(digest));
  }
  return hash.Finish();
}

Result<Digest256> GgufMetadata::HashOf(std::string_view prefix) const {
  Sha256 hash;
  Sha256 value_hash;
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix); ++at) {
    const auto& [key, value] = *at;
    if (!value.bytes) {
      return Fail(ErrorCode::kUnsupported, fmt::format("{}: the value of key {} is too large", name_, QuotedText(key)));
    }
    HashUint32(value_hash, static_cast<uint32_t>(value.type));
    if (value.type == GgufType::kString) HashUint64(value_hash, value.count);
    if (value.type == GgufType::kArray) {
      HashUint32(value_hash, static_cast<uint32_t>(value.element_type));
      HashUint64(value_hash, value.count);
    }
    value_hash.Update(*value.bytes);
    HashText(hash, key);
    hash.Update(View(value_hash.Finish()));
  }
  return hash.Finish();
}

}  // namespace moonpool::bus

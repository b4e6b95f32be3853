// SequenceState: a llama.cpp sequence state file, understood. A truncated file aborts the server, a slightly
// wrong one poisons it and a wrong model's is accepted silently, so no file reaches a server unless all of it was
// parsed and checked here: every declared size adds up to the file's size, positions are 0..n-1 (or the last
// window of them), token ids lie in the vocabulary, every row has the size its type demands.
//
// The layout is described in docs/formats/kv-state.md. All of it is little endian.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/token_id.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// Random access to the bytes of a state file. Reads are exact or kCorrupt.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size_bytes() const = 0;
  virtual Result<void> Read(uint64_t offset, std::span<std::byte> into) const = 0;
};

// Borrow their argument, which must outlive them.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Result<void> Read(uint64_t offset, std::span<std::byte> into) const override;

 private:
  std::span<const std::byte> bytes_;
};
class FileSource final : public ByteSource {
 public:
  static Result<FileSource> Of(const File& file);
  uint64_t size_bytes() const override { return size_bytes_; }
  Result<void> Read(uint64_t offset, std::span<std::byte> into) const override;

 private:
  FileSource(const File& file, uint64_t size_bytes) : file_(&file), size_bytes_(size_bytes) {}
  const File* file_;
  uint64_t size_bytes_;
};

// What kind of memory the model's layers keep; from the GGUF keys (bus/keys), needed to read a state body.
enum class MemoryClass { kPlain, kSlidingWindow, kRecurrent, kHybrid };

struct RowType {
  uint32_t ggml_type = 0;  // 0 f32, 1 f16, 8 q8_0, ...
  uint64_t row_bytes = 0;  // of one cell (V transposed: of one element times the channels)
  bool operator==(const RowType&) const = default;
};

struct LayerState {
  RowType k;
  std::optional<RowType> v;  // absent for MLA
  uint32_t v_channels = 0;   // V transposed only: n_embd_v_gqa
  uint64_t k_offset = 0;     // of the first row, in the file
  uint64_t v_offset = 0;
};

// One attention cache's part of the state. Only the stream of the saved slot has cells.
struct AttentionBody {
  uint32_t streams = 1;
  uint32_t stream = 0;  // the one that has cells
  uint32_t cells = 0;
  int32_t position_first = 0;  // positions are consecutive from here
  int32_t sequence_id = 0;     // the same in every cell
  uint32_t cell_meta_bytes = 12;
  bool v_transposed = false;
  uint32_t k_rotation = 0;  // version 4 only
  uint32_t v_rotation = 0;
  std::vector<LayerState> layers;
  uint64_t offset = 0;        // of this body in the file
  uint64_t cells_offset = 0;  // of the first cell's record
};

struct RecurrentLayer {
  RowType r;
  RowType s;
  uint64_t r_offset = 0;
  uint64_t s_offset = 0;
};
struct RecurrentBody {
  uint32_t cells = 0;
  int32_t position = 0;
  std::vector<RecurrentLayer> layers;
  uint64_t offset = 0;
};

struct SequenceState {
  uint32_t version = 0;        // 2, 3 or 4
  bool packed_tokens = false;  // the server's packed token section, or a plain list
  std::vector<TokenId> tokens;
  bool has_media = false;  // media keys or placeholder tokens: never stored
  MemoryClass memory = MemoryClass::kPlain;
  std::vector<AttentionBody> attention;  // one; two for sliding-window models (full layers first)
  std::optional<RecurrentBody> recurrent;
  uint32_t checkpoints = 0;  // of the tail that newer builds append
  uint64_t body_offset = 0;  // where the token section ends
  uint64_t body_end = 0;     // where the checkpoint tail begins
  uint64_t file_bytes = 0;

  // Plain attention, flash attention layout (V not transposed), no checkpoints, one sequence: streams and sequence
  // ids can be rewritten and the file cut to any prefix.
  bool Rewritable() const;
  // An injective text of everything a server checks or silently assumes about the layout: version, memory class,
  // per layer types and row sizes, V layout, rotation. Stream count and ids are left out where Rewritable().
  std::string LayoutDescriptor() const;
  // Bytes of the file per token, rounded up: sizes coming saves.
  uint64_t BytesPerToken() const;
};

struct ParseLimits {
  uint64_t tokens_max = 16u << 20;
  uint32_t layers_max = 4096;
  uint32_t streams_max = 4096;
  uint32_t vocabulary = 0;  // token ids must be below; 0: not known
};

// The whole file, or an error that names the field and the offset: kCorrupt (sizes, positions, ids do not add up),
// kUnsupported (unknown version, body or type, by name). Never trusts a count; reads no K/V data.
Result<SequenceState> ParseSequenceState(const ByteSource& source, MemoryClass memory, const ParseLimits& limits = {});

// What a rewritten file shall look like.
struct RewriteTarget {
  uint32_t streams = 1;
  uint32_t stream = 0;  // which of them gets the cells
  int32_t sequence_id = 0;
  std::optional<uint32_t> tokens;  // cut to this many; all if absent
};

// Writes `source`, as parsed into `state`, for another server: kUnsupported unless Rewritable(), kInvalidArgument
// if the cut is longer than the file. The result parses to the same tokens and rows.
Result<void> RewriteSequenceState(const ByteSource& source, const SequenceState& state, const RewriteTarget& target,
                                  File& destination);

// The distance of two saves of the same prompt, as decision 6 measures it: relative L2 over K and V rows,
// quantized rows dequantized.
struct StateDistance {
  double first_layer_k = 0;  // of the first layer that has K rows
  double worst_layer = 0;    // over all layers, K and V
};
// kUnsupported if the layouts or the tokens differ, or a type cannot be dequantized.
Result<StateDistance> CompareStates(const ByteSource& a, const SequenceState& state_a, const ByteSource& b,
                                    const SequenceState& state_b);

}  // namespace moonpool::bus

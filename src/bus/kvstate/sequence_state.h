// SequenceState: a llama.cpp sequence state file, understood. A truncated file aborts the server, a slightly
// wrong one poisons it and a wrong model's is accepted silently, so no file reaches a server unless all of it was
// parsed and checked here: every declared size adds up to the file's size, positions are 0..n-1 (or the last
// window of them), token ids lie in the vocabulary, every row has the size its type demands.
//
// The layout is described in docs/formats/kv-state.md. All of it is little endian. Everything here is a value or a
// pure function: thread-safe as long as the ByteSource is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/token_id.h"
#include "bus/kvstate/byte_source.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// What kind of memory the model's layers keep; from the GGUF keys (bus/keys), needed to read a state body.
enum class MemoryClass { kPlain, kSlidingWindow, kRecurrent, kHybrid };

struct RowType {
  uint32_t ggml_type = 0;  // 0 f32, 1 f16, 8 q8_0, ...: one of those in bus/kvstate/row_codec.h
  uint64_t row_bytes = 0;  // of one cell (V transposed: of one element times the channels)
  bool operator==(const RowType&) const = default;
};

struct LayerState {
  RowType k;
  std::optional<RowType> v = std::nullopt;  // absent for MLA
  uint32_t v_channels = 0;                  // V transposed only: n_embd_v_gqa
  uint64_t k_offset = 0;                    // of the first row, in the file
  uint64_t v_offset = 0;
  bool operator==(const LayerState&) const = default;
};

// One attention cache's part of the state. Only the stream of the saved slot has cells.
struct AttentionBody {
  uint32_t streams = 1;
  uint32_t stream = 0;  // the one that has cells
  uint32_t cells = 0;
  int32_t position_first = 0;     // the cells hold the positions [first, first + cells), each once
  std::vector<uint32_t> cell_of;  // cell_of[i] holds position_first + i; empty: cell i does
  int32_t sequence_id = 0;        // the same in every cell
  uint32_t cell_meta_bytes = 12;  // more for M-RoPE models, which keep coordinates (and the token) per cell
  bool v_transposed = false;
  uint32_t k_rotation = 0;  // version 4 only
  uint32_t v_rotation = 0;
  std::vector<LayerState> layers;
  uint64_t offset = 0;        // of this body in the file
  uint64_t cells_offset = 0;  // of the first cell's record
  bool operator==(const AttentionBody&) const = default;
};

struct RecurrentLayer {
  RowType r;
  RowType s;
  uint64_t r_offset = 0;
  uint64_t s_offset = 0;
  bool operator==(const RecurrentLayer&) const = default;
};
struct RecurrentBody {
  uint32_t cells = 0;  // 1, or 0 when there are no tokens
  int32_t position = 0;
  uint32_t model_layers = 0;           // of the whole model
  std::vector<RecurrentLayer> layers;  // those of them that keep a recurrent state
  uint64_t offset = 0;
  bool operator==(const RecurrentBody&) const = default;
};

struct SequenceState {
  uint32_t version = 0;        // 2, 3 or 4
  bool packed_tokens = false;  // the server's packed token section, or a plain list
  std::vector<TokenId> tokens;
  bool has_media = false;  // media keys or placeholder tokens (-1): never stored
  MemoryClass memory = MemoryClass::kPlain;
  std::vector<AttentionBody> attention;  // one; two for sliding-window models (full layers first)
  std::optional<RecurrentBody> recurrent;
  uint32_t checkpoints = 0;        // of the tail that newer builds append
  uint64_t checkpoint_tokens = 0;  // that the longest of them was taken after
  uint64_t body_offset = 0;        // where the token section ends
  uint64_t body_end = 0;           // where the checkpoint tail begins
  uint64_t file_bytes = 0;

  bool operator==(const SequenceState&) const = default;

  // Plain attention, flash attention layout (V not transposed), no checkpoints, no media: streams and sequence ids
  // can be rewritten and the file cut to any prefix.
  bool Rewritable() const;
  // An injective text of everything a server checks or silently assumes about the layout: version, memory class,
  // per layer types and row sizes, V layout, rotation. The stream count is left out where files of this layout can
  // be rewritten. Slot traces (sequence id, stream index, cell order) and lengths are always left out: a server
  // takes a file of any slot into any slot (measured). An empty state has no layers to describe.
  std::string LayoutDescriptor() const;
  // Bytes of the file per token, rounded up: sizes coming saves. 0 for an empty state.
  uint64_t BytesPerToken() const;
};

// What the caller knows and allows.
struct ParseLimits {
  uint64_t tokens_max = 16u << 20;
  uint32_t layers_max = 4096;
  uint32_t streams_max = 4096;
  uint32_t vocabulary = 0;  // token ids must be below; 0: not known
  // The model keeps K rows only (MLA; from the GGUF). The file does not say it, and guessing would take a file that
  // was cut right behind its K rows for whole.
  bool without_v = false;
};

// The whole file, or an error that names the field and the offset: kCorrupt (sizes, positions, ids do not add up),
// kUnsupported (unknown version, body or type, by name; over a limit). Errors of the source pass through. Never
// trusts a count: memory stays within a small multiple of the file's token section. Reads no K/V data.
// A file of no tokens (36 bytes at -np 1) is valid; that nothing should be stored for it is the caller's business.
Result<SequenceState> ParseSequenceState(const ByteSource& source, MemoryClass memory, const ParseLimits& limits = {});

// What a rewritten file shall look like.
struct RewriteTarget {
  uint32_t streams = 1;
  uint32_t stream = 0;  // which of them gets the cells
  int32_t sequence_id = 0;
  std::optional<uint32_t> tokens =
      std::nullopt;  // cut to this many; all if absent; 0 gives a server's file of an empty slot
};

// Writes `source`, as parsed into `state`, for another server: kUnsupported unless Rewritable(), kInvalidArgument
// if the cut is longer than the file or the stream is none of the streams. The result parses to the same tokens and
// rows, with the cells in order of position. `destination` is new and empty; it is reserved first, so a full disk
// is kNoSpace before the first byte. Memory: a few MiB whatever the file's size.
Result<void> RewriteSequenceState(const ByteSource& source, const SequenceState& state, const RewriteTarget& target,
                                  File& destination);

// The distance of two saves of the same prompt, as decision 6 measures it: relative L2 over K and V rows,
// quantized rows dequantized, rows matched by position. Rows that are not finite are infinitely far.
struct StateDistance {
  // Of the first layer that has K rows; of the first R rows if no layer has. Sliding-window models have two first
  // layers, one per cache, with RoPE settings of their own: the worse of the two.
  double first_layer_k = 0;
  double worst_layer = 0;  // over all layers: K, V, R and S
};
// kUnsupported if the layouts or the tokens differ, or a type cannot be dequantized.
Result<StateDistance> CompareStates(const ByteSource& a, const SequenceState& state_a, const ByteSource& b,
                                    const SequenceState& state_b);

}  // namespace moonpool::bus

// BuildState: whole, valid llama.cpp sequence state files of every kind the bus knows, made from a few numbers, so
// that tests need no server. The bytes follow docs/formats/kv-state.md and are written independently of the parser.
//
// Every row is a pure function of (seed, layer, K or V, token, position): a file built from fewer tokens holds exactly
// the first rows of a file built from more, and another stream count changes nothing but the stream headers. So a
// rewritten file can be compared with a built one byte by byte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/token_id.h"
#include "bus/kvstate/sequence_state.h"

namespace moonpool::testing {

enum class BuiltType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8 };

struct StateOptions {
  uint32_t version = 4;
  std::vector<TokenId> tokens;
  bool packed_tokens = true;  // as llama-server writes them; false: the plain list
  uint32_t media_words = 0;   // > 0: one media key followed by that many opaque words, first token a placeholder

  bus::MemoryClass memory = bus::MemoryClass::kPlain;
  uint32_t streams = 1;
  uint32_t stream = 0;
  int32_t sequence_id = 0;

  uint32_t layers = 2;         // full-attention layers
  uint32_t kv_dimension = 32;  // heads x head size; a multiple of 32 for q8_0
  BuiltType type = BuiltType::kF16;
  bool v_transposed = false;   // flash attention off
  bool with_v = true;          // false: MLA
  bool with_cell_ext = false;  // M-RoPE models: coordinates (and from version 3 the token) in every cell record
  uint32_t k_rotation = 0;
  uint32_t v_rotation = 0;
  uint32_t rotate_cells = 0;  // the cache wrapped around: the cells of this many last positions stand first

  uint32_t window = 4;      // sliding-window models
  uint32_t swa_layers = 3;  // "
  uint32_t recurrent_layers = 2;
  uint32_t recurrent_r = 8;  // f32 elements of a layer's R and S rows
  uint32_t recurrent_s = 16;
  uint32_t checkpoints = 0;  // of the tail, each for one token fewer; not for plain models
  uint64_t seed = 1;
};

namespace state_builder {

class Writer {
 public:
  template <class T>
  void Put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void Append(const std::vector<std::byte>& bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t Mix(std::initializer_list<uint64_t> parts) {
  uint64_t hash = 0;
  for (const uint64_t part : parts) hash = Mix(hash ^ part);
  return hash;
}

// A half between 2^-4 and 16, either sign: always finite.
inline uint16_t FiniteHalf(uint64_t random) {
  const auto exponent = static_cast<uint16_t>(11 + random % 8);
  return static_cast<uint16_t>(((random >> 8) & 1) << 15 | exponent << 10 | ((random >> 16) & 0x3ff));
}

inline void PutElement(Writer& out, BuiltType type, uint64_t random) {
  if (type == BuiltType::kF32) {
    out.Put(static_cast<float>(static_cast<int64_t>(random % 20001) - 10000) / 1000.0f);
  } else {
    out.Put(FiniteHalf(random));
  }
}

inline uint64_t RowBytes(BuiltType type, uint32_t elements) {
  switch (type) {
    case BuiltType::kF32: return 4ull * elements;
    case BuiltType::kF16: return 2ull * elements;
    case BuiltType::kQ8_0: MP_CHECK(elements % 32 == 0); return elements / 32 * 34ull;
  }
  return 0;
}

inline void PutRow(Writer& out, BuiltType type, uint32_t elements, uint64_t row_seed) {
  if (type != BuiltType::kQ8_0) {
    for (uint32_t i = 0; i < elements; ++i) PutElement(out, type, Mix({row_seed, i}));
    return;
  }
  for (uint32_t block = 0; block < elements / 32; ++block) {
    out.Put(FiniteHalf(Mix({row_seed, block, 99})));
    for (uint32_t i = 0; i < 32; ++i) out.Put(static_cast<int8_t>(Mix({row_seed, block * 32 + i})));
  }
}

inline uint64_t RowSeed(const StateOptions& o, uint32_t layer, char which, uint32_t position) {
  return Mix({o.seed, layer, static_cast<uint64_t>(which), static_cast<uint64_t>(o.tokens[position]), position});
}

// One attention cache that holds the positions [first, end).
inline void PutAttention(Writer& out, const StateOptions& o, uint32_t streams, uint32_t stream, uint32_t first,
                         uint32_t end, uint32_t layer_first, uint32_t layers) {
  out.Put(streams);
  const uint32_t cells = end - first;
  for (uint32_t s = 0; s < streams; ++s) {
    if (s != stream || cells == 0) {
      out.Put(uint32_t{0});
      continue;
    }
    std::vector<uint32_t> positions;
    for (uint32_t i = 0; i < cells; ++i) positions.push_back(first + (i + cells - o.rotate_cells % cells) % cells);
    out.Put(cells);
    for (const uint32_t position : positions) {
      out.Put(position);
      out.Put(uint32_t{1});
      if (o.with_cell_ext) {
        out.Put(position);
        out.Put(position);
        if (o.version >= 3) out.Put(o.tokens[position]);
      }
      out.Put(o.sequence_id);
    }
    out.Put(static_cast<uint32_t>(o.v_transposed));
    out.Put(layers);
    if (o.version >= 4) {
      out.Put(o.k_rotation);
      out.Put(o.v_rotation);
    }
    const uint64_t row_bytes = RowBytes(o.type, o.kv_dimension);
    for (uint32_t layer = layer_first; layer < layer_first + layers; ++layer) {
      out.Put(static_cast<uint32_t>(o.type));
      out.Put(row_bytes);
      for (const uint32_t position : positions) PutRow(out, o.type, o.kv_dimension, RowSeed(o, layer, 'k', position));
    }
    if (!o.with_v) continue;
    for (uint32_t layer = layer_first; layer < layer_first + layers; ++layer) {
      if (!o.v_transposed) {
        out.Put(static_cast<uint32_t>(o.type));
        out.Put(row_bytes);
        for (const uint32_t position : positions) PutRow(out, o.type, o.kv_dimension, RowSeed(o, layer, 'v', position));
        continue;
      }
      MP_CHECK(o.type != BuiltType::kQ8_0);  // quantized V needs flash attention
      out.Put(static_cast<uint32_t>(o.type));
      out.Put(static_cast<uint32_t>(o.type == BuiltType::kF32 ? 4 : 2));
      out.Put(o.kv_dimension);
      for (uint32_t channel = 0; channel < o.kv_dimension; ++channel) {
        for (const uint32_t position : positions) {
          PutElement(out, o.type, Mix({RowSeed(o, layer, 'v', position), channel}));
        }
      }
    }
  }
}

inline void PutRecurrent(Writer& out, const StateOptions& o, uint32_t tokens) {
  if (tokens == 0) {
    out.Put(uint32_t{0});
    return;
  }
  out.Put(uint32_t{1});
  out.Put(tokens - 1);
  out.Put(uint32_t{0});
  out.Put(uint32_t{0});  // s_trans
  out.Put(o.recurrent_layers + (o.memory == bus::MemoryClass::kHybrid ? o.layers : 0));
  for (const char which : {'r', 's'}) {
    const uint32_t elements = which == 'r' ? o.recurrent_r : o.recurrent_s;
    for (uint32_t layer = 0; layer < o.recurrent_layers; ++layer) {
      out.Put(uint32_t{0});
      out.Put(RowBytes(BuiltType::kF32, elements));
      PutRow(out, BuiltType::kF32, elements, RowSeed(o, 1000 + layer, which, tokens - 1));
    }
  }
}

// The part of the state that a checkpoint after `tokens` tokens holds.
inline std::vector<std::byte> Checkpoint(const StateOptions& o, uint32_t tokens) {
  Writer out;
  out.Put(uint32_t{0xaf143cd8});
  out.Put(o.sequence_id);
  if (o.memory == bus::MemoryClass::kSlidingWindow) {
    PutAttention(out, o, o.streams, o.stream, tokens - std::min(tokens, o.window), tokens, o.layers, o.swa_layers);
  } else {
    PutRecurrent(out, o, tokens);
  }
  return out.Take();
}

}  // namespace state_builder

inline std::vector<std::byte> BuildState(const StateOptions& o) {
  using bus::MemoryClass;
  state_builder::Writer out;
  const auto count = static_cast<uint32_t>(o.tokens.size());
  out.Put(uint32_t{0x67677371});
  out.Put(o.version);
  if (o.packed_tokens) {
    out.Put(static_cast<uint32_t>(count + 4 + (o.media_words > 0 ? 1 + o.media_words : 0)));
    out.Put(int32_t{-1});
    out.Put(uint32_t{1});
    out.Put(count);
  } else {
    out.Put(count);
  }
  for (uint32_t i = 0; i < count; ++i) out.Put(o.media_words > 0 && i == 0 ? TokenId{-1} : o.tokens[i]);
  if (o.packed_tokens) {
    out.Put(static_cast<uint32_t>(o.media_words > 0 ? 1 : 0));
    if (o.media_words > 0) {
      for (uint32_t i = 0; i <= o.media_words; ++i) out.Put(i);
    }
  }
  const bool attention = o.memory != MemoryClass::kRecurrent;
  if (attention) state_builder::PutAttention(out, o, o.streams, o.stream, 0, count, 0, o.layers);
  if (o.memory == MemoryClass::kSlidingWindow) {
    state_builder::PutAttention(out, o, o.streams, o.stream, count - std::min(count, o.window), count, o.layers,
                                o.swa_layers);
  }
  if (o.memory == MemoryClass::kRecurrent || o.memory == MemoryClass::kHybrid) {
    state_builder::PutRecurrent(out, o, count);
  }
  if (o.checkpoints > 0) {
    MP_CHECK(o.memory != MemoryClass::kPlain && o.checkpoints <= count);
    out.Put(uint32_t{0x504b4353});
    out.Put(uint32_t{1});
    out.Put(o.checkpoints);
    for (uint32_t i = 0; i < o.checkpoints; ++i) {
      const uint32_t tokens = count - o.checkpoints + i + 1;
      const auto blob = state_builder::Checkpoint(o, tokens);
      out.Put(static_cast<uint64_t>(tokens));
      out.Put(uint32_t{0});
      out.Put(tokens - 1);
      out.Put(static_cast<uint64_t>(blob.size()));
      out.Append(blob);
      out.Put(uint64_t{0});  // draft context
      out.Put(uint64_t{0});  // speculative state
    }
  }
  return out.Take();
}

// The tokens first, first+1, ... as a prompt.
inline std::vector<TokenId> CountingTokens(uint32_t count, TokenId first = 100) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

}  // namespace moonpool::testing

// The parser on built files of every class, on damaged ones, and the layout descriptor.
#include "bus/kvstate/sequence_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "base/rng.h"
#include "support/state_builder.h"

namespace moonpool::bus {
namespace {

using ::moonpool::testing::BuildState;
using ::moonpool::testing::BuiltType;
using ::moonpool::testing::CountingTokens;
using ::moonpool::testing::StateOptions;

using Bytes = std::vector<std::byte>;

bool Says(const Error& error, const std::string& text) { return error.message.find(text) != std::string::npos; }

Result<SequenceState> Parse(const Bytes& bytes, MemoryClass memory = MemoryClass::kPlain,
                            const ParseLimits& limits = {}) {
  return ParseSequenceState(MemorySource(bytes), memory, limits);
}
Result<SequenceState> Parse(const Bytes& bytes, const StateOptions& o) {
  return Parse(bytes, o.memory, {.without_v = !o.with_v});
}

void Put32(Bytes& bytes, size_t offset, uint32_t value) { std::memcpy(bytes.data() + offset, &value, sizeof value); }

// A few files of every kind, small enough to damage at every byte.
std::vector<StateOptions> EveryKind() {
  std::vector<StateOptions> kinds;
  for (const uint32_t version : {2u, 3u, 4u}) {
    StateOptions plain;
    plain.version = version;
    plain.tokens = CountingTokens(6);
    kinds.push_back(plain);
    for (const auto change : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
      StateOptions o = plain;
      switch (change) {
        case 0: o.v_transposed = true; break;
        case 1: o.with_v = false; break;
        case 2: o.with_cell_ext = true; break;
        case 3: o.packed_tokens = false; break;
        case 4: o.streams = 4, o.stream = 2, o.sequence_id = 2; break;
        case 5: o.type = BuiltType::kQ8_0, o.k_rotation = o.v_rotation = version >= 4 ? 64 : 0; break;
        case 6: o.memory = MemoryClass::kSlidingWindow, o.checkpoints = 2, o.streams = 2; break;
        case 7: o.memory = MemoryClass::kRecurrent, o.checkpoints = 1; break;
        case 8: o.memory = MemoryClass::kHybrid, o.checkpoints = 1; break;
        case 9: o.rotate_cells = 2; break;
      }
      kinds.push_back(o);
    }
  }
  StateOptions hybrid_mla;
  hybrid_mla.tokens = CountingTokens(6);
  hybrid_mla.memory = MemoryClass::kHybrid;
  hybrid_mla.with_v = false;
  kinds.push_back(hybrid_mla);
  return kinds;
}

TEST(SequenceStateParse, UnderstandsEveryKind) {
  for (const StateOptions& o : EveryKind()) {
    const Bytes bytes = BuildState(o);
    const auto state = Parse(bytes, o);
    ASSERT_TRUE(state.has_value()) << state.error().ToString();
    EXPECT_EQ(state->version, o.version);
    EXPECT_EQ(state->tokens, o.tokens);
    EXPECT_EQ(state->packed_tokens, o.packed_tokens);
    EXPECT_FALSE(state->has_media);
    EXPECT_EQ(state->file_bytes, bytes.size());
    EXPECT_EQ(state->checkpoints, o.checkpoints);
    EXPECT_EQ(state->checkpoint_tokens, o.checkpoints > 0 ? o.tokens.size() : 0u);
    EXPECT_EQ(state->body_end == bytes.size(), o.checkpoints == 0);
    EXPECT_EQ(state->recurrent.has_value(), o.memory == MemoryClass::kRecurrent || o.memory == MemoryClass::kHybrid);
    if (state->recurrent) {
      EXPECT_EQ(state->recurrent->position, 5);
      EXPECT_EQ(state->recurrent->layers.size(), o.recurrent_layers);
      EXPECT_EQ(state->recurrent->layers[0].r.row_bytes, 4 * o.recurrent_r);
      EXPECT_EQ(state->recurrent->layers[0].s.row_bytes, 4 * o.recurrent_s);
    }
    if (o.memory == MemoryClass::kRecurrent) continue;
    const AttentionBody& body = state->attention.at(0);
    EXPECT_EQ(body.cells, 6u);
    EXPECT_EQ(body.position_first, 0);
    EXPECT_EQ(body.streams, o.streams);
    EXPECT_EQ(body.stream, o.stream);
    EXPECT_EQ(body.sequence_id, o.sequence_id);
    EXPECT_EQ(body.v_transposed, o.v_transposed);
    EXPECT_EQ(body.k_rotation, o.k_rotation);
    EXPECT_EQ(body.layers.size(), o.layers);
    EXPECT_EQ(body.layers[0].v.has_value(), o.with_v);
    EXPECT_EQ(body.cell_meta_bytes, !o.with_cell_ext ? 12u : o.version == 2 ? 20u : 24u);
    EXPECT_EQ(body.cell_of.empty(), o.rotate_cells == 0);
    if (o.rotate_cells == 2) {
      EXPECT_EQ(body.cell_of, (std::vector<uint32_t>{2, 3, 4, 5, 0, 1}));
    }
    if (o.memory == MemoryClass::kSlidingWindow) {
      const AttentionBody& window = state->attention.at(1);
      EXPECT_EQ(window.cells, o.window);
      EXPECT_EQ(window.position_first, 2);
      EXPECT_EQ(window.layers.size(), o.swa_layers);
    }
  }
}

TEST(SequenceStateParse, FindsTheRowsWhereTheyStand) {
  StateOptions o;
  o.tokens = CountingTokens(3);
  const Bytes bytes = BuildState(o);
  const auto state = Parse(bytes);
  ASSERT_TRUE(state.has_value());
  const LayerState& first = state->attention[0].layers[0];
  const LayerState& last = state->attention[0].layers[1];
  // 12 header, 7 words of tokens, stream and cell count, 3 records, V layout, layers, rotations, type and row size.
  EXPECT_EQ(state->body_offset, 40u);
  EXPECT_EQ(state->attention[0].cells_offset, 48u);
  EXPECT_EQ(first.k_offset, 48u + 3 * 12 + 16 + 12);
  EXPECT_EQ(last.k_offset, first.k_offset + 3 * 64 + 12);
  EXPECT_EQ(last.v_offset + 3 * 64, bytes.size());
}

// B24: a saved empty slot. The file is honest; storing nothing for it is the caller's business.
TEST(SequenceStateParse, AcceptsTheFileOfAnEmptySlot) {
  StateOptions o;
  EXPECT_EQ(BuildState(o).size(), 36u);  // as measured at -np 1
  auto state = Parse(BuildState(o));
  ASSERT_TRUE(state.has_value()) << state.error().ToString();
  EXPECT_TRUE(state->tokens.empty());
  EXPECT_EQ(state->BytesPerToken(), 0u);
  o.streams = 2;
  EXPECT_EQ(BuildState(o).size(), 40u);  // as measured at -np 2
  EXPECT_TRUE(Parse(BuildState(o)).has_value());
  o.packed_tokens = false;
  EXPECT_TRUE(Parse(BuildState(o)).has_value());
  for (const MemoryClass memory : {MemoryClass::kSlidingWindow, MemoryClass::kRecurrent, MemoryClass::kHybrid}) {
    o.memory = memory;
    state = Parse(BuildState(o), memory);
    EXPECT_TRUE(state.has_value()) << state.error().ToString();
  }
}

// B24: no size but the right one passes, for any class.
TEST(SequenceStateParse, RefusesEveryOtherSize) {
  for (const StateOptions& o : EveryKind()) {
    const Bytes whole = BuildState(o);
    for (size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const auto state = Parse(cut, o);
      // A file cut exactly where the checkpoint tail began is a whole file without checkpoints.
      if (state && o.checkpoints > 0) {
        EXPECT_EQ(size, Parse(whole, o)->body_end);
        continue;
      }
      ASSERT_FALSE(state.has_value()) << "cut to " << size << " of " << whole.size();
    }
    for (const size_t extra : {1, 3, 4, 8, 12, 110}) {
      Bytes longer = whole;
      longer.resize(whole.size() + extra);
      EXPECT_FALSE(Parse(longer, o).has_value()) << extra << " more bytes";
    }
  }
}

// Whether there are V rows is told, not guessed: a file cut right behind its K rows must not pass for an MLA file.
TEST(SequenceStateParse, IsToldWhetherThereAreVRows) {
  StateOptions o;
  o.tokens = CountingTokens(6);
  const Bytes with_v = BuildState(o);
  o.with_v = false;
  const Bytes without_v = BuildState(o);
  EXPECT_TRUE(std::equal(without_v.begin(), without_v.end(), with_v.begin()));
  EXPECT_FALSE(Parse(without_v, MemoryClass::kPlain).has_value());
  EXPECT_TRUE(Parse(without_v, MemoryClass::kPlain, {.without_v = true}).has_value());
  EXPECT_FALSE(Parse(with_v, MemoryClass::kPlain, {.without_v = true}).has_value());
}

// B24: the corpus by name.
TEST(SequenceStateParse, RefusesWrongHeaders) {
  StateOptions o;
  o.tokens = CountingTokens(5);
  const Bytes good = BuildState(o);
  ASSERT_TRUE(Parse(good).has_value());
  struct Case {
    size_t offset;
    uint32_t value;
    std::optional<ErrorCode> code;  // none: the fields behind are read shifted, any error will do
    const char* says;
  };
  for (const Case& c :
       std::vector<Case>{{0, 0x67677370, ErrorCode::kCorrupt, "magic"},
                         {4, 1, ErrorCode::kUnsupported, "version 1"},
                         {4, 5, ErrorCode::kUnsupported, "version 5"},
                         {4, 0xffffffff, ErrorCode::kUnsupported, "version"},
                         {8, 0, std::nullopt, ""},
                         {8, 8, std::nullopt, ""},
                         {8, 10, std::nullopt, ""},
                         {8, 0x80000000, ErrorCode::kCorrupt, "words"},
                         {8, 0xffffffff, ErrorCode::kCorrupt, "words"},
                         {12, 0, ErrorCode::kCorrupt, ""},               // the marker of the packed section
                         {16, 2, ErrorCode::kUnsupported, "version 2"},  // its version
                         {20, 4, std::nullopt, ""},                      // token count
                         {20, 6, std::nullopt, ""},
                         {20, 0x80000000, ErrorCode::kUnsupported, "tokens"},
                         {24, 0xffffffff, ErrorCode::kCorrupt, "token 0"},
                         {44, 1, ErrorCode::kCorrupt, "media"},  // media without chunks
                         {48, 0, ErrorCode::kCorrupt, "streams"},
                         {48, 2, ErrorCode::kCorrupt, ""},
                         {48, 0xffffffff, ErrorCode::kUnsupported, "streams"},
                         {52, 4, ErrorCode::kCorrupt, "cells"},  // cell count
                         {52, 0, ErrorCode::kCorrupt, ""},
                         {52, 0xffffffff, ErrorCode::kCorrupt, "cells"},
                         {56, 0xfffffffb, ErrorCode::kCorrupt, "position -5"},  // B15 class: poisons the slot for good
                         {56, 1, ErrorCode::kCorrupt, "both have position 1"},  // accepted silently by the server
                         {56, 5, ErrorCode::kCorrupt, "position 5"},
                         {60, 0, ErrorCode::kCorrupt, "sequences"},
                         {60, 2, ErrorCode::kCorrupt, "sequences"},
                         {60, 0x80000000, ErrorCode::kCorrupt, "sequences"},
                         {64, 1, ErrorCode::kCorrupt, "sequence id"},
                         {64, 0xffffffff, ErrorCode::kCorrupt, "sequence id"},
                         {116, 2, ErrorCode::kUnsupported, "V layout"},
                         {120, 3, ErrorCode::kCorrupt, ""},  // layers
                         {120, 0xffffffff, ErrorCode::kUnsupported, "layers"},
                         {124, 3, ErrorCode::kUnsupported, "rotation"},
                         {132, 39, ErrorCode::kUnsupported, "row type 39"},
                         {132, 8, ErrorCode::kCorrupt, "q8_0"},
                         {136, 0, ErrorCode::kCorrupt, "empty K rows"},
                         {136, 66, std::nullopt, ""},
                         {140, 1, ErrorCode::kCorrupt, "K rows of layer 0"},  // row size beyond 32 bits
                         {140, 0x80000000, ErrorCode::kCorrupt, "K rows of layer 0"}}) {
    Bytes bytes = good;
    Put32(bytes, c.offset, c.value);
    const auto state = Parse(bytes);
    ASSERT_FALSE(state.has_value()) << "value " << c.value << " at " << c.offset;
    EXPECT_EQ(state.error().code, c.code.value_or(state.error().code))
        << state.error().ToString() << " for " << c.value << " at " << c.offset;
    EXPECT_TRUE(Says(state.error(), c.says)) << state.error().message << c.value << " at " << c.offset;
  }
}

// B24, B15: one changed byte anywhere outside tokens and rows is an error or means the same.
TEST(SequenceStateParse, NoticesChangedMetadata) {
  std::set<std::string> unnoticed;
  for (const StateOptions& o : EveryKind()) {
    const Bytes good = BuildState(o);
    const auto original = Parse(good, o);
    ASSERT_TRUE(original.has_value());
    // Parsing a source whose rows are out of reach tells which bytes are metadata.
    std::vector<bool> is_metadata(good.size(), false);
    class Recorder final : public ByteSource {
     public:
      Recorder(const Bytes& bytes, std::vector<bool>& seen) : memory_(bytes), seen_(seen) {}
      uint64_t size_bytes() const override { return memory_.size_bytes(); }
      Result<void> Read(uint64_t offset, std::span<std::byte> into) const override {
        std::fill_n(seen_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), true);
        return memory_.Read(offset, into);
      }

     private:
      MemorySource memory_;
      std::vector<bool>& seen_;
    };
    ASSERT_TRUE(ParseSequenceState(Recorder(good, is_metadata), o.memory, {.without_v = !o.with_v}).has_value());
    for (size_t at = 0; at < good.size(); ++at) {
      if (!is_metadata[at]) continue;
      for (const int mask : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
        Bytes bytes = good;
        bytes[at] ^= static_cast<std::byte>(mask);
        const auto state = Parse(bytes, o);
        if (!state || *state == *original) continue;
        // It parsed, to something else. Allowed is only what no size or position can contradict.
        SequenceState same = *state;
        std::string what;
        if (same.version != original->version) what += "version ", same.version = original->version;
        if (same.tokens != original->tokens) what += "token ", same.tokens = original->tokens;
        if (same.recurrent && same.recurrent->model_layers != original->recurrent->model_layers) {
          what += "model_layers ", same.recurrent->model_layers = original->recurrent->model_layers;
        }
        for (size_t i = 0; i < same.attention.size(); ++i) {
          AttentionBody& body = same.attention[i];
          const AttentionBody& before = original->attention[i];
          if (!o.with_v && body.v_transposed != before.v_transposed) {
            what += "layout of no V ", body.v_transposed = before.v_transposed;
          }
          if (body.k_rotation != before.k_rotation) what += "rotation ", body.k_rotation = before.k_rotation;
          if (body.v_rotation != before.v_rotation) what += "rotation ", body.v_rotation = before.v_rotation;
          for (size_t l = 0; l < body.layers.size() && l < before.layers.size(); ++l) {
            if (body.layers[l].k.ggml_type != before.layers[l].k.ggml_type) {
              what += "row type ", body.layers[l].k.ggml_type = before.layers[l].k.ggml_type;
            }
            if (body.layers[l].v && body.layers[l].v->ggml_type != before.layers[l].v->ggml_type) {
              what += "row type ", body.layers[l].v->ggml_type = before.layers[l].v->ggml_type;
            }
          }
        }
        if (same.recurrent) {
          for (size_t l = 0; l < same.recurrent->layers.size(); ++l) {
            if (same.recurrent->layers[l].r.ggml_type != original->recurrent->layers[l].r.ggml_type) {
              what += "row type ", same.recurrent->layers[l].r.ggml_type = 0;
            }
            if (same.recurrent->layers[l].s.ggml_type != original->recurrent->layers[l].s.ggml_type) {
              what += "row type ", same.recurrent->layers[l].s.ggml_type = 0;
            }
          }
        }
        EXPECT_EQ(same, *original) << "byte " << at << " of " << good.size() << " changed by " << mask << " in version "
                                   << o.version << ", memory " << static_cast<int>(o.memory);
        unnoticed.insert(what);
      }
    }
  }
  // What the structure cannot show; the object's checksum and the identity in its header do.
  const std::set<std::string> invisible = {"version ",  "token ",        "rotation ",
                                           "row type ", "model_layers ", "layout of no V "};
  for (const std::string& what : unnoticed) EXPECT_TRUE(invisible.contains(what)) << what;
}

TEST(SequenceStateParse, HoldsTokensAgainstTheVocabulary) {
  StateOptions o;
  o.tokens = {1, 49151};
  EXPECT_TRUE(Parse(BuildState(o), MemoryClass::kPlain, {.vocabulary = 49152}).has_value());
  EXPECT_FALSE(Parse(BuildState(o), MemoryClass::kPlain, {.vocabulary = 49151}).has_value());
  o.packed_tokens = false;
  EXPECT_FALSE(Parse(BuildState(o), MemoryClass::kPlain, {.vocabulary = 49151}).has_value());
  o.tokens = {1, -1};
  EXPECT_FALSE(Parse(BuildState(o)).has_value());
  o.packed_tokens = true;
  EXPECT_FALSE(Parse(BuildState(o)).has_value()) << "a placeholder without media";
}

// B06: a state with pictures is recognised, so that it is never stored or rewritten.
TEST(SequenceStateParse, FlagsMedia) {
  StateOptions o;
  o.tokens = CountingTokens(4);
  o.media_words = 9;
  const auto state = Parse(BuildState(o));
  ASSERT_TRUE(state.has_value()) << state.error().ToString();
  EXPECT_TRUE(state->has_media);
  EXPECT_FALSE(state->Rewritable());
  Bytes shifted = BuildState(o);  // a picture's cells share a position
  Put32(shifted, state->attention[0].cells_offset + 12, 0);
  const auto refused = Parse(shifted);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(Says(refused.error(), "media")) << refused.error().message;
}

TEST(SequenceStateParse, RefusesTheWrongMemoryClass) {
  for (const StateOptions& o : EveryKind()) {
    for (const MemoryClass memory :
         {MemoryClass::kPlain, MemoryClass::kSlidingWindow, MemoryClass::kRecurrent, MemoryClass::kHybrid}) {
      EXPECT_EQ(Parse(BuildState(o), memory, {.without_v = !o.with_v}).has_value(), memory == o.memory)
          << "built " << static_cast<int>(o.memory) << ", read as " << static_cast<int>(memory);
    }
  }
}

TEST(SequenceStateParse, RefusesCheckpointsThatDoNotFitTheState) {
  StateOptions o;
  o.tokens = CountingTokens(6);
  o.memory = MemoryClass::kSlidingWindow;
  o.checkpoints = 1;
  const Bytes good = BuildState(o);
  const auto state = Parse(good, o);
  ASSERT_TRUE(state.has_value());
  const size_t tail = state->body_end;
  struct Case {
    size_t offset;
    uint32_t value;
    const char* says;
  };
  for (const Case& c : std::vector<Case>{{0, 0, "no checkpoint tail"},
                                         {4, 2, "version 2"},
                                         {8, 0, "0 checkpoints"},
                                         {8, 2, ""},
                                         {8, 2000, "2000 checkpoints"},
                                         {12, 7, "checkpoint 0 of 7 tokens"},
                                         {12, 0, "checkpoint 0"},
                                         {16, 1, "checkpoint 0"},  // upper half of the token count
                                         {20, 0xffffffff, "positions -1"},
                                         {24, 6, "positions 0..6"},
                                         {28, 8, ""},            // blob size
                                         {32, 1, "checkpoint"},  // its upper half
                                         {36, 0, "checkpoint magic"},
                                         {40, 0xffffffff, "sequence id"},
                                         {44, 2, ""},  // streams
                                         {48, 3, ""},  // cells
                                         {good.size() - tail - 16, 4, "draft"},
                                         {good.size() - tail - 8, 4, "speculative"}}) {
    Bytes bytes = good;
    Put32(bytes, tail + c.offset, c.value);
    const auto refused = Parse(bytes, o);
    ASSERT_FALSE(refused.has_value()) << c.value << " at tail + " << c.offset;
    EXPECT_TRUE(Says(refused.error(), c.says)) << refused.error().message << c.value << " at tail + " << c.offset;
  }
}

// C6: counts are compared with what is left before anything is allocated; the limits are named.
TEST(SequenceStateParse, NamesItsLimits) {
  StateOptions o;
  o.tokens = CountingTokens(10);
  o.streams = 3;
  o.layers = 5;
  const Bytes bytes = BuildState(o);
  EXPECT_TRUE(Parse(bytes, o.memory, {.tokens_max = 10, .layers_max = 5, .streams_max = 3}).has_value());
  for (const ParseLimits& limits :
       {ParseLimits{.tokens_max = 9}, ParseLimits{.layers_max = 4}, ParseLimits{.streams_max = 2}}) {
    const auto state = Parse(bytes, o.memory, limits);
    ASSERT_FALSE(state.has_value());
    EXPECT_EQ(state.error().code, ErrorCode::kUnsupported);
  }
}

// A source that counts: the parser must not read rows, whatever the file's size.
TEST(SequenceStateParse, ReadsOnlyMetadata) {
  class Counter final : public ByteSource {
   public:
    explicit Counter(const Bytes& bytes) : memory_(bytes) {}
    uint64_t size_bytes() const override { return memory_.size_bytes(); }
    Result<void> Read(uint64_t offset, std::span<std::byte> into) const override {
      bytes_read += into.size();
      ++reads;
      return memory_.Read(offset, into);
    }
    mutable uint64_t bytes_read = 0;
    mutable int reads = 0;

   private:
    MemorySource memory_;
  };
  StateOptions o;
  o.tokens = CountingTokens(20'000);
  o.kv_dimension = 64;
  const Bytes bytes = BuildState(o);
  const Counter counter(bytes);
  ASSERT_TRUE(ParseSequenceState(counter, o.memory).has_value());
  EXPECT_LT(counter.bytes_read, 20'000u * 16 + 200);  // a token id and a cell record each, and the headers
  EXPECT_LT(counter.reads, 40);
}

TEST(SequenceStateParse, PassesErrorsOfTheSourceOn) {
  class Broken final : public ByteSource {
   public:
    explicit Broken(int good_reads) : good_reads_(good_reads) {}
    uint64_t size_bytes() const override { return 1000; }
    Result<void> Read(uint64_t, std::span<std::byte>) const override {
      if (good_reads_-- > 0) return {};
      return Fail(ErrorCode::kIo, "the disk is gone");
    }

   private:
    mutable int good_reads_;
  };
  const auto state = ParseSequenceState(Broken(0), MemoryClass::kPlain);
  ASSERT_FALSE(state.has_value());
  EXPECT_EQ(state.error().code, ErrorCode::kIo);
}

TEST(LayoutDescriptor, LeavesOutWhatCanBeRewritten) {
  StateOptions o;
  o.tokens = CountingTokens(4);
  StateOptions other = o;
  other.streams = 4, other.stream = 3, other.sequence_id = 3, other.rotate_cells = 1;
  other.tokens = CountingTokens(9);
  EXPECT_EQ(Parse(BuildState(o))->LayoutDescriptor(), Parse(BuildState(other))->LayoutDescriptor());
  o.v_transposed = other.v_transposed = true;
  EXPECT_NE(Parse(BuildState(o))->LayoutDescriptor(), Parse(BuildState(other))->LayoutDescriptor());
}

TEST(LayoutDescriptor, TellsEverythingElseApart) {
  std::set<std::string> descriptors;
  std::vector<StateOptions> all = {StateOptions{}};
  const auto add = [&](auto change) {
    StateOptions o;
    change(o);
    all.push_back(o);
  };
  add([](auto& o) { o.version = 2; });
  add([](auto& o) { o.version = 3; });
  add([](auto& o) { o.layers = 3; });
  add([](auto& o) { o.kv_dimension = 64; });
  add([](auto& o) { o.type = BuiltType::kF32; });
  add([](auto& o) { o.type = BuiltType::kQ8_0; });
  add([](auto& o) { o.v_transposed = true; });
  add([](auto& o) { o.v_transposed = true, o.streams = 2; });
  add([](auto& o) { o.with_v = false; });
  add([](auto& o) { o.with_cell_ext = true; });
  add([](auto& o) { o.k_rotation = 64; });
  add([](auto& o) { o.v_rotation = 64; });
  add([](auto& o) { o.memory = MemoryClass::kSlidingWindow; });
  add([](auto& o) { o.memory = MemoryClass::kSlidingWindow, o.streams = 2; });
  add([](auto& o) { o.memory = MemoryClass::kSlidingWindow, o.swa_layers = 4; });
  add([](auto& o) { o.memory = MemoryClass::kRecurrent; });
  add([](auto& o) { o.memory = MemoryClass::kRecurrent, o.recurrent_r = 16; });
  add([](auto& o) { o.memory = MemoryClass::kRecurrent, o.recurrent_layers = 3; });
  add([](auto& o) { o.memory = MemoryClass::kHybrid; });
  for (StateOptions& o : all) {
    o.tokens = CountingTokens(5);
    const auto state = Parse(BuildState(o), o);
    ASSERT_TRUE(state.has_value()) << state.error().ToString();
    descriptors.insert(state->LayoutDescriptor());
  }
  EXPECT_EQ(descriptors.size(), all.size());
}

TEST(SequenceState, SizesComingSaves) {
  StateOptions o;
  o.tokens = CountingTokens(100);
  o.layers = 1;
  const auto state = Parse(BuildState(o));
  // 128 bytes of rows, 12 of cell record, 4 of token, and a share of 80 bytes of headers.
  EXPECT_EQ(state->BytesPerToken(), 145u);
}

// Random damage: any byte string ends in a value or an error.
TEST(SequenceStateParse, SurvivesRandomDamage) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE("seed " + std::to_string(seed));
  uint64_t random = seed;
  const auto next = [&] { return random = ::moonpool::testing::state_builder::Mix(random); };
  for (const StateOptions& o : EveryKind()) {
    const Bytes good = BuildState(o);
    for (int round = 0; round < 300; ++round) {
      Bytes bytes = good;
      for (uint64_t hits = 1 + next() % 4; hits > 0; --hits) {
        const size_t at = next() % std::min<size_t>(bytes.size() - 4, 200);
        if (next() % 2 == 0) {
          Put32(bytes, at, static_cast<uint32_t>(next()));
        } else {
          bytes[at] = static_cast<std::byte>(next());
        }
      }
      const auto memory = static_cast<MemoryClass>(next() % 4);
      const auto state = Parse(bytes, memory);
      EXPECT_TRUE(!state || state->body_end <= bytes.size());
    }
  }
}

}  // namespace
}  // namespace moonpool::bus

// The distance of two saves, and the number formats it reads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "bus/kvstate/row_codec.h"
#include "bus/kvstate/sequence_state.h"
#include "support/state_builder.h"

namespace moonpool::bus {
namespace {

using ::moonpool::testing::BuildState;
using ::moonpool::testing::BuiltType;
using ::moonpool::testing::CountingTokens;
using ::moonpool::testing::StateOptions;

using Bytes = std::vector<std::byte>;

Result<StateDistance> Compare(const Bytes& a, const Bytes& b, const StateOptions& o) {
  const ParseLimits limits{.without_v = !o.with_v};
  MP_ASSIGN_OR_RETURN(const SequenceState state_a, ParseSequenceState(MemorySource(a), o.memory, limits));
  MP_ASSIGN_OR_RETURN(const SequenceState state_b, ParseSequenceState(MemorySource(b), o.memory, limits));
  return CompareStates(MemorySource(a), state_a, MemorySource(b), state_b);
}

// Blocks and what another implementation makes of them (tests/golden/kvstate/README.md), every format.
TEST(RowCodec, DecodesAsOthersDo) {
  std::ifstream golden(MOONPOOL_SOURCE_DIR "/tests/golden/kvstate/row_codec.txt");
  int formats = 0;
  for (std::string line; std::getline(golden, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    uint32_t type = 0;
    std::string hex, colon;
    fields >> type >> hex >> colon;
    Bytes bytes(hex.size() / 2);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    }
    const RowCodec* codec = FindRowCodec(type);
    ASSERT_NE(codec, nullptr) << type;
    std::vector<float> decoded(codec->Elements(bytes.size()));
    codec->Decode(bytes, decoded);
    for (size_t i = 0; i < decoded.size(); ++i) {
      std::string expected;
      ASSERT_TRUE(fields >> expected) << codec->name << " element " << i;
      EXPECT_FLOAT_EQ(decoded[i], std::strtof(expected.c_str(), nullptr)) << codec->name << " element " << i;
    }
    ++formats;
  }
  EXPECT_EQ(formats, 9);
}

TEST(RowCodec, KnowsWhatItDoesNotKnow) {
  for (const uint32_t type : {4u, 5u, 9u, 10u, 39u, 0xffffffffu}) EXPECT_EQ(FindRowCodec(type), nullptr);
}

std::vector<StateOptions> EveryLayout() {
  std::vector<StateOptions> layouts(7);
  for (StateOptions& o : layouts) o.tokens = CountingTokens(9);
  layouts[1].v_transposed = true;
  layouts[2].with_v = false;
  layouts[3].type = BuiltType::kQ8_0;
  layouts[4].memory = MemoryClass::kSlidingWindow;
  layouts[5].memory = MemoryClass::kRecurrent;
  layouts[6].memory = MemoryClass::kHybrid;
  return layouts;
}

TEST(CompareStates, FindsNoDistanceBetweenEqualRows) {
  for (const StateOptions& o : EveryLayout()) {
    const auto distance = Compare(BuildState(o), BuildState(o), o);
    ASSERT_TRUE(distance.has_value()) << distance.error().ToString();
    EXPECT_EQ(distance->first_layer_k, 0);
    EXPECT_EQ(distance->worst_layer, 0);
  }
}

TEST(CompareStates, FindsRandomRowsFarApart) {
  for (const StateOptions& o : EveryLayout()) {
    StateOptions other = o;
    other.seed = 2;
    const auto distance = Compare(BuildState(o), BuildState(other), o);
    ASSERT_TRUE(distance.has_value()) << distance.error().ToString();
    EXPECT_GT(distance->first_layer_k, 0.5);
    EXPECT_GE(distance->worst_layer, distance->first_layer_k);
  }
}

// Another slot, another -np and a wrapped cache change where rows stand, not what they say.
TEST(CompareStates, MatchesRowsByPosition) {
  for (const bool v_transposed : {false, true}) {
    StateOptions o;
    o.tokens = CountingTokens(9);
    o.v_transposed = v_transposed;
    StateOptions moved = o;
    moved.rotate_cells = 4, moved.sequence_id = 5;
    const auto distance = Compare(BuildState(o), BuildState(moved), o);
    ASSERT_TRUE(distance.has_value()) << distance.error().ToString();
    EXPECT_EQ(distance->worst_layer, 0);
  }
}

// One changed element of known size, in the first K layer and elsewhere.
TEST(CompareStates, MeasuresRelativeL2) {
  StateOptions o;
  o.tokens = CountingTokens(2);
  o.layers = 2;
  o.type = BuiltType::kF32;
  Bytes a = BuildState(o);
  const auto state = ParseSequenceState(MemorySource(a), MemoryClass::kPlain);
  ASSERT_TRUE(state.has_value());
  const LayerState& first = state->attention[0].layers[0];
  const LayerState& second = state->attention[0].layers[1];
  const size_t elements = 2 * 32;
  const auto fill = [&](Bytes& bytes, uint64_t offset, float value) {
    for (size_t i = 0; i < elements; ++i) std::memcpy(bytes.data() + offset + 4 * i, &value, sizeof value);
  };
  for (const LayerState* layer : {&first, &second}) fill(a, layer->k_offset, 2.0f), fill(a, layer->v_offset, 2.0f);
  Bytes b = a;
  fill(b, first.k_offset, 1.98f);  // 1 %
  fill(b, second.v_offset, 1.8f);  // 10 %
  const auto distance = Compare(a, b, o);
  ASSERT_TRUE(distance.has_value());
  EXPECT_NEAR(distance->first_layer_k, 0.01, 1e-6);
  EXPECT_NEAR(distance->worst_layer, 0.1, 1e-6);

  const float not_a_number = std::nanf("");
  std::memcpy(b.data() + second.k_offset, &not_a_number, sizeof not_a_number);
  EXPECT_TRUE(std::isinf(Compare(a, b, o)->worst_layer));
}

TEST(CompareStates, RefusesWhatCannotBeCompared) {
  StateOptions o;
  o.tokens = CountingTokens(4);
  StateOptions tokens = o, layout = o;
  tokens.tokens = CountingTokens(4, 200);
  layout.layers = 3;
  EXPECT_EQ(Compare(BuildState(o), BuildState(tokens), o).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(Compare(BuildState(o), BuildState(layout), o).error().code, ErrorCode::kUnsupported);
}

TEST(CompareStates, ReadsLargeLayersInPieces) {
  StateOptions o;
  o.tokens = CountingTokens(5000);
  o.layers = 1;
  o.kv_dimension = 256;
  StateOptions wrapped = o;
  wrapped.rotate_cells = 1234;
  const auto distance = Compare(BuildState(o), BuildState(wrapped), o);
  ASSERT_TRUE(distance.has_value());
  EXPECT_EQ(distance->worst_layer, 0);
}

}  // namespace
}  // namespace moonpool::bus

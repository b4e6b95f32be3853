#include "bus/kvstate/sequence_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "bus/kvstate/state_cursor.h"
#include "bus/kvstate/state_format.h"
#include "bus/kvstate/state_parser.h"

namespace moonpool::bus {
namespace {

// What makes a layout rewritable, whatever the single file holds.
bool LayoutIsRewritable(const SequenceState& state) {
  return state.memory == MemoryClass::kPlain && !state.recurrent && state.attention.size() == 1 &&
         !state.attention[0].v_transposed;
}

const char* Name(MemoryClass memory) {
  switch (memory) {
    case MemoryClass::kPlain: return "plain";
    case MemoryClass::kSlidingWindow: return "sliding-window";
    case MemoryClass::kRecurrent: return "recurrent";
    case MemoryClass::kHybrid: return "hybrid";
  }
  return "unknown";
}

Result<void> ParseTokens(StateCursor& cursor, const ParseLimits& limits, SequenceState& state) {
  MP_ASSIGN_OR_RETURN(const uint32_t words, cursor.Take<uint32_t>("token section size"));
  if (words > cursor.left() / 4) {
    return cursor.Corrupt(fmt::format("a token section of {} words, {} bytes are left", words, cursor.left()));
  }
  MP_ASSIGN_OR_RETURN(StateCursor section, cursor.Part(uint64_t{words} * 4, "token section"));
  uint32_t count = words;
  if (words > 0) {
    MP_ASSIGN_OR_RETURN(const uint32_t first, section.Peek());
    state.packed_tokens = static_cast<int32_t>(first) == kPackedTokensMarker;
  }
  if (state.packed_tokens) {
    MP_RETURN_IF_ERROR(section.Skip(1, 4, "token section marker"));
    MP_ASSIGN_OR_RETURN(const uint32_t version, section.Take<uint32_t>("token section version"));
    if (version != kPackedTokensVersion) return section.Unsupported(fmt::format("token section version {}", version));
    MP_ASSIGN_OR_RETURN(count, section.Take<uint32_t>("token count"));
  }
  if (count > limits.tokens_max) {
    return section.Unsupported(fmt::format("{} tokens, at most {} are read", count, limits.tokens_max));
  }
  if (count > section.left() / 4) {
    return section.Corrupt(fmt::format("{} tokens in a section with {} bytes left", count, section.left()));
  }
  const uint64_t tokens_offset = section.at();
  state.tokens.resize(count);
  MP_RETURN_IF_ERROR(section.TakeBytes(std::as_writable_bytes(std::span(state.tokens)), "tokens"));
  if (state.packed_tokens) {
    MP_ASSIGN_OR_RETURN(const uint32_t media, section.Take<uint32_t>("media count"));
    state.has_media = media != 0;
    // What media chunks look like inside is not our business, since such a state is never stored; they have to fill
    // the rest of the section.
    if (state.has_media != (section.left() != 0)) {
      return section.Corrupt(fmt::format("{} media entries in {} bytes", media, section.left()));
    }
  }
  for (size_t i = 0; i < state.tokens.size(); ++i) {
    const TokenId token = state.tokens[i];
    if (state.has_media && token == kPackedTokensMarker) continue;  // a media placeholder
    if (token < 0 || (limits.vocabulary != 0 && static_cast<uint32_t>(token) >= limits.vocabulary)) {
      return Fail(ErrorCode::kCorrupt, fmt::format("offset {}: token {} is {}, the vocabulary ends at {}",
                                                   tokens_offset + 4 * i, i, token, limits.vocabulary));
    }
  }
  return {};
}

void Describe(std::string& out, const RowType& row) {
  fmt::format_to(std::back_inserter(out), "{}:{}", row.ggml_type, row.row_bytes);
}

std::string Describe(const LayerState& layer) {
  std::string out = "k=";
  Describe(out, layer.k);
  if (layer.v) {
    out += ",v=";
    Describe(out, *layer.v);
    if (layer.v_channels != 0) fmt::format_to(std::back_inserter(out), "/{}", layer.v_channels);
  }
  return out;
}

std::string Describe(const RecurrentLayer& layer) {
  std::string out = "r=";
  Describe(out, layer.r);
  out += ",s=";
  Describe(out, layer.s);
  return out;
}

// Equal neighbours are counted rather than repeated: "(k=1:384,v=1:384)*30".
template <class Layer>
void DescribeLayers(std::string& out, const std::vector<Layer>& layers) {
  std::string previous;
  size_t run = 0;
  const auto flush = [&] {
    if (run > 0) fmt::format_to(std::back_inserter(out), "({})*{}", previous, run);
    run = 0;
  };
  for (const Layer& layer : layers) {
    std::string text = Describe(layer);
    if (text != previous) flush();
    previous = std::move(text);
    ++run;
  }
  flush();
}

}  // namespace

bool SequenceState::Rewritable() const { return LayoutIsRewritable(*this) && checkpoints == 0 && !has_media; }

std::string SequenceState::LayoutDescriptor() const {
  std::string out = fmt::format("state={} memory={}", version, Name(memory));
  for (const AttentionBody& body : attention) {
    fmt::format_to(std::back_inserter(out), " attention[cell={} vt={} rot={}/{}", body.cell_meta_bytes,
                   body.v_transposed ? 1 : 0, body.k_rotation, body.v_rotation);
    if (!LayoutIsRewritable(*this)) fmt::format_to(std::back_inserter(out), " streams={}", body.streams);
    out += " layers=";
    DescribeLayers(out, body.layers);
    out += ']';
  }
  if (recurrent) {
    fmt::format_to(std::back_inserter(out), " recurrent[of={} layers=", recurrent->model_layers);
    DescribeLayers(out, recurrent->layers);
    out += ']';
  }
  return out;
}

uint64_t SequenceState::BytesPerToken() const {
  return tokens.empty() ? 0 : (file_bytes + tokens.size() - 1) / tokens.size();
}

Result<SequenceState> ParseSequenceState(const ByteSource& source, MemoryClass memory, const ParseLimits& limits) {
  SequenceState state;
  state.memory = memory;
  state.file_bytes = source.size_bytes();
  StateCursor cursor(source, 0, source.size_bytes());
  MP_ASSIGN_OR_RETURN(const uint32_t magic, cursor.Take<uint32_t>("magic"));
  if (magic != kStateMagic) return cursor.Corrupt(fmt::format("magic {:#x} is no sequence state", magic));
  MP_ASSIGN_OR_RETURN(state.version, cursor.Take<uint32_t>("version"));
  if (state.version < kStateVersionFirst || state.version > kStateVersionLast) {
    return cursor.Unsupported(fmt::format("sequence state version {}", state.version));
  }
  MP_RETURN_IF_ERROR(ParseTokens(cursor, limits, state));
  state.body_offset = cursor.at();

  // Without extended cell records first, the common kind. If both attempts fail, the error that helps is the one of the
  // attempt that could make sense of the cells.
  std::optional<Error> error;
  bool understood_cells = false;
  for (const bool extended_cells : {false, true}) {
    state.attention.clear();
    state.recurrent.reset();
    state.checkpoints = 0;
    StateCursor body = cursor;
    StateParser parser(limits, extended_cells, state);
    auto parsed = parser.ParseBodies(body);
    if (parsed) return state;
    const ErrorCode code = parsed.error().code;
    if (code != ErrorCode::kCorrupt && code != ErrorCode::kUnsupported) return Fail(std::move(parsed).error());
    if (!error || (parser.understood_cells() && !understood_cells)) error = std::move(parsed).error();
    understood_cells = understood_cells || parser.understood_cells();
  }
  // Pictures may share positions or take several cells, so what looks damaged may be honest.
  if (state.has_media) return Fail(ErrorCode::kUnsupported, "a state with media: " + error->message);
  return Fail(std::move(*error));
}

}  // namespace moonpool::bus

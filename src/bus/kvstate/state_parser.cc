#include "bus/kvstate/state_parser.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "bus/kvstate/row_codec.h"
#include "bus/kvstate/state_format.h"

namespace moonpool::bus {
namespace {

constexpr uint32_t kNoCell = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kRotationMax = 65536;

Result<const RowCodec*> TakeCodec(StateCursor& cursor) {
  MP_ASSIGN_OR_RETURN(const uint32_t type, cursor.Take<uint32_t>("row type"));
  const RowCodec* codec = FindRowCodec(type);
  if (codec == nullptr) return cursor.Unsupported(fmt::format("row type {} is not known", type));
  return codec;
}

// The header of a block of rows: type and bytes per row.
Result<RowType> TakeRowType(StateCursor& cursor) {
  MP_ASSIGN_OR_RETURN(const RowCodec* codec, TakeCodec(cursor));
  MP_ASSIGN_OR_RETURN(const uint64_t row_bytes, cursor.Take<uint64_t>("row size"));
  if (row_bytes % codec->block_bytes != 0) {
    return cursor.Corrupt(fmt::format("a row of {} bytes is no whole number of {} blocks", row_bytes, codec->name));
  }
  return RowType{.ggml_type = codec->ggml_type, .row_bytes = row_bytes};
}

Result<uint32_t> TakeLayerCount(StateCursor& cursor, const ParseLimits& limits) {
  MP_ASSIGN_OR_RETURN(const uint32_t layers, cursor.Take<uint32_t>("layer count"));
  if (layers > limits.layers_max) {
    return cursor.Unsupported(fmt::format("{} layers, at most {} are read", layers, limits.layers_max));
  }
  return layers;
}

Result<uint32_t> TakeRotation(StateCursor& cursor) {
  MP_ASSIGN_OR_RETURN(const uint32_t rotation, cursor.Take<uint32_t>("KV rotation"));
  if (rotation > kRotationMax || (rotation != 0 && !std::has_single_bit(rotation))) {
    return cursor.Unsupported(fmt::format("KV rotation of size {}", rotation));
  }
  return rotation;
}

bool SameLayers(const AttentionBody& a, const AttentionBody& b) {
  return std::ranges::equal(a.layers, b.layers, [](const LayerState& x, const LayerState& y) {
    return x.k == y.k && x.v == y.v && x.v_channels == y.v_channels;
  });
}

bool SameLayers(const RecurrentBody& a, const RecurrentBody& b) {
  return std::ranges::equal(a.layers, b.layers,
                            [](const RecurrentLayer& x, const RecurrentLayer& y) { return x.r == y.r && x.s == y.s; });
}

}  // namespace

Result<void> StateParser::ParseBodies(StateCursor& cursor) {
  const auto tokens = static_cast<uint32_t>(state_.tokens.size());
  if (state_.memory != MemoryClass::kRecurrent) {
    MP_ASSIGN_OR_RETURN(AttentionBody body, ParseAttention(cursor, tokens, Reach::kAll));
    state_.attention.push_back(std::move(body));
  }
  if (state_.memory == MemoryClass::kSlidingWindow) {
    MP_ASSIGN_OR_RETURN(AttentionBody body, ParseAttention(cursor, tokens, Reach::kWindow));
    if (body.streams != state_.attention[0].streams || body.v_transposed != state_.attention[0].v_transposed) {
      return cursor.Corrupt("the two caches of a sliding-window model differ in streams or V layout");
    }
    state_.attention.push_back(std::move(body));
  }
  const bool no_layers = std::ranges::all_of(state_.attention, [](const auto& body) { return body.layers.empty(); });
  if (tokens > 0 && !state_.attention.empty() && no_layers) return cursor.Corrupt("no layer has KV rows");
  if (state_.memory == MemoryClass::kRecurrent || state_.memory == MemoryClass::kHybrid) {
    MP_ASSIGN_OR_RETURN(state_.recurrent, ParseRecurrent(cursor, tokens));
  }
  state_.body_end = cursor.at();
  if (cursor.left() == 0) return {};
  return ParseCheckpoints(cursor);
}

Result<AttentionBody> StateParser::ParseAttention(StateCursor& cursor, uint32_t tokens, Reach reach) {
  AttentionBody body;
  body.offset = cursor.at();
  body.cell_meta_bytes = kCellMetaBytes;
  if (extended_cells_) body.cell_meta_bytes += state_.version >= kStateVersionCellToken ? 12 : 8;
  MP_ASSIGN_OR_RETURN(body.streams, cursor.Take<uint32_t>("stream count"));
  if (body.streams == 0) return cursor.Corrupt("no streams");
  if (body.streams > limits_.streams_max) {
    return cursor.Unsupported(fmt::format("{} streams, at most {} are read", body.streams, limits_.streams_max));
  }
  for (uint32_t stream = 0; stream < body.streams; ++stream) {
    MP_ASSIGN_OR_RETURN(const uint32_t cells, cursor.Take<uint32_t>("cell count"));
    if (cells == 0) continue;
    if (body.cells != 0) return cursor.Corrupt(fmt::format("streams {} and {} both have cells", body.stream, stream));
    body.stream = stream;
    body.cells = cells;
    MP_RETURN_IF_ERROR(ParseCells(cursor, tokens, reach, body));
    understood_cells_ = true;
    MP_RETURN_IF_ERROR(ParseRows(cursor, body));
  }
  if (body.cells == 0 && tokens != 0) return cursor.Corrupt(fmt::format("no cells for {} tokens", tokens));
  return body;
}

Result<void> StateParser::ParseCells(StateCursor& cursor, uint32_t tokens, Reach reach, AttentionBody& body) const {
  if (body.cells > tokens || (reach == Reach::kAll && body.cells != tokens)) {
    return cursor.Corrupt(fmt::format("{} cells for {} tokens", body.cells, tokens));
  }
  const uint32_t first = tokens - body.cells;  // the last tokens are always there
  body.position_first = static_cast<int32_t>(first);
  body.cells_offset = cursor.at();
  const uint32_t record_bytes = body.cell_meta_bytes;
  if (body.cells > cursor.left() / record_bytes) {
    return cursor.Corrupt(fmt::format("{} cell records do not fit into the {} bytes left", body.cells, cursor.left()));
  }
  const uint32_t records_at_once = std::min<uint32_t>(body.cells, 8192);
  std::vector<std::byte> records(size_t{records_at_once} * record_bytes);
  for (uint32_t cell = 0; cell < body.cells;) {
    const uint32_t count = std::min(records_at_once, body.cells - cell);
    MP_RETURN_IF_ERROR(cursor.TakeBytes(std::span(records).first(size_t{count} * record_bytes), "cell records"));
    for (uint32_t i = 0; i < count; ++i, ++cell) {
      const auto word = [&](uint32_t byte_offset) {
        int32_t value;
        std::memcpy(&value, records.data() + size_t{i} * record_bytes + byte_offset, sizeof value);
        return value;
      };
      const int32_t position = word(0);
      const int32_t sequences = word(4);
      const int32_t sequence = word(record_bytes - 4);  // behind the extended record, if there is one
      if (sequences != 1) return cursor.Corrupt(fmt::format("cell {} belongs to {} sequences", cell, sequences));
      if (sequence < 0 || (cell > 0 && sequence != body.sequence_id)) {
        return cursor.Corrupt(fmt::format("cell {} has sequence id {}", cell, sequence));
      }
      body.sequence_id = sequence;
      if (position < body.position_first || static_cast<uint32_t>(position) >= tokens) {
        return cursor.Corrupt(
            fmt::format("cell {} has position {}, not one of {}..{}", cell, position, first, tokens - 1));
      }
      // A cache that wrapped around has its cells in another order than their positions; any order is honest as long
      // as every position is there once.
      const uint32_t rank = static_cast<uint32_t>(position) - first;
      if (body.cell_of.empty() && rank == cell) continue;
      if (body.cell_of.empty()) {
        body.cell_of.assign(body.cells, kNoCell);
        for (uint32_t earlier = 0; earlier < cell; ++earlier) body.cell_of[earlier] = earlier;
      }
      if (body.cell_of[rank] != kNoCell) {
        return cursor.Corrupt(fmt::format("cells {} and {} both have position {}", body.cell_of[rank], cell, position));
      }
      body.cell_of[rank] = cell;
    }
  }
  return {};
}

Result<void> StateParser::ParseRows(StateCursor& cursor, AttentionBody& body) const {
  MP_ASSIGN_OR_RETURN(const uint32_t v_transposed, cursor.Take<uint32_t>("V layout"));
  if (v_transposed > 1) return cursor.Unsupported(fmt::format("V layout {}", v_transposed));
  body.v_transposed = v_transposed == 1;
  MP_ASSIGN_OR_RETURN(const uint32_t layers, TakeLayerCount(cursor, limits_));
  if (state_.version >= kStateVersionRotation) {
    MP_ASSIGN_OR_RETURN(body.k_rotation, TakeRotation(cursor));
    MP_ASSIGN_OR_RETURN(body.v_rotation, TakeRotation(cursor));
  }
  for (uint32_t i = 0; i < layers; ++i) {
    LayerState layer;
    MP_ASSIGN_OR_RETURN(layer.k, TakeRowType(cursor));
    if (layer.k.row_bytes == 0) return cursor.Corrupt(fmt::format("layer {} has empty K rows", i));
    layer.k_offset = cursor.at();
    MP_RETURN_IF_ERROR(cursor.Skip(body.cells, layer.k.row_bytes, fmt::format("the K rows of layer {}", i)));
    body.layers.push_back(layer);
  }
  if (limits_.without_v) return {};
  for (uint32_t i = 0; i < layers; ++i) {
    LayerState& layer = body.layers[i];
    const std::string field = fmt::format("the V rows of layer {}", i);
    if (!body.v_transposed) {
      MP_ASSIGN_OR_RETURN(layer.v, TakeRowType(cursor));
      if (layer.v->row_bytes == 0) return cursor.Corrupt(fmt::format("layer {} has empty V rows", i));
      layer.v_offset = cursor.at();
      MP_RETURN_IF_ERROR(cursor.Skip(body.cells, layer.v->row_bytes, field));
      continue;
    }
    MP_ASSIGN_OR_RETURN(const RowCodec* codec, TakeCodec(cursor));
    MP_ASSIGN_OR_RETURN(const uint32_t element_bytes, cursor.Take<uint32_t>("V element size"));
    MP_ASSIGN_OR_RETURN(layer.v_channels, cursor.Take<uint32_t>("V channel count"));
    if (codec->block_elements != 1 || element_bytes != codec->block_bytes || layer.v_channels == 0) {
      return cursor.Corrupt(fmt::format("transposed V of layer {}: {} channels of {} bytes of type {}", i,
                                        layer.v_channels, element_bytes, codec->name));
    }
    layer.v = RowType{.ggml_type = codec->ggml_type, .row_bytes = uint64_t{element_bytes} * layer.v_channels};
    layer.v_offset = cursor.at();
    MP_RETURN_IF_ERROR(cursor.Skip(body.cells, layer.v->row_bytes, field));
  }
  return {};
}

Result<RecurrentBody> StateParser::ParseRecurrent(StateCursor& cursor, uint32_t tokens) const {
  RecurrentBody body;
  body.offset = cursor.at();
  MP_ASSIGN_OR_RETURN(body.cells, cursor.Take<uint32_t>("recurrent cell count"));
  if (body.cells != (tokens == 0 ? 0 : 1)) {
    return cursor.Unsupported(fmt::format("{} recurrent cells for {} tokens", body.cells, tokens));
  }
  if (body.cells == 0) return body;
  MP_ASSIGN_OR_RETURN(body.position, cursor.Take<int32_t>("recurrent position"));
  MP_ASSIGN_OR_RETURN(const uint32_t sequences, cursor.Take<uint32_t>("recurrent sequence count"));
  MP_ASSIGN_OR_RETURN(const uint32_t s_transposed, cursor.Take<uint32_t>("S layout"));
  MP_ASSIGN_OR_RETURN(body.model_layers, TakeLayerCount(cursor, limits_));
  if (body.position < 0 || static_cast<uint32_t>(body.position) != tokens - 1) {
    return cursor.Corrupt(fmt::format("recurrent position {} after {} tokens", body.position, tokens));
  }
  if (sequences != 0) return cursor.Corrupt(fmt::format("the recurrent cell lists {} sequences", sequences));
  if (s_transposed != 0) return cursor.Unsupported(fmt::format("S layout {}", s_transposed));

  // First all R rows, then all S rows. Layers without a recurrent state are left out, so only the end of the body
  // tells how many there are.
  struct Row {
    RowType type;
    uint64_t offset;
  };
  std::vector<Row> rows;
  while (cursor.left() != 0) {
    MP_ASSIGN_OR_RETURN(const uint32_t next, cursor.Peek());
    if (next == kCheckpointTailMagic) break;
    if (rows.size() >= 2ull * body.model_layers) {
      return cursor.Corrupt(fmt::format("more recurrent rows than {} layers can have", body.model_layers));
    }
    MP_ASSIGN_OR_RETURN(const RowType type, TakeRowType(cursor));
    rows.push_back({type, cursor.at()});
    MP_RETURN_IF_ERROR(cursor.Skip(1, type.row_bytes, "recurrent row"));
  }
  const size_t layers = rows.size() / 2;
  if (rows.empty() || rows.size() % 2 != 0) {
    return cursor.Corrupt(fmt::format("{} recurrent rows are no pairs of R and S", rows.size()));
  }
  for (size_t i = 0; i < layers; ++i) {
    const Row& r = rows[i];
    const Row& s = rows[layers + i];
    if (r.type != rows[0].type || s.type != rows[layers].type) {
      return cursor.Corrupt(fmt::format("recurrent layer {} has rows of another size than the first", i));
    }
    body.layers.push_back({.r = r.type, .s = s.type, .r_offset = r.offset, .s_offset = s.offset});
  }
  // A file cut right behind its R rows would look like one of half as many layers.
  if (layers != body.model_layers && rows[0].type == rows[layers].type) {
    return cursor.Unsupported("R and S rows of the same size, which cannot be told apart");
  }
  return body;
}

Result<void> StateParser::ParseCheckpoints(StateCursor& cursor) {
  MP_ASSIGN_OR_RETURN(const uint32_t magic, cursor.Take<uint32_t>("checkpoint tail"));
  if (magic != kCheckpointTailMagic) return cursor.Corrupt("bytes behind the state that are no checkpoint tail");
  MP_ASSIGN_OR_RETURN(const uint32_t version, cursor.Take<uint32_t>("checkpoint tail version"));
  if (version != kCheckpointTailVersion) return cursor.Unsupported(fmt::format("checkpoint tail version {}", version));
  MP_ASSIGN_OR_RETURN(state_.checkpoints, cursor.Take<uint32_t>("checkpoint count"));
  if (state_.checkpoints == 0 || state_.checkpoints > kCheckpointsMax) {
    return cursor.Corrupt(fmt::format("{} checkpoints", state_.checkpoints));
  }
  if (state_.memory == MemoryClass::kPlain) return cursor.Unsupported("checkpoints of a model with plain attention");
  for (uint32_t i = 0; i < state_.checkpoints; ++i) {
    MP_ASSIGN_OR_RETURN(const uint64_t tokens, cursor.Take<uint64_t>("checkpoint token count"));
    MP_ASSIGN_OR_RETURN(const int32_t position_min, cursor.Take<int32_t>("checkpoint position"));
    MP_ASSIGN_OR_RETURN(const int32_t position_max, cursor.Take<int32_t>("checkpoint position"));
    if (tokens == 0 || tokens > state_.tokens.size() || position_min < 0 || position_min > position_max ||
        static_cast<uint64_t>(position_max) != tokens - 1) {
      return cursor.Corrupt(fmt::format("checkpoint {} of {} tokens at positions {}..{}, the state has {}", i, tokens,
                                        position_min, position_max, state_.tokens.size()));
    }
    state_.checkpoint_tokens = std::max(state_.checkpoint_tokens, tokens);
    MP_ASSIGN_OR_RETURN(const uint64_t target_bytes, cursor.Take<uint64_t>("checkpoint size"));
    MP_ASSIGN_OR_RETURN(const StateCursor blob, cursor.Part(target_bytes, "checkpoint"));
    MP_RETURN_IF_ERROR(ParseCheckpointBlob(blob, static_cast<uint32_t>(tokens)));
    for (const char* kind : {"draft model state", "speculative state"}) {
      MP_ASSIGN_OR_RETURN(const uint64_t bytes, cursor.Take<uint64_t>(kind));
      if (bytes != 0) return cursor.Unsupported(fmt::format("checkpoint {} carries a {}", i, kind));
    }
  }
  if (cursor.left() != 0) return cursor.Corrupt(fmt::format("{} bytes behind the checkpoints", cursor.left()));
  return {};
}

Result<void> StateParser::ParseCheckpointBlob(StateCursor cursor, uint32_t tokens) {
  MP_ASSIGN_OR_RETURN(const uint32_t magic, cursor.Take<uint32_t>("checkpoint magic"));
  if (magic != kCheckpointBlobMagic) return cursor.Unsupported(fmt::format("checkpoint magic {:#x}", magic));
  MP_ASSIGN_OR_RETURN(const int32_t sequence, cursor.Take<int32_t>("checkpoint sequence id"));
  if (sequence < 0) return cursor.Corrupt(fmt::format("checkpoint sequence id {}", sequence));
  // Only what cannot be rolled back is in it: the sliding-window cache or the recurrent state.
  if (state_.memory == MemoryClass::kSlidingWindow) {
    MP_ASSIGN_OR_RETURN(const AttentionBody body, ParseAttention(cursor, tokens, Reach::kWindow));
    if (body.streams != state_.attention[1].streams || body.v_transposed != state_.attention[1].v_transposed ||
        body.k_rotation != state_.attention[1].k_rotation || body.v_rotation != state_.attention[1].v_rotation ||
        !SameLayers(body, state_.attention[1])) {
      return cursor.Corrupt("the checkpoint's layers differ from the state's");
    }
  } else {
    MP_ASSIGN_OR_RETURN(const RecurrentBody body, ParseRecurrent(cursor, tokens));
    if (!SameLayers(body, *state_.recurrent)) return cursor.Corrupt("the checkpoint's layers differ from the state's");
  }
  if (cursor.left() != 0) return cursor.Corrupt(fmt::format("{} bytes behind the checkpoint's state", cursor.left()));
  return {};
}

}  // namespace moonpool::bus

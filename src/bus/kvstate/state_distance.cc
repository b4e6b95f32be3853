// CompareStates: how far two saves of the same prompt are apart, layer by layer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "bus/kvstate/row_codec.h"
#include "bus/kvstate/sequence_state.h"

namespace moonpool::bus {
namespace {

// Sums over one block of rows; the distance is |a - b| over the longer of the two.
class Accumulator {
 public:
  void Add(std::span<const float> a, std::span<const float> b) {
    for (size_t i = 0; i < a.size(); ++i) {
      const double x = a[i];
      const double y = b[i];
      difference_ += (x - y) * (x - y);
      a_ += x * x;
      b_ += y * y;
    }
  }
  double Distance() const {
    if (!std::isfinite(difference_)) return std::numeric_limits<double>::infinity();
    if (difference_ == 0) return 0;
    return std::sqrt(difference_ / std::max(a_, b_));
  }

 private:
  double difference_ = 0;
  double a_ = 0;
  double b_ = 0;
};

// Rows of one state in order of position, decoded a piece at a time.
class RowReader {
 public:
  RowReader(const ByteSource& source, const RowCodec& codec) : source_(source), codec_(codec) {}

  // `count` rows of `row_bytes` for the ranks [rank, rank + count) of `cell_of` (empty: in order).
  Result<std::span<const float>> Read(uint64_t offset, uint64_t row_bytes, const std::vector<uint32_t>& cell_of,
                                      uint32_t rank, uint32_t count) {
    bytes_.resize(size_t{count} * row_bytes);
    const std::span<std::byte> all(bytes_);
    if (cell_of.empty()) {
      MP_RETURN_IF_ERROR(source_.Read(offset + rank * row_bytes, all));
    } else {
      for (uint32_t i = 0; i < count; ++i) {
        MP_RETURN_IF_ERROR(source_.Read(offset + cell_of[rank + i] * row_bytes, all.subspan(i * row_bytes, row_bytes)));
      }
    }
    floats_.resize(codec_.Elements(bytes_.size()));
    codec_.Decode(bytes_, floats_);
    return std::span<const float>(floats_);
  }

 private:
  const ByteSource& source_;
  const RowCodec& codec_;
  std::vector<std::byte> bytes_;
  std::vector<float> floats_;
};

struct Side {
  const ByteSource& source;
  uint64_t offset = 0;
  const std::vector<uint32_t>& cell_of;
};

// `rows` rows of `row_bytes` on both sides.
Result<double> CompareRows(const RowType& row, uint32_t rows, const Side& a, const Side& b) {
  const RowCodec* codec = FindRowCodec(row.ggml_type);
  if (codec == nullptr) return Fail(ErrorCode::kUnsupported, fmt::format("row type {} is not known", row.ggml_type));
  RowReader reader_a(a.source, *codec);
  RowReader reader_b(b.source, *codec);
  Accumulator sum;
  const uint32_t rows_at_once =
      static_cast<uint32_t>(std::clamp<uint64_t>((1u << 20) / std::max<uint64_t>(row.row_bytes, 1), 1, 1u << 20));
  for (uint32_t rank = 0; rank < rows; rank += rows_at_once) {
    const uint32_t count = std::min(rows_at_once, rows - rank);
    MP_ASSIGN_OR_RETURN(const auto x, reader_a.Read(a.offset, row.row_bytes, a.cell_of, rank, count));
    MP_ASSIGN_OR_RETURN(const auto y, reader_b.Read(b.offset, row.row_bytes, b.cell_of, rank, count));
    sum.Add(x, y);
  }
  return sum.Distance();
}

// Transposed V: for every channel one element per cell.
Result<double> CompareChannels(const LayerState& layer, uint32_t cells, const Side& a, const Side& b) {
  const RowCodec* codec = FindRowCodec(layer.v->ggml_type);
  if (codec == nullptr) return Fail(ErrorCode::kUnsupported, "row type is not known");
  Accumulator sum;
  std::vector<std::byte> bytes(size_t{cells} * codec->block_bytes);
  std::vector<float> floats[2] = {std::vector<float>(cells), std::vector<float>(cells)};
  std::vector<float> stored(cells);
  for (uint64_t channel = 0; channel < layer.v_channels; ++channel) {
    for (int which = 0; which < 2; ++which) {
      const Side& side = which == 0 ? a : b;
      MP_RETURN_IF_ERROR(side.source.Read(side.offset + channel * bytes.size(), bytes));
      codec->Decode(bytes, stored);
      for (uint32_t rank = 0; rank < cells; ++rank) {
        floats[which][rank] = stored[side.cell_of.empty() ? rank : side.cell_of[rank]];
      }
    }
    sum.Add(floats[0], floats[1]);
  }
  return sum.Distance();
}

}  // namespace

Result<StateDistance> CompareStates(const ByteSource& a, const SequenceState& state_a, const ByteSource& b,
                                    const SequenceState& state_b) {
  if (state_a.LayoutDescriptor() != state_b.LayoutDescriptor()) {
    return Fail(ErrorCode::kUnsupported,
                "the states differ in layout: " + state_a.LayoutDescriptor() + " and " + state_b.LayoutDescriptor());
  }
  if (state_a.tokens != state_b.tokens) return Fail(ErrorCode::kUnsupported, "the states hold different tokens");

  StateDistance distance;
  const auto note = [&](double value, bool is_first_k) {
    if (is_first_k) distance.first_layer_k = std::max(distance.first_layer_k, value);
    distance.worst_layer = std::max(distance.worst_layer, value);
  };
  for (size_t i = 0; i < state_a.attention.size(); ++i) {
    const AttentionBody& body_a = state_a.attention[i];
    const AttentionBody& body_b = state_b.attention[i];
    if (body_a.cells != body_b.cells) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("the states keep windows of {} and {} cells", body_a.cells, body_b.cells));
    }
    for (size_t l = 0; l < body_a.layers.size(); ++l) {
      const LayerState& layer_a = body_a.layers[l];
      const LayerState& layer_b = body_b.layers[l];
      const Side k_a{a, layer_a.k_offset, body_a.cell_of};
      const Side k_b{b, layer_b.k_offset, body_b.cell_of};
      MP_ASSIGN_OR_RETURN(const double k, CompareRows(layer_a.k, body_a.cells, k_a, k_b));
      note(k, l == 0);
      if (!layer_a.v) continue;
      const Side v_a{a, layer_a.v_offset, body_a.cell_of};
      const Side v_b{b, layer_b.v_offset, body_b.cell_of};
      MP_ASSIGN_OR_RETURN(const double v, body_a.v_transposed ? CompareChannels(layer_a, body_a.cells, v_a, v_b)
                                                              : CompareRows(*layer_a.v, body_a.cells, v_a, v_b));
      note(v, false);
    }
  }
  if (state_a.recurrent) {
    static const std::vector<uint32_t> kInOrder;
    for (size_t l = 0; l < state_a.recurrent->layers.size(); ++l) {
      const RecurrentLayer& layer_a = state_a.recurrent->layers[l];
      const RecurrentLayer& layer_b = state_b.recurrent->layers[l];
      MP_ASSIGN_OR_RETURN(const double r, CompareRows(layer_a.r, 1, Side{a, layer_a.r_offset, kInOrder},
                                                      Side{b, layer_b.r_offset, kInOrder}));
      MP_ASSIGN_OR_RETURN(const double s, CompareRows(layer_a.s, 1, Side{a, layer_a.s_offset, kInOrder},
                                                      Side{b, layer_b.s_offset, kInOrder}));
      note(r, l == 0 && state_a.attention.empty());
      note(s, false);
    }
  }
  return distance;
}

}  // namespace moonpool::bus

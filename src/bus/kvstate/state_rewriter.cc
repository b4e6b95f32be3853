// RewriteSequenceState: the same rows for a server with another stream count, or for a shorter prefix.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "bus/kvstate/sequence_state.h"
#include "bus/kvstate/state_format.h"

namespace moonpool::bus {
namespace {

constexpr size_t kBufferBytes = 4u << 20;

// Cells that stand together in the source and hold consecutive positions.
struct CellRun {
  uint32_t first = 0;
  uint32_t count = 0;
};

std::vector<CellRun> RunsOf(const AttentionBody& body, uint32_t positions) {
  if (positions == 0) return {};
  if (body.cell_of.empty()) return {{0, positions}};
  std::vector<CellRun> runs;
  for (uint32_t i = 0; i < positions; ++i) {
    const uint32_t cell = body.cell_of[i];
    if (!runs.empty() && runs.back().first + runs.back().count == cell) {
      ++runs.back().count;
    } else {
      runs.push_back({cell, 1});
    }
  }
  return runs;
}

// Collects small fields and row ranges into large writes.
class BufferedAppender {
 public:
  BufferedAppender(const ByteSource& source, File& destination, uint64_t total_bytes)
      : source_(source), destination_(destination) {
    buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBufferBytes, total_bytes)));
  }

  template <class T>
  Result<void> Put(T value) {
    return PutBytes(std::as_bytes(std::span(&value, 1)));
  }
  Result<void> PutBytes(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      MP_ASSIGN_OR_RETURN(const std::span<std::byte> room, Room(bytes.size()));
      std::ranges::copy(bytes.first(room.size()), room.begin());
      bytes = bytes.subspan(room.size());
    }
    return {};
  }
  Result<void> Copy(uint64_t offset, uint64_t bytes) {
    while (bytes > 0) {
      MP_ASSIGN_OR_RETURN(const std::span<std::byte> room, Room(bytes));
      MP_RETURN_IF_ERROR(source_.Read(offset, room));
      offset += room.size();
      bytes -= room.size();
    }
    return {};
  }
  Result<void> Flush() {
    if (used_ == 0) return {};
    MP_RETURN_IF_ERROR(destination_.Append(std::span(buffer_).first(used_)));
    written_bytes_ += used_;
    used_ = 0;
    return {};
  }
  uint64_t written_bytes() const { return written_bytes_; }

 private:
  // Between 1 and `wanted` bytes of the buffer, counted as used.
  Result<std::span<std::byte>> Room(uint64_t wanted) {
    if (used_ == buffer_.size()) MP_RETURN_IF_ERROR(Flush());
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(wanted, buffer_.size() - used_));
    used_ += bytes;
    return std::span(buffer_).subspan(used_ - bytes, bytes);
  }

  const ByteSource& source_;
  File& destination_;
  std::vector<std::byte> buffer_;
  size_t used_ = 0;
  uint64_t written_bytes_ = 0;
};

uint64_t RewrittenBytes(const SequenceState& state, const RewriteTarget& target, uint64_t tokens) {
  const AttentionBody& body = state.attention[0];
  uint64_t bytes = kStateHeaderBytes + 4 * tokens + (state.packed_tokens ? 4 * kPackedTokensOverhead : 0);
  bytes += 4 + 4 * uint64_t{target.streams};
  if (tokens == 0) return bytes;
  bytes += tokens * body.cell_meta_bytes + 8 + (state.version >= kStateVersionRotation ? 8 : 0);
  for (const LayerState& layer : body.layers) {
    bytes += 12 + tokens * layer.k.row_bytes;
    if (layer.v) bytes += 12 + tokens * layer.v->row_bytes;
  }
  return bytes;
}

Result<void> PutHeader(BufferedAppender& out, const SequenceState& state, uint32_t tokens) {
  MP_RETURN_IF_ERROR(out.Put(kStateMagic));
  MP_RETURN_IF_ERROR(out.Put(state.version));
  MP_RETURN_IF_ERROR(out.Put(tokens + (state.packed_tokens ? kPackedTokensOverhead : 0)));
  if (state.packed_tokens) {
    MP_RETURN_IF_ERROR(out.Put(kPackedTokensMarker));
    MP_RETURN_IF_ERROR(out.Put(kPackedTokensVersion));
    MP_RETURN_IF_ERROR(out.Put(tokens));
  }
  MP_RETURN_IF_ERROR(out.PutBytes(std::as_bytes(std::span(state.tokens).first(tokens))));
  if (state.packed_tokens) MP_RETURN_IF_ERROR(out.Put(uint32_t{0}));  // no media
  return {};
}

Result<void> PutCells(BufferedAppender& out, const ByteSource& source, const AttentionBody& body,
                      const std::vector<CellRun>& runs, int32_t sequence_id) {
  constexpr uint32_t kRecordsAtOnce = 8192;
  const uint32_t record_bytes = body.cell_meta_bytes;
  std::vector<std::byte> records;
  for (CellRun run : runs) {
    while (run.count > 0) {
      const uint32_t count = std::min(run.count, kRecordsAtOnce);
      records.resize(size_t{count} * record_bytes);
      MP_RETURN_IF_ERROR(source.Read(body.cells_offset + uint64_t{run.first} * record_bytes, records));
      for (uint32_t i = 0; i < count; ++i) {
        std::memcpy(records.data() + size_t{i + 1} * record_bytes - 4, &sequence_id, sizeof sequence_id);
      }
      MP_RETURN_IF_ERROR(out.PutBytes(records));
      run.first += count;
      run.count -= count;
    }
  }
  return {};
}

Result<void> PutRows(BufferedAppender& out, const RowType& row, uint64_t offset, const std::vector<CellRun>& runs) {
  MP_RETURN_IF_ERROR(out.Put(row.ggml_type));
  MP_RETURN_IF_ERROR(out.Put(row.row_bytes));
  for (const CellRun& run : runs) {
    MP_RETURN_IF_ERROR(out.Copy(offset + run.first * row.row_bytes, run.count * row.row_bytes));
  }
  return {};
}

}  // namespace

Result<void> RewriteSequenceState(const ByteSource& source, const SequenceState& state, const RewriteTarget& target,
                                  File& destination) {
  if (!state.Rewritable()) {
    return Fail(ErrorCode::kUnsupported, "only plain attention with flash attention on can be rewritten, this is " +
                                             state.LayoutDescriptor() + (state.has_media ? " with media" : ""));
  }
  const uint32_t tokens = target.tokens.value_or(static_cast<uint32_t>(state.tokens.size()));
  if (tokens > state.tokens.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot cut a state of {} tokens to {}", state.tokens.size(), tokens));
  }
  if (target.stream >= target.streams || target.sequence_id < 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {} of {}, sequence {}", target.stream, target.streams, target.sequence_id));
  }
  const AttentionBody& body = state.attention[0];
  const std::vector<CellRun> runs = RunsOf(body, tokens);
  const uint64_t total_bytes = RewrittenBytes(state, target, tokens);
  MP_RETURN_IF_ERROR(destination.Reserve(total_bytes));
  BufferedAppender out(source, destination, total_bytes);
  MP_RETURN_IF_ERROR(PutHeader(out, state, tokens));
  MP_RETURN_IF_ERROR(out.Put(target.streams));
  for (uint32_t stream = 0; stream < target.streams; ++stream) {
    if (stream != target.stream || tokens == 0) {
      MP_RETURN_IF_ERROR(out.Put(uint32_t{0}));
      continue;
    }
    MP_RETURN_IF_ERROR(out.Put(tokens));
    MP_RETURN_IF_ERROR(PutCells(out, source, body, runs, target.sequence_id));
    MP_RETURN_IF_ERROR(out.Put(uint32_t{0}));  // V is not transposed
    MP_RETURN_IF_ERROR(out.Put(static_cast<uint32_t>(body.layers.size())));
    if (state.version >= kStateVersionRotation) {
      MP_RETURN_IF_ERROR(out.Put(body.k_rotation));
      MP_RETURN_IF_ERROR(out.Put(body.v_rotation));
    }
    for (const LayerState& layer : body.layers) MP_RETURN_IF_ERROR(PutRows(out, layer.k, layer.k_offset, runs));
    for (const LayerState& layer : body.layers) {
      if (layer.v) MP_RETURN_IF_ERROR(PutRows(out, *layer.v, layer.v_offset, runs));
    }
  }
  MP_RETURN_IF_ERROR(out.Flush());
  MP_CHECK(out.written_bytes() == total_bytes);
  return {};
}

}  // namespace moonpool::bus

// Any bytes as a state file: parsing ends in an error or in a state that keeps its promises, and what can be rewritten
// is rewritten to a file that parses to the same tokens. The first byte chooses what the parser is told.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "bus/kvstate/sequence_state.h"

namespace moonpool::bus {
namespace {

// A file in memory; only what rewriting needs.
class MemoryFile final : public File {
 public:
  const std::vector<std::byte>& bytes() const { return bytes_; }
  Result<size_t> Read(uint64_t, std::span<std::byte>) const override { return Unwanted(); }
  Result<void> Append(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  Result<void> WriteAt(uint64_t, std::span<const std::byte>) override { return Unwanted(); }
  Result<void> Reserve(uint64_t size_bytes) override {
    bytes_.reserve(size_bytes);
    return {};
  }
  Result<void> Sync() override { return {}; }
  Result<void> Close() override { return {}; }
  Result<FileInfo> Info() const override { return Unwanted(); }
  Result<void> Lock(LockKind) override { return {}; }
  Result<void> TryLock(LockKind) override { return {}; }
  void Unlock() override {}

 private:
  static tl::unexpected<Error> Unwanted() { return Fail(ErrorCode::kInternal, "not a call of the rewriter"); }
  std::vector<std::byte> bytes_;
};

void CheckRewriting(const ByteSource& source, const SequenceState& state, const ParseLimits& limits) {
  RewriteTarget target;
  target.streams = 1 + state.file_bytes % 3;
  target.stream = target.streams - 1;
  target.tokens = static_cast<uint32_t>(state.tokens.size() / 2);
  MemoryFile file;
  MP_CHECK(RewriteSequenceState(source, state, target, file).has_value());
  const auto again = ParseSequenceState(MemorySource(file.bytes()), state.memory, limits);
  MP_CHECK(again.has_value());
  MP_CHECK(again->tokens.size() == *target.tokens);
  MP_CHECK(std::equal(again->tokens.begin(), again->tokens.end(), state.tokens.begin()));
  if (*target.tokens > 0) MP_CHECK(again->LayoutDescriptor() == state.LayoutDescriptor());
}

}  // namespace
}  // namespace moonpool::bus

int FuzzKvState(std::span<const uint8_t> input) {
  using namespace moonpool::bus;
  if (input.empty()) return 0;
  ParseLimits limits;
  limits.without_v = (input[0] & 4) != 0;
  limits.vocabulary = (input[0] & 8) != 0 ? 1000 : 0;
  const auto memory = static_cast<MemoryClass>(input[0] & 3);
  const MemorySource source(std::as_bytes(input.subspan(1)));
  const auto state = ParseSequenceState(source, memory, limits);
  if (!state) return 0;
  MP_CHECK(state->file_bytes == input.size() - 1);
  MP_CHECK(state->body_offset <= state->body_end && state->body_end <= state->file_bytes);
  for (const AttentionBody& body : state->attention) {
    MP_CHECK(body.cells <= state->tokens.size());
    MP_CHECK(static_cast<uint64_t>(body.position_first) + body.cells == state->tokens.size());
    MP_CHECK(body.cell_of.empty() || body.cell_of.size() == body.cells);
    for (const uint32_t cell : body.cell_of) MP_CHECK(cell < body.cells);
    for (const LayerState& layer : body.layers) {
      MP_CHECK(layer.k_offset + body.cells * layer.k.row_bytes <= state->body_end);
      if (layer.v) MP_CHECK(layer.v_offset + body.cells * layer.v->row_bytes <= state->body_end);
    }
  }
  if (state->Rewritable()) CheckRewriting(source, *state, limits);
  const auto distance = CompareStates(source, *state, source, *state);
  MP_CHECK(distance.has_value());
  return 0;
}

// StateParser: one attempt to read the bodies of a state file. Whether cells carry an extended record (M-RoPE models)
// stands nowhere in the file, so it is found by trying: only a right guess makes positions and sizes add up.
// Private to bus/kvstate.
#pragma once

#include <cstdint>

#include "bus/kvstate/sequence_state.h"
#include "bus/kvstate/state_cursor.h"

namespace moonpool::bus {

class StateParser {
 public:
  // All of them outlive the parser. `state` has the header and tokens; the bodies are added to it.
  StateParser(const ParseLimits& limits, bool extended_cells, SequenceState& state)
      : limits_(limits), extended_cells_(extended_cells), state_(state) {}

  // From the end of the token section to the end of the file.
  Result<void> ParseBodies(StateCursor& cursor);
  // Whether some cell table made sense before the error.
  bool understood_cells() const { return understood_cells_; }

 private:
  // Whether a cache keeps all positions or may have dropped the older ones.
  enum class Reach { kAll, kWindow };

  // `tokens` is the number of tokens that the state, or the checkpoint, was taken after.
  Result<AttentionBody> ParseAttention(StateCursor& cursor, uint32_t tokens, Reach reach);
  Result<void> ParseCells(StateCursor& cursor, uint32_t tokens, Reach reach, AttentionBody& body) const;
  Result<void> ParseRows(StateCursor& cursor, AttentionBody& body) const;
  Result<RecurrentBody> ParseRecurrent(StateCursor& cursor, uint32_t tokens) const;
  Result<void> ParseCheckpoints(StateCursor& cursor);
  Result<void> ParseCheckpointBlob(StateCursor cursor, uint32_t tokens);

  const ParseLimits& limits_;
  const bool extended_cells_;
  SequenceState& state_;
  bool understood_cells_ = false;
};

}  // namespace moonpool::bus

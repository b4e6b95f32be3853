#include "bus/core/slot_restorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/fault.h"
#include "bus/core/slot_file.h"

namespace moonpool::bus {

Result<SequenceState> SlotRestorer::Understand(const File& file, const EngineProfile& profile,
                                               const ObjectHeader& object) {
  MP_ASSIGN_OR_RETURN(const FileSource source, FileSource::Of(file));
  MP_ASSIGN_OR_RETURN(SequenceState state, ParseSequenceState(source, profile.memory, StateLimits(profile.model)));
  if (state.tokens != object.tokens) return Fail(ErrorCode::kCorrupt, "the file's tokens are not its header's");
  if (state.has_media) return Fail(ErrorCode::kCorrupt, "the file holds media");
  if (state.LayoutDescriptor() != profile.layout) {
    return Fail(ErrorCode::kCorrupt, "the file's layout is not the fingerprint's");
  }
  return state;
}

Result<RestoreOutcome> SlotRestorer::Restore(EngineSession& session, const EngineProfile& profile,
                                             const ObjectHeader& object, const TicketPrompt& prompt, uint32_t slot,
                                             const Deadline& deadline, PhaseTimes& times, bool& touched) {
  const Path& slot_dir = session.config().slot_dir;
  SlotFile fetched(files_, slot_dir, rng_);
  MP_FAULT("core.restore.fetch");
  MP_ASSIGN_OR_RETURN(const FetchReceipt receipt, store_.Fetch(object, fetched.path(), deadline));
  times.fetch_ms += ToMs(receipt.fetch_time);
  times.verify_ms += ToMs(receipt.verify_time);

  const TimePoint understood_from = clock_.Now();
  MP_ASSIGN_OR_RETURN(const auto file, files_.Open(fetched.path()));
  auto state = Understand(*file, profile, object);
  if (!state) {
    // What the checksums call whole is not what its header says: it was written so. Nobody shall meet it again.
    if (state.error().code == ErrorCode::kCorrupt || state.error().code == ErrorCode::kUnsupported) {
      store_.Quarantine(object.id, state.error().message);
    }
    return Fail(state.error());
  }
  times.verify_ms += ToMs(clock_.Now() - understood_from);

  // Another stream count is always rewritten; a file longer than the slot is cut to what the prompt can use.
  uint64_t tokens = state->tokens.size();
  const bool too_long = profile.context_tokens > 0 && tokens > profile.context_tokens;
  const bool other_streams = !state->attention.empty() && state->attention.front().streams != profile.streams;
  std::optional<SlotFile> rewritten;
  if (too_long || other_streams) {
    const TimePoint from = clock_.Now();
    RewriteTarget target;
    target.streams = profile.streams;
    target.stream = profile.streams > 1 ? slot : 0;
    target.sequence_id = static_cast<int32_t>(slot);
    if (too_long) {
      tokens = static_cast<uint64_t>(
          std::mismatch(state->tokens.begin(), state->tokens.end(), prompt.tokens.begin(), prompt.tokens.end()).first -
          state->tokens.begin());
      tokens = std::min<uint64_t>(tokens, profile.context_tokens);
      target.tokens = static_cast<uint32_t>(tokens);
    }
    rewritten.emplace(files_, slot_dir, rng_);
    MP_FAULT("core.restore.rewrite");
    MP_ASSIGN_OR_RETURN(const FileSource source, FileSource::Of(*file));
    MP_ASSIGN_OR_RETURN(const auto destination, files_.Create(rewritten->path()));
    MP_RETURN_IF_ERROR(RewriteSequenceState(source, *state, target, *destination));
    MP_RETURN_IF_ERROR(destination->Close());
    times.rewrite_ms += ToMs(clock_.Now() - from);
  }

  MP_FAULT("core.restore.call");
  if (deadline.Passed()) return Fail(ErrorCode::kDeadlineExceeded, "the time allowed was over before the restore");
  touched = true;
  session.Forget(slot);
  // Once the server was asked, the slot is proved empty or out of use, whatever went wrong.
  const auto give_up = [&](Error error) -> Result<RestoreOutcome> {
    const bool unanswered = error.code == ErrorCode::kDeadlineExceeded || error.code == ErrorCode::kUnavailable;
    if (unanswered || !session.engine().EraseSlot(slot, deadline)) session.Doubt(slot);
    return Fail(std::move(error));
  };
  const auto restored = session.engine().RestoreSlot(slot, rewritten ? rewritten->name() : fetched.name(), deadline);
  if (!restored) {
    const bool refused =
        restored.error().code == ErrorCode::kInvalidArgument || restored.error().code == ErrorCode::kInternal;
    if (refused) session.BecomeSuspect("the server refused a file that was checked: " + restored.error().message);
    return give_up(restored.error());
  }
  if (restored->tokens != tokens) {
    return give_up(
        {ErrorCode::kInternal, fmt::format("the server restored {} tokens of a file of {}", restored->tokens, tokens)});
  }
  // The process that was asked first may not be the one that answered.
  if (const auto same = session.Confirm(profile, deadline); !same) return give_up(same.error());
  times.restore_ms += restored->server_ms;
  const double wait_ms = std::max(0.0, ToMs(restored->wall) - restored->server_ms);
  times.server_wait_ms += wait_ms;
  session.ObserveServerWait(wait_ms);

  RestoreOutcome outcome;
  outcome.tokens = tokens;
  // A server cannot go on from the end of a sliding window's state (decision 7): it rolls back to a checkpoint.
  const bool rolls_back = profile.memory == MemoryClass::kSlidingWindow && state->checkpoints > 0;
  outcome.reusable_tokens = rolls_back ? state->checkpoint_tokens : tokens;
  outcome.payload_bytes = receipt.payload_bytes;
  outcome.arbiter_ms = times.fetch_ms + times.verify_ms + times.rewrite_ms + times.restore_ms;
  return outcome;
}

}  // namespace moonpool::bus

#include "bus/core/slot_saver.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fault.h"
#include "bus/keys/block_key.h"

namespace moonpool::bus {

Result<SavedSlot> SlotSaver::Save(EngineSession& session, const EngineProfile& profile, const Ticket& ticket,
                                  std::optional<uint64_t> predicted_n, uint64_t tokens_expected,
                                  const Deadline& deadline, PhaseTimes& times) {
  SavedSlot saved;
  // One block more than expected: the reply may still be growing, and the file has its own tables.
  const uint64_t room = (tokens_expected + profile.fingerprint.declared.block_tokens) * profile.bytes_per_token + 65536;
  MP_FAULT("core.commit.reserve");
  MP_ASSIGN_OR_RETURN(saved.reservation, store_.Reserve(room));

  saved.file = std::make_unique<SlotFile>(files_, session.config().slot_dir, rng_);
  const TimePoint from = clock_.Now();
  MP_FAULT("core.commit.save");
  auto reply = session.engine().SaveSlot(ticket.slot, saved.file->name(), deadline);
  if (!reply) {
    if (reply.error().code == ErrorCode::kDeadlineExceeded) session.Doubt(ticket.slot, saved.file->path());
    return Fail(reply.error());
  }
  times.save_ms += reply->server_ms;
  times.server_wait_ms += std::max(0.0, ToMs(clock_.Now() - from) - reply->server_ms);
  MP_FAULT("core.commit.saved");
  if (reply->tokens == 0) return Fail(ErrorCode::kFailedPrecondition, "slot_empty: the slot holds no tokens");

  MP_ASSIGN_OR_RETURN(const auto file, files_.Open(saved.file->path()));
  MP_ASSIGN_OR_RETURN(const FileInfo info, file->Info());
  // Until here the file was still the server's. Less than it said means that the disk filled up.
  if (info.size_bytes < reply->bytes) {
    return Fail(ErrorCode::kNoSpace,
                fmt::format("the server said it wrote {} bytes, the file has {}", reply->bytes, info.size_bytes));
  }
  MP_ASSIGN_OR_RETURN(const FileSource source, FileSource::Of(*file));
  MP_ASSIGN_OR_RETURN(SequenceState state, ParseSequenceState(source, profile.memory, StateLimits(profile.model)));
  if (state.has_media) return Fail(ErrorCode::kFailedPrecondition, "media: the slot holds media");
  if (state.LayoutDescriptor() != profile.layout) {
    return Fail(ErrorCode::kFailedPrecondition, "layout_changed: the file is not laid out as the probe's was");
  }
  const std::vector<TokenId>& prompt = ticket.prompt->tokens;
  if (state.tokens.size() < prompt.size() || !std::equal(prompt.begin(), prompt.end(), state.tokens.begin())) {
    return Fail(ErrorCode::kFailedPrecondition, "slot_changed: the slot does not hold the ticket's prompt");
  }
  // The last sampled token has no KV yet. A shifted context is shorter, a second request's is longer.
  const uint64_t generated = state.tokens.size() - prompt.size();
  if (predicted_n && (generated + 1 < *predicted_n || generated > *predicted_n)) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("slot_changed: {} tokens were predicted, the slot holds {} after the prompt", *predicted_n,
                            generated));
  }

  // An incarnation never comes back: the same one now was the same one all the time since the probe.
  MP_RETURN_IF_ERROR(session.Confirm(profile, deadline));
  saved.header.fingerprint = profile.fingerprint_id;
  saved.header.fingerprint_text = profile.fingerprint.CanonicalEncoding();
  saved.header.model_name = profile.model_name;
  saved.header.canary = profile.canary;
  saved.header.name_space = ticket.prompt->name_space;
  saved.header.block_tokens = profile.fingerprint.declared.block_tokens;
  saved.header.layout = profile.layout;
  saved.header.keys =
      BlockKeys(ChainRoot(profile.fingerprint, ticket.prompt->name_space), state.tokens, saved.header.block_tokens);
  saved.header.tokens = std::move(state.tokens);
  if (saved.header.keys.empty()) {
    return Fail(ErrorCode::kFailedPrecondition, "short_prompt: the slot holds less than one block");
  }
  return saved;
}

Result<PublishReceipt> SlotSaver::Publish(SavedSlot saved, double hotness, PhaseTimes& times) {
  const TimePoint from = clock_.Now();
  MP_FAULT("core.commit.publish");
  PublishRequest request;
  request.header = std::move(saved.header);
  request.source = saved.file->path();
  request.hotness = hotness;
  auto receipt = store_.Publish(std::move(request), std::move(saved.reservation));
  times.publish_ms += ToMs(clock_.Now() - from);
  return receipt;
}

}  // namespace moonpool::bus

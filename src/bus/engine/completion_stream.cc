#include "bus/engine/completion_stream.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "bus/engine/json_fields.h"
#include "bus/engine/llama_answers.h"

namespace moonpool::bus {

using nlohmann::json;

bool CompletionStream::Feed(std::string_view bytes) {
  while (!bytes.empty() && !complete_ && !error_) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      unfinished_line_ += bytes;
      break;
    }
    if (unfinished_line_.empty()) {
      TakeLine(bytes.substr(0, end));
    } else {
      unfinished_line_ += bytes.substr(0, end);
      TakeLine(std::exchange(unfinished_line_, {}));
    }
    bytes.remove_prefix(end + 1);
  }
  return !complete_ && !error_;
}

void CompletionStream::TakeLine(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty() || line.starts_with(':')) return;  // the end of an event; a comment that keeps the line alive
  constexpr std::string_view kData = "data:";
  constexpr std::string_view kError = "error:";  // older servers
  if (line.starts_with(kError)) {
    error_ = ErrorOfStatus(500, fmt::format("{{\"error\":{}}}", line.substr(kError.size())));
    return;
  }
  if (!line.starts_with(kData)) return;  // fields of the format that llama-server does not use
  line.remove_prefix(kData.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (line == "[DONE]") return;
  if (Result<void> taken = TakeEvent(line); !taken) error_ = std::move(taken).error();
}

Result<void> CompletionStream::TakeEvent(std::string_view data) {
  MP_ASSIGN_OR_RETURN(const json value, ParseJson(data, "an event of the completion"));
  MP_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, "event"));
  if (fields.Has("error")) {
    MP_ASSIGN_OR_RETURN(const JsonFields error, fields.Object("error"));
    MP_ASSIGN_OR_RETURN(const uint64_t code, error.Has("code") ? error.Count("code", 999) : Result<uint64_t>(500));
    return Fail(ErrorOfStatus(static_cast<int>(code), data));
  }
  MP_ASSIGN_OR_RETURN(const std::string content, fields.Text("content", data.size()));
  MP_ASSIGN_OR_RETURN(const json* tokens, fields.Array("tokens", kTokensMax));
  for (const json& token : *tokens) {
    if (!token.is_number_unsigned() ||
        token.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<TokenId>::max())) {
      return Fail(ErrorCode::kInternal, "field event.tokens holds what is no token");
    }
    completion_.tokens.push_back(token.get<TokenId>());
  }
  completion_.text += content;
  if (!token_seen_ && (!content.empty() || !tokens->empty())) {
    token_seen_ = true;
    completion_.first_token_after = clock_.Now() - started_;
  }
  MP_ASSIGN_OR_RETURN(const bool last, fields.Flag("stop"));
  if (!last) return {};
  MP_RETURN_IF_ERROR(TakeLastEvent(fields));
  completion_.total = clock_.Now() - started_;
  if (!token_seen_) completion_.first_token_after = completion_.total;
  complete_ = true;
  return {};
}

Result<void> CompletionStream::TakeLastEvent(const JsonFields& fields) {
  MP_ASSIGN_OR_RETURN(const uint64_t slot, fields.Count("id_slot", kSlotsMax - 1));
  completion_.slot = static_cast<uint32_t>(slot);
  MP_ASSIGN_OR_RETURN(completion_.truncated, fields.Flag("truncated"));
  MP_ASSIGN_OR_RETURN(const JsonFields timings, fields.Object("timings"));
  EvaluationTimings& out = completion_.timings;
  MP_ASSIGN_OR_RETURN(out.prompt_tokens_cached, timings.Count("cache_n", kTokensMax));
  MP_ASSIGN_OR_RETURN(out.prompt_tokens_evaluated, timings.Count("prompt_n", kTokensMax));
  MP_ASSIGN_OR_RETURN(out.prompt_ms, timings.Number("prompt_ms", 0, kMillisecondsMax));
  MP_ASSIGN_OR_RETURN(out.predicted_tokens, timings.Count("predicted_n", kTokensMax));
  MP_ASSIGN_OR_RETURN(out.predicted_ms, timings.Number("predicted_ms", 0, kMillisecondsMax));
  return {};
}

Result<Completion> CompletionStream::Finish() {
  if (error_) return Fail(*std::exchange(error_, std::nullopt));
  if (!complete_) return Fail(ErrorCode::kInternal, "the completion ended without its last event");
  return std::move(completion_);
}

}  // namespace moonpool::bus

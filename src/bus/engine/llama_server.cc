#include "bus/engine/llama_server.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "bus/engine/completion_stream.h"
#include "bus/engine/llama_answers.h"
#include "bus/engine/slot_file_name.h"

namespace moonpool::bus {
namespace {

using nlohmann::json;

constexpr uint64_t kSmallAnswerBytesMax = 64 * 1024;
constexpr uint64_t kPropsBytesMax = 16 << 20;  // holds the whole chat template

std::string PercentEncoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", byte);
    }
  }
  return encoded;
}

// JSON text of `value`; kInvalidArgument if a string in it is not UTF-8.
Result<std::string> Dump(const json& value) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    return Fail(ErrorCode::kInvalidArgument, "the text is not valid UTF-8");
  }
}

}  // namespace

Result<std::unique_ptr<LlamaServer>> LlamaServer::Make(LlamaServerOptions options, const Clock& clock) {
  MP_ASSIGN_OR_RETURN(net::HttpEndpoint endpoint, net::HttpEndpoint::Parse(options.url));
  return std::unique_ptr<LlamaServer>(new LlamaServer(std::move(options), std::move(endpoint), clock));
}

LlamaServer::LlamaServer(LlamaServerOptions options, net::HttpEndpoint endpoint, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      client_(std::move(endpoint), net::HttpClientOptions{.bearer_token = options_.api_key}),
      actions_(clock) {}

Result<std::string> LlamaServer::Call(net::HttpCall call, const Deadline& deadline) {
  Result<net::HttpResponse> response = client_.Send(call, deadline);
  if (!response) {
    Error error = std::move(response).error();
    // A listener that sends too much or speaks something else is no llama-server.
    if (error.code == ErrorCode::kQuota || error.code == ErrorCode::kCorrupt) error.code = ErrorCode::kInternal;
    if (error.code == ErrorCode::kUnavailable) {
      MutexLock lock(mutex_);
      total_slots_.reset();
    }
    return Fail(std::move(error));
  }
  if (response->status != 200) {
    return Fail(WithContext(ErrorOfStatus(response->status, response->body),
                            fmt::format("{} {}{}", call.method, client_.endpoint().ToString(), call.target)));
  }
  return std::move(response->body);
}

Result<std::string> LlamaServer::Get(std::string_view path, uint64_t answer_bytes_max, const Deadline& deadline) {
  net::HttpCall call;
  call.target = path;
  if (!options_.model.empty()) call.target += "?model=" + PercentEncoded(options_.model);
  call.response_bytes_max = answer_bytes_max;
  return Call(std::move(call), deadline);
}

Result<void> LlamaServer::Health(const Deadline& deadline) {
  net::HttpCall call;
  call.target = "/health";
  call.response_bytes_max = kSmallAnswerBytesMax;
  Result<std::string> body = Call(std::move(call), deadline);
  if (body) return {};
  Error error = std::move(body).error();
  // Here 503 has one meaning only, whatever its words.
  if (error.code == ErrorCode::kFailedPrecondition) error.code = ErrorCode::kUnavailable;
  return Fail(std::move(error));
}

Result<void> LlamaServer::WaitHealthy(const Deadline& deadline) {
  while (true) {
    Result<void> healthy = Health(deadline);
    if (healthy || healthy.error().code != ErrorCode::kUnavailable) return healthy;
    const TimePoint next = std::min(deadline.At(), clock_.Now() + options_.health_interval);
    MutexLock lock(mutex_);
    while (clock_.Now() < next) clock_.WaitUntil(never_, mutex_, next);
    if (deadline.Passed()) return Fail(ErrorCode::kDeadlineExceeded, healthy.error().message);
  }
}

Result<EngineProps> LlamaServer::Props(const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const std::string body, Get("/props", kPropsBytesMax, deadline));
  MP_ASSIGN_OR_RETURN(EngineProps props, ParseProps(body));
  MutexLock lock(mutex_);
  const bool fell_asleep = props.sleeping && !sleeping_;
  if (props.incarnation != media_marker_ || fell_asleep) doubts_.clear();
  if (fell_asleep) ++sleeps_seen_;
  media_marker_ = props.incarnation;
  sleeping_ = props.sleeping;
  total_slots_ = props.total_slots;
  if (sleeps_seen_ > 0) props.incarnation += fmt::format("/{}", sleeps_seen_);
  return props;
}

Result<std::vector<SlotInfo>> LlamaServer::Slots(const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const std::string body, Get("/slots", options_.answer_bytes_max, deadline));
  return ParseSlots(body);
}

Result<std::vector<LoraAdapter>> LlamaServer::LoraAdapters(const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const std::string body, Get("/lora-adapters", kPropsBytesMax, deadline));
  return ParseLoraAdapters(body);
}

Result<std::vector<TokenId>> LlamaServer::Tokenize(std::string_view text, const Deadline& deadline) {
  // Both are what /completion does with a string prompt; add_special is not the default of /tokenize.
  json body = {{"content", text}, {"add_special", true}, {"parse_special", true}};
  if (!options_.model.empty()) body["model"] = options_.model;
  net::HttpCall call{.method = "POST", .target = "/tokenize"};
  MP_ASSIGN_OR_RETURN(call.body, Dump(body));
  call.response_bytes_max = options_.answer_bytes_max;
  MP_ASSIGN_OR_RETURN(const std::string answer, Call(std::move(call), deadline));
  return ParseTokens(answer);
}

Result<Completion> LlamaServer::Complete(const CompletionRequest& request, const Deadline& deadline) {
  if (request.prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  for (const TokenId token : request.prompt) {
    if (token < 0) return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is no token", token));
  }
  MP_RETURN_IF_ERROR(CheckSlot(request.slot, deadline));
  json body = {{"prompt", request.prompt},
               {"n_predict", request.predict_max},
               {"id_slot", request.slot},
               {"cache_prompt", request.cache_prompt},
               {"temperature", request.temperature},
               {"seed", request.seed},
               {"stream", true},
               {"return_tokens", true}};
  if (request.top_probabilities > 0) body["n_probs"] = request.top_probabilities;
  if (!options_.model.empty()) body["model"] = options_.model;
  net::HttpCall call{.method = "POST", .target = "/completion"};
  MP_ASSIGN_OR_RETURN(call.body, Dump(body));
  call.response_bytes_max = options_.answer_bytes_max;
  // A completion is not repeated, so it must not die of a kept connection that has just been closed.
  call.fresh_connection = true;
  CompletionStream stream(clock_, clock_.Now());
  call.on_body = [&stream](std::string_view bytes) { return stream.Feed(bytes); };
  MP_RETURN_IF_ERROR(Call(std::move(call), deadline));
  return stream.Finish();
}

Result<void> LlamaServer::CheckSlot(uint32_t slot, const Deadline& deadline) {
  std::optional<uint32_t> total;
  {
    MutexLock lock(mutex_);
    total = total_slots_;
  }
  if (!total) {
    MP_ASSIGN_OR_RETURN(const EngineProps props, Props(deadline));
    total = props.total_slots;
  }
  if (slot < *total) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no slot {}: {} has {}", slot, client_.endpoint().ToString(), *total));
}

Result<LlamaServer::ActionResult> LlamaServer::SlotAction(uint32_t slot, std::string_view action,
                                                          const std::string* file_name, const Deadline& deadline) {
  if (file_name != nullptr && !IsSlotFileName(*file_name)) {
    return Fail(ErrorCode::kInvalidArgument,
                "a slot file is named by 1 to 200 of a-z, 0-9, '-', '_' and '.', beginning "
                "with a letter or digit, without \"..\"");
  }
  MP_ASSIGN_OR_RETURN(const SlotActionQueue::Turn turn, actions_.Wait(deadline));
  // Only now: while waiting, the server may have been replaced by one with fewer slots.
  MP_RETURN_IF_ERROR(CheckSlot(slot, deadline));
  json body = json::object();
  if (file_name != nullptr) body["filename"] = *file_name;
  if (!options_.model.empty()) body["model"] = options_.model;
  net::HttpProgress progress;
  net::HttpCall call{.method = "POST", .target = fmt::format("/slots/{}?action={}", slot, action)};
  MP_ASSIGN_OR_RETURN(call.body, Dump(body));
  call.response_bytes_max = kSmallAnswerBytesMax;
  call.fresh_connection = true;
  call.progress = &progress;
  const TimePoint started = clock_.Now();
  Result<std::string> answer = Call(std::move(call), deadline);
  const Duration wall = clock_.Now() - started;
  {
    MutexLock lock(mutex_);
    // A refusal is an answer, too: the action is over. Silence after the request was sent is not.
    if (progress.sent && !progress.complete) doubts_[slot] = action;
    if (answer && action == "erase") doubts_.erase(slot);
  }
  if (!answer) return Fail(std::move(answer).error());
  return ActionResult{std::move(*answer), wall};
}

Result<SlotSave> LlamaServer::SaveSlot(uint32_t slot, const std::string& file_name, const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const ActionResult result, SlotAction(slot, "save", &file_name, deadline));
  MP_ASSIGN_OR_RETURN(SlotSave save, ParseSave(result.body, slot, file_name));
  save.wall = result.wall;
  return save;
}

Result<SlotRestore> LlamaServer::RestoreSlot(uint32_t slot, const std::string& file_name, const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const ActionResult result, SlotAction(slot, "restore", &file_name, deadline));
  MP_ASSIGN_OR_RETURN(SlotRestore restore, ParseRestore(result.body, slot, file_name));
  restore.wall = result.wall;
  return restore;
}

Result<uint64_t> LlamaServer::EraseSlot(uint32_t slot, const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const ActionResult result, SlotAction(slot, "erase", nullptr, deadline));
  return ParseErase(result.body, slot);
}

bool LlamaServer::ActionInDoubt(uint32_t slot) const {
  MutexLock lock(mutex_);
  return doubts_.contains(slot);
}

}  // namespace moonpool::bus

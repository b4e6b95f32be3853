#include "bus/engine/llama_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bus/engine/json_fields.h"

namespace moonpool::bus {
namespace {

using nlohmann::json;

constexpr size_t kTextBytesMax = 64 * 1024;  // paths, names, markers

// A server's message is for people: one line, bounded.
std::string ForReading(std::string text) {
  constexpr size_t kBytesMax = 300;
  if (text.size() > kBytesMax) text.resize(kBytesMax);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
  }
  return text;
}

std::string MessageOf(std::string_view body) {
  const auto value = ParseJson(body, "the error");
  if (!value || !value->is_object()) return {};
  const auto error = value->find("error");
  if (error == value->end()) return {};
  if (error->is_string()) return ForReading(error->get<std::string>());
  if (!error->is_object()) return {};
  const auto message = error->find("message");
  if (message == error->end() || !message->is_string()) return {};
  return ForReading(message->get<std::string>());
}

template <class T>
Result<T> OptionalOr(const JsonFields& fields, std::string_view name, T otherwise, Result<T> read) {
  return fields.Has(name) ? std::move(read) : Result<T>(std::move(otherwise));
}

struct ActionAnswer {
  uint64_t tokens = 0;
  uint64_t bytes = 0;
  double server_ms = 0;
};

Result<ActionAnswer> ParseAction(std::string_view body, uint32_t slot, std::string_view file_name,
                                 std::string_view tokens, std::string_view bytes, std::string_view milliseconds) {
  MP_ASSIGN_OR_RETURN(const json value, ParseJson(body, "the answer"));
  MP_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, "answer"));
  MP_ASSIGN_OR_RETURN(const uint64_t id, fields.Count("id_slot", std::numeric_limits<uint32_t>::max()));
  if (id != slot) return Fail(ErrorCode::kInternal, fmt::format("field answer.id_slot is {}, not {}", id, slot));
  MP_ASSIGN_OR_RETURN(const std::string name, fields.Text("filename", kTextBytesMax));
  if (name != file_name) return Fail(ErrorCode::kInternal, "field answer.filename is another name");
  ActionAnswer answer;
  MP_ASSIGN_OR_RETURN(answer.tokens, fields.Count(tokens, kTokensMax));
  MP_ASSIGN_OR_RETURN(answer.bytes, fields.Count(bytes, kStateBytesMax));
  MP_ASSIGN_OR_RETURN(const JsonFields timings, fields.Object("timings"));
  MP_ASSIGN_OR_RETURN(answer.server_ms, timings.Number(milliseconds, 0, kMillisecondsMax));
  return answer;
}

}  // namespace

Result<EngineProps> ParseProps(std::string_view body) {
  MP_ASSIGN_OR_RETURN(const json value, ParseJson(body, "/props"));
  MP_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, "props"));
  EngineProps props;
  if (!fields.Has("media_marker")) {
    return Fail(ErrorCode::kUnsupported,
                "field props.media_marker is missing: the server is too old to tell a restart");
  }
  MP_ASSIGN_OR_RETURN(props.incarnation, fields.Text("media_marker", kTextBytesMax));
  MP_ASSIGN_OR_RETURN(props.model_path, fields.Text("model_path", kTextBytesMax));
  MP_ASSIGN_OR_RETURN(props.model_alias,
                      OptionalOr<std::string>(fields, "model_alias", "", fields.Text("model_alias", kTextBytesMax)));
  MP_ASSIGN_OR_RETURN(props.build,
                      OptionalOr<std::string>(fields, "build_info", "", fields.Text("build_info", kTextBytesMax)));
  MP_ASSIGN_OR_RETURN(const uint64_t slots, fields.Count("total_slots", kSlotsMax));
  if (slots == 0) return Fail(ErrorCode::kInternal, "field props.total_slots is 0");
  props.total_slots = static_cast<uint32_t>(slots);
  MP_ASSIGN_OR_RETURN(const JsonFields settings, fields.Object("default_generation_settings"));
  MP_ASSIGN_OR_RETURN(const uint64_t context, settings.Count("n_ctx", std::numeric_limits<uint32_t>::max()));
  props.context_tokens = static_cast<uint32_t>(context);
  if (fields.Has("modalities")) {
    MP_ASSIGN_OR_RETURN(const JsonFields modalities, fields.Object("modalities"));
    MP_ASSIGN_OR_RETURN(props.has_vision, OptionalOr(modalities, "vision", false, modalities.Flag("vision")));
    MP_ASSIGN_OR_RETURN(props.has_audio, OptionalOr(modalities, "audio", false, modalities.Flag("audio")));
  }
  MP_ASSIGN_OR_RETURN(props.sleeping, OptionalOr(fields, "is_sleeping", false, fields.Flag("is_sleeping")));
  return props;
}

Result<std::vector<SlotInfo>> ParseSlots(std::string_view body) {
  MP_ASSIGN_OR_RETURN(const json value, ParseJson(body, "/slots"));
  if (!value.is_array()) return Fail(ErrorCode::kInternal, "/slots is no JSON array");
  if (value.size() > kSlotsMax) return Fail(ErrorCode::kInternal, fmt::format("/slots has {} entries", value.size()));
  std::vector<SlotInfo> slots;
  slots.reserve(value.size());
  for (const json& entry : value) {
    MP_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(entry, fmt::format("slots[{}]", slots.size())));
    SlotInfo slot;
    MP_ASSIGN_OR_RETURN(const uint64_t id, fields.Count("id", kSlotsMax - 1));
    slot.id = static_cast<uint32_t>(id);
    MP_ASSIGN_OR_RETURN(slot.processing, fields.Flag("is_processing"));
    // A slot that has never run a task lacks these, and -1 means the same.
    if (fields.Has("id_task")) {
      MP_ASSIGN_OR_RETURN(const double task, fields.Number("id_task", -1, 1e15));
      slot.task = task < 0 ? 0 : static_cast<uint64_t>(task);
    }
    MP_ASSIGN_OR_RETURN(slot.tokens_cached, OptionalOr<uint64_t>(fields, "n_prompt_tokens", 0,
                                                                 fields.Count("n_prompt_tokens", kTokensMax)));
    slots.push_back(slot);
  }
  std::ranges::sort(slots, {}, &SlotInfo::id);
  if (std::ranges::adjacent_find(slots, {}, &SlotInfo::id) != slots.end()) {
    return Fail(ErrorCode::kInternal, "/slots names one id twice");
  }
  return slots;
}

Result<std::vector<LoraAdapter>> ParseLoraAdapters(std::string_view body) {
  constexpr size_t kAdaptersMax = 4096;
  MP_ASSIGN_OR_RETURN(const json value, ParseJson(body, "/lora-adapters"));
  if (!value.is_array() || value.size() > kAdaptersMax) {
    return Fail(ErrorCode::kInternal, "/lora-adapters is no JSON array of a sensible size");
  }
  std::vector<LoraAdapter> adapters;
  for (const json& entry : value) {
    MP_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(entry, fmt::format("adapters[{}]", adapters.size())));
    LoraAdapter adapter;
    MP_ASSIGN_OR_RETURN(adapter.path, fields.Text("path", kTextBytesMax));
    MP_ASSIGN_OR_RETURN(adapter.scale, fields.Number("scale", -1e9, 1e9));
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

Result<std::vector<TokenId>> ParseTokens(std::string_view body) {
  MP_ASSIGN_OR_RETURN(const json value, ParseJson(body, "/tokenize"));
  MP_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, "answer"));
  MP_ASSIGN_OR_RETURN(const json* array, fields.Array("tokens", kTokensMax));
  std::vector<TokenId> tokens;
  tokens.reserve(array->size());
  for (const json& entry : *array) {
    const bool whole = entry.is_number_unsigned();
    if (!whole || entry.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<TokenId>::max())) {
      return Fail(ErrorCode::kInternal, fmt::format("field answer.tokens[{}] is no token", tokens.size()));
    }
    tokens.push_back(entry.get<TokenId>());
  }
  return tokens;
}

Result<SlotSave> ParseSave(std::string_view body, uint32_t slot, std::string_view file_name) {
  MP_ASSIGN_OR_RETURN(const ActionAnswer answer, ParseAction(body, slot, file_name, "n_saved", "n_written", "save_ms"));
  return SlotSave{.tokens = answer.tokens, .bytes = answer.bytes, .server_ms = answer.server_ms, .wall = {}};
}

Result<SlotRestore> ParseRestore(std::string_view body, uint32_t slot, std::string_view file_name) {
  MP_ASSIGN_OR_RETURN(const ActionAnswer answer,
                      ParseAction(body, slot, file_name, "n_restored", "n_read", "restore_ms"));
  return SlotRestore{.tokens = answer.tokens, .bytes = answer.bytes, .server_ms = answer.server_ms, .wall = {}};
}

Result<uint64_t> ParseErase(std::string_view body, uint32_t slot) {
  MP_ASSIGN_OR_RETURN(const json value, ParseJson(body, "the answer"));
  MP_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, "answer"));
  MP_ASSIGN_OR_RETURN(const uint64_t id, fields.Count("id_slot", std::numeric_limits<uint32_t>::max()));
  if (id != slot) return Fail(ErrorCode::kInternal, fmt::format("field answer.id_slot is {}, not {}", id, slot));
  return fields.Count("n_erased", kTokensMax);
}

Error ErrorOfStatus(int status, std::string_view body) {
  std::string message = MessageOf(body);
  ErrorCode code = ErrorCode::kInternal;
  std::string_view meaning = "an answer that makes no sense here";
  if (status == 401 || status == 403) {
    code = ErrorCode::kPermission;
    meaning = "the API key is missing or wrong";
  } else if (status == 404 || status == 405) {
    code = ErrorCode::kUnsupported;
    meaning = "the server does not know this call; it is too old or something else";
  } else if (status == 501) {
    code = ErrorCode::kUnsupported;
    meaning = "the server has this turned off";
  } else if (status == 503) {
    // One status for two states: while the model loads nothing works; later it means that no slot is free.
    const bool loading = message.find("oading") != std::string::npos;
    code = loading ? ErrorCode::kUnavailable : ErrorCode::kFailedPrecondition;
    meaning = loading ? "the model is being loaded" : "the server is not ready for this";
  } else if (status >= 500) {
    code = ErrorCode::kInternal;
    meaning = "the server failed";
  } else if (status >= 400) {
    code = ErrorCode::kInvalidArgument;
    meaning = "the server refused";
  }
  if (message.empty()) message = "no message";
  return Error{code, fmt::format("{} (HTTP {}: {})", meaning, status, message)};
}

}  // namespace moonpool::bus

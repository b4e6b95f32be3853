#include "support/fake_llama_server.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/check.h"

namespace moonpool::testing {
namespace {

using net::HttpReply;
using net::HttpRequest;
using net::HttpResponse;
using nlohmann::json;

constexpr std::string_view kSpecialText = "<|special|>";

HttpResponse Json(const json& body, int status = 200) {
  return net::MakeResponse(status, "application/json; charset=utf-8", body.dump());
}

json ErrorBody(int status, const std::string& message) {
  static const std::map<int, std::string> kTypes = {{400, "invalid_request_error"}, {401, "authentication_error"},
                                                    {404, "not_found_error"},       {500, "server_error"},
                                                    {501, "not_supported_error"},   {503, "unavailable_error"}};
  const auto type = kTypes.find(status);
  return {{"error", {{"code", status}, {"message", message}, {"type", type == kTypes.end() ? "error" : type->second}}}};
}

HttpResponse Refuse(int status, const std::string& message) { return Json(ErrorBody(status, message), status); }

void PutWord(std::string& bytes, uint32_t word) {
  char raw[sizeof(word)];
  std::memcpy(raw, &word, sizeof(word));
  bytes.append(raw, sizeof(word));
}

std::string DefaultBytes(const std::vector<TokenId>& tokens) {
  std::string bytes;
  for (const uint32_t word : {0x67677371u, 4u, static_cast<uint32_t>(tokens.size() + 4), 0xffffffffu, 1u,
                              static_cast<uint32_t>(tokens.size())}) {
    PutWord(bytes, word);
  }
  for (const TokenId token : tokens) PutWord(bytes, static_cast<uint32_t>(token));
  PutWord(bytes, 0);
  return bytes;
}

// The token list of a slot file; nothing if it is no such file.
std::optional<std::vector<TokenId>> TokensOf(const std::string& bytes) {
  const auto word = [&](size_t index) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + 4 * index, 4);
    return value;
  };
  if (bytes.size() < 28 || word(0) != 0x67677371u || word(1) != 4 || word(3) != 0xffffffffu) return std::nullopt;
  const uint32_t count = word(5);
  if (word(2) < count + 4 || bytes.size() / 4 < 3ull + word(2)) return std::nullopt;
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(word(6 + i)));
  return tokens;
}

// A pure function of everything before it, as greedy decoding is.
TokenId NextToken(const std::vector<TokenId>& tokens) {
  uint64_t hash = 1469598103934665603u;
  for (const TokenId token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
  return FakeLlamaServer::kFirstByte + 'a' + static_cast<TokenId>((hash >> 32) % 26);
}

std::string TextOf(TokenId token) {
  const int byte = token - FakeLlamaServer::kFirstByte;
  return byte >= ' ' && byte < 127 ? std::string(1, static_cast<char>(byte)) : "?";
}

}  // namespace

FakeLlamaServer::FakeLlamaServer(FakeLlamaOptions options) : options_(std::move(options)), slots_(options_.slots) {
  // A held call keeps its thread, so there are more of them than a test holds calls.
  Result<std::unique_ptr<net::HttpServer>> server =
      net::HttpServer::Start(net::HttpServerOptions{.port = options_.port, .threads = 12}, *this);
  MP_CHECK(server.has_value());
  server_ = std::move(*server);
}

FakeLlamaServer::~FakeLlamaServer() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  server_.reset();
}

std::string FakeLlamaServer::url() const { return "http://127.0.0.1:" + std::to_string(server_->port()); }

std::vector<FakeLlamaServer::Call> FakeLlamaServer::Calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

size_t FakeLlamaServer::CountOf(const std::string& name) const {
  MutexLock lock(mutex_);
  return static_cast<size_t>(std::ranges::count(calls_, name, &Call::name));
}

void FakeLlamaServer::Fail(const std::string& name, FakeFault fault, int times) {
  MutexLock lock(mutex_);
  for (int i = 0; i < times; ++i) faults_[name].push_back(fault);
}

void FakeLlamaServer::Hold(const std::string& name) {
  MutexLock lock(mutex_);
  holds_[name] = true;
}

void FakeLlamaServer::Release(const std::string& name) {
  MutexLock lock(mutex_);
  holds_[name] = false;
  changed_.NotifyAll();
}

void FakeLlamaServer::AwaitHeld(const std::string& name, int count) {
  MutexLock lock(mutex_);
  while (held_[name] < count) changed_.Wait(mutex_);
}

void FakeLlamaServer::AwaitDone(const std::string& name, int count) {
  MutexLock lock(mutex_);
  while (done_[name] < count) changed_.Wait(mutex_);
}

void FakeLlamaServer::WaitWhileHeld(const std::string& name) {
  MutexLock lock(mutex_);
  ++held_[name];
  changed_.NotifyAll();
  while (holds_[name] && !ending_) changed_.Wait(mutex_);
  --held_[name];
}

std::optional<FakeFault> FakeLlamaServer::TakeFault(const std::string& name) {
  MutexLock lock(mutex_);
  std::vector<FakeFault>& faults = faults_[name];
  if (faults.empty()) return std::nullopt;
  FakeFault fault = faults.front();
  faults.erase(faults.begin());
  return fault;
}

void FakeLlamaServer::MakeRestoresIneffective(bool ineffective) {
  MutexLock lock(mutex_);
  restores_ineffective_ = ineffective;
}

void FakeLlamaServer::Restart(std::optional<uint32_t> slots) {
  MutexLock lock(mutex_);
  ++incarnation_;
  slots_.assign(slots.value_or(static_cast<uint32_t>(slots_.size())), Slot{});
  sleeping_ = false;
}

void FakeLlamaServer::SetLoading(bool loading) {
  MutexLock lock(mutex_);
  loading_ = loading;
}

void FakeLlamaServer::SetSleeping(bool sleeping) {
  MutexLock lock(mutex_);
  sleeping_ = sleeping;
}

void FakeLlamaServer::SetProcessing(uint32_t slot, bool processing) {
  MutexLock lock(mutex_);
  slots_.at(slot).processing = processing;
}

void FakeLlamaServer::SetSlotTokens(uint32_t slot, std::vector<TokenId> tokens) {
  MutexLock lock(mutex_);
  slots_.at(slot) = Slot{.tokens = std::move(tokens), .task = next_task_++};
}

std::vector<TokenId> FakeLlamaServer::SlotTokens(uint32_t slot) const {
  MutexLock lock(mutex_);
  return slots_.at(slot).tokens;
}

std::vector<TokenId> FakeLlamaServer::TokenizeText(const std::string& text, bool add_special, bool parse_special) {
  std::vector<TokenId> tokens;
  if (add_special) tokens.push_back(kBos);
  for (size_t i = 0; i < text.size();) {
    if (parse_special && text.compare(i, kSpecialText.size(), kSpecialText) == 0) {
      tokens.push_back(kSpecial);
      i += kSpecialText.size();
    } else {
      tokens.push_back(kFirstByte + static_cast<unsigned char>(text[i++]));
    }
  }
  return tokens;
}

void FakeLlamaServer::Handle(HttpRequest request, HttpReply reply) {
  Call call;
  call.query = request.query();
  call.authorization = request.headers.Find("Authorization").value_or("");
  call.name = request.method + " " + std::string(request.path());
  call.body = request.body.empty() ? json::object() : json::parse(request.body, nullptr, false);
  if (call.name.starts_with("POST /slots/")) {
    const std::string_view number = request.path().substr(7);
    int64_t slot = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), slot);
    if (error == std::errc() && end == number.data() + number.size()) call.slot = slot;
    if (call.query.starts_with("action=")) call.name = call.query.substr(7);
  }
  {
    MutexLock lock(mutex_);
    calls_.push_back(call);
  }
  WaitWhileHeld(call.name);
  if (const std::optional<FakeFault> fault = TakeFault(call.name)) {
    switch (fault->kind) {
      case FakeFault::Kind::kStatus: return reply(Refuse(fault->status, fault->text));
      case FakeFault::Kind::kReset: return reply.Abort();
      case FakeFault::Kind::kGarbage: return reply(net::MakeResponse(200, "application/json", "<html>"));
      case FakeFault::Kind::kBody: return reply(net::MakeResponse(200, "application/json", fault->text));
      case FakeFault::Kind::kTruncated:
        reply.Begin(net::MakeResponse(200, "application/json", ""));
        reply.Write("{\"tokens\":[1,");
        return reply.Abort();
    }
  }
  if (call.name == "POST /completion") {
    Complete(call, reply);
  } else {
    reply(Answer(call));
  }
  MutexLock lock(mutex_);
  ++done_[call.name];
  changed_.NotifyAll();
}

HttpResponse FakeLlamaServer::Answer(const Call& call) {
  MutexLock lock(mutex_);
  if (call.name == "GET /health") return loading_ ? Refuse(503, "Loading model") : Json({{"status", "ok"}});
  if (!options_.api_key.empty() && call.authorization != "Bearer " + options_.api_key) {
    return Refuse(401, "Invalid API Key");
  }
  if (loading_) return Refuse(503, "Loading model");
  if (!call.body.is_object()) return Refuse(400, "the body is no JSON object");
  if (!options_.router_model.empty()) {
    // In the body of a POST, in the query of a GET, and nowhere else.
    const bool named = call.name.starts_with("GET ") ? call.query == "model=" + options_.router_model
                                                     : call.body.value("model", "") == options_.router_model;
    if (!named) return Refuse(400, "model name is missing from the request");
  }
  if (call.name == "GET /props") return Json(Props());
  if (sleeping_) {
    sleeping_ = false;
    slots_.assign(slots_.size(), Slot{});
  }
  if (call.name == "GET /slots") return Json(SlotList());
  if (call.name == "GET /lora-adapters") return Json(json::array());
  if (call.name == "POST /tokenize") {
    return Json({{"tokens", TokenizeText(call.body.value("content", ""), call.body.value("add_special", false),
                                         call.body.value("parse_special", true))}});
  }
  if (call.slot || call.name == "save" || call.name == "restore" || call.name == "erase") {
    if (options_.slot_directory.empty()) return Refuse(501, "This server does not support slots action.");
    if (!call.slot) return Refuse(400, "Invalid slot ID");
    if (call.name == "erase") return Erase(call);
    if (!call.body.contains("filename") || !call.body["filename"].is_string()) return Refuse(400, "key 'filename'");
    if (call.name == "save") return Save(call);
    if (call.name == "restore") return Restore(call);
    return Refuse(400, "Invalid action");
  }
  return Refuse(404, "File Not Found");
}

json FakeLlamaServer::Props() const {
  return {{"default_generation_settings", {{"n_ctx", options_.context_tokens}, {"params", json::object()}}},
          {"total_slots", slots_.size()},
          {"model_alias", "fake"},
          {"model_path", options_.model_path},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"media_marker", "<__media_" + std::to_string(incarnation_) + "__>"},
          {"build_info", "b0-fake"},
          {"is_sleeping", sleeping_}};
}

json FakeLlamaServer::SlotList() const {
  json list = json::array();
  for (size_t i = 0; i < slots_.size(); ++i) {
    json entry = {{"id", i}, {"n_ctx", options_.context_tokens}, {"is_processing", slots_[i].processing}};
    if (slots_[i].task != 0) {
      entry["id_task"] = slots_[i].task;
      entry["n_prompt_tokens"] = slots_[i].tokens.size();
    }
    list.push_back(std::move(entry));
  }
  return list;
}

FakeLlamaServer::Slot& FakeLlamaServer::SlotOf(int64_t id) {
  const auto count = static_cast<int64_t>(slots_.size());
  return slots_[static_cast<size_t>(((id % count) + count) % count)];
}

HttpResponse FakeLlamaServer::Save(const Call& call) {
  const Slot& slot = SlotOf(*call.slot);
  const std::string name = call.body["filename"];
  const std::string bytes = options_.save_bytes ? options_.save_bytes(slot.tokens, static_cast<uint32_t>(*call.slot))
                                                : DefaultBytes(slot.tokens);
  std::ofstream file(options_.slot_directory / name, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (!file) return Refuse(500, "Unable to save slot");
  return Json({{"id_slot", *call.slot},
               {"filename", name},
               {"n_saved", slot.tokens.size()},
               {"n_written", bytes.size()},
               {"timings", {{"save_ms", 1.5}}}});
}

HttpResponse FakeLlamaServer::Restore(const Call& call) {
  Slot& slot = SlotOf(*call.slot);
  const std::string name = call.body["filename"];
  std::ifstream file(options_.slot_directory / name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::optional<std::vector<TokenId>> tokens = TokensOf(bytes);
  if (!file.is_open() || !tokens || tokens->size() > options_.context_tokens) {
    slot.tokens.clear();
    return Refuse(400, "Unable to restore slot: No available space in KV cache or invalid slot save file");
  }
  slot.tokens = std::move(*tokens);
  slot.restored_in_vain = restores_ineffective_;
  return Json({{"id_slot", *call.slot},
               {"filename", name},
               {"n_restored", slot.tokens.size()},
               {"n_read", bytes.size()},
               {"timings", {{"restore_ms", 0.5}}}});
}

HttpResponse FakeLlamaServer::Erase(const Call& call) {
  Slot& slot = SlotOf(*call.slot);
  const size_t erased = slot.tokens.size();
  slot.tokens.clear();
  return Json({{"id_slot", *call.slot}, {"n_erased", erased}});
}

FakeLlamaServer::Evaluation FakeLlamaServer::Evaluate(const json& body) {
  MutexLock lock(mutex_);
  Evaluation evaluation;
  const auto refuse = [&](const std::string& message) {
    evaluation.status = 400;
    evaluation.error = ErrorBody(400, message);
    return evaluation;
  };
  if (!body.is_object() || !body.contains("prompt")) return refuse("\"prompt\" must be provided");
  const std::vector<TokenId> prompt = body["prompt"].is_string()
                                          ? TokenizeText(body["prompt"].get<std::string>(), true, true)
                                          : body["prompt"].get<std::vector<TokenId>>();
  if (prompt.empty()) return refuse("empty prompt");
  if (prompt.size() >= options_.context_tokens) return refuse("the request exceeds the available context size");
  const int64_t id = body.value("id_slot", -1);
  Slot& slot = SlotOf(id);
  size_t common = 0;
  const bool reuse = body.value("cache_prompt", true) && !slot.restored_in_vain;
  if (reuse) {
    common = static_cast<size_t>(std::ranges::mismatch(slot.tokens, prompt).in2 - prompt.begin());
  }
  const size_t cached = std::min(common, prompt.size() - 1);
  slot.restored_in_vain = false;

  const size_t predict = std::max<size_t>(body.value("n_predict", 16u), 1);
  std::vector<TokenId> all = prompt;
  for (size_t i = 0; i < predict; ++i) {
    evaluation.generated.push_back(NextToken(all));
    all.push_back(evaluation.generated.back());
  }
  all.pop_back();  // the last token has no KV yet
  slot.tokens = std::move(all);
  slot.task = next_task_++;
  evaluation.last_event = {{"content", ""},
                           {"tokens", json::array()},
                           {"id_slot", id},
                           {"stop", true},
                           {"stop_type", "limit"},
                           {"tokens_predicted", predict},
                           {"tokens_evaluated", prompt.size()},
                           {"truncated", false},
                           {"timings",
                            {{"cache_n", cached},
                             {"prompt_n", prompt.size() - cached},
                             {"prompt_ms", static_cast<double>(prompt.size() - cached)},
                             {"predicted_n", predict},
                             {"predicted_ms", static_cast<double>(predict)}}}};
  return evaluation;
}

void FakeLlamaServer::Complete(const Call& call, const HttpReply& reply) {
  // The checks before a completion are those of every call; an unknown path passes all of them.
  const HttpResponse checked = Answer(
      Call{.name = "POST /checks", .slot = {}, .body = call.body, .query = {}, .authorization = call.authorization});
  if (checked.status != 404) return reply(checked);
  const Evaluation evaluation = Evaluate(call.body);
  if (evaluation.status != 200) return reply(Json(evaluation.error, evaluation.status));
  std::string text;
  for (const TokenId token : evaluation.generated) text += TextOf(token);
  if (!call.body.value("stream", false)) {
    json whole = evaluation.last_event;
    whole["content"] = text;
    whole["tokens"] = evaluation.generated;
    return reply(Json(whole));
  }
  reply.Begin(net::MakeResponse(200, "text/event-stream", ""));
  WaitWhileHeld("POST /completion#first");
  const std::optional<FakeFault> fault = TakeFault("POST /completion#first");
  for (const TokenId token : evaluation.generated) {
    const json event = {{"content", TextOf(token)}, {"tokens", {token}}, {"stop", false}, {"id_slot", -1}};
    reply.Write("data: " + event.dump() + "\n\n");
    if (!fault) continue;
    switch (fault->kind) {
      case FakeFault::Kind::kStatus:
        reply.Write("data: " + ErrorBody(fault->status, fault->text).dump() + "\n\n");
        return reply.Finish();
      case FakeFault::Kind::kGarbage: reply.Write("data: <html>\n\n"); return reply.Finish();
      case FakeFault::Kind::kBody: reply.Write(fault->text); return reply.Finish();
      case FakeFault::Kind::kTruncated: return reply.Finish();
      case FakeFault::Kind::kReset: return reply.Abort();
    }
  }
  reply.Write("data: " + evaluation.last_event.dump() + "\n\n");
  reply.Finish();
}

}  // namespace moonpool::testing

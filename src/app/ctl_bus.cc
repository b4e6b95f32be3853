#include "app/ctl_bus.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/quantity.h"
#include "app/text_table.h"
#include "base/clock.h"
#include "bus/server/access_policy.h"
#include "net/http_client.h"

namespace moonpool::app {
namespace {

using nlohmann::json;

constexpr uint64_t kPromptFileBytesMax = 60ull << 20;
constexpr Duration kCallTimeout = std::chrono::seconds(30);
constexpr Duration kProbeTimeout = std::chrono::minutes(10);

Result<json> Call(const BusAddress& bus, net::HttpCall call, Duration timeout = kCallTimeout) {
  PosixFileSystem files;
  SystemClock clock;
  net::HttpClientOptions options;
  if (!bus.token_file.empty()) {
    MP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, bus.token_file, 1 << 20));
    MP_ASSIGN_OR_RETURN(const auto tokens, bus::AccessRules::ParseTokens(text));
    options.bearer_token = tokens.front().token;
  }
  MP_ASSIGN_OR_RETURN(net::HttpEndpoint endpoint, net::HttpEndpoint::Parse(bus.url));
  net::HttpClient client(endpoint, options);
  const auto response = client.Send(call, Deadline(clock, timeout));
  if (!response) return Fail(WithContext(response.error(), "no answer from the bus at " + bus.url));
  json body = json::parse(response->body, nullptr, false);
  if (response->status == 200 && !body.is_discarded()) return body;
  const std::string message = body.is_object() && body.contains("error") && body["error"].is_object()
                                  ? body["error"].value("message", "no reason given")
                                  : "this does not look like a bus";
  return Fail(ErrorCode::kUnavailable, fmt::format("{} answered {}: {}", bus.url, response->status, message));
}

net::HttpCall PostOf(const std::string& target, const json& body) {
  net::HttpCall call;
  call.method = "POST";
  call.target = target;
  call.body = body.dump();
  return call;
}

void Print(const json& value) { fmt::print("{}\n", value.dump(2, ' ', false, json::error_handler_t::replace)); }

// The fields of an answer, of whatever version the bus is.
std::string TextOf(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
double NumberOf(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
std::string CountOf(const json& object, const char* name) { return fmt::format("{:.0f}", NumberOf(object, name)); }
const json& ListOf(const json& object, const char* name) {
  static const json kEmpty = json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kEmpty;
}

std::string Rate(double per_second, const char* unit) {
  return per_second > 0 ? fmt::format("{:.0f} {}/s", per_second, unit) : "not known yet";
}
std::string ByteRate(double per_second) {
  return per_second > 0 ? ApproximateBytes(per_second) + "/s" : "not known yet";
}

void PrintReasons(const char* title, const json& rows) {
  if (rows.empty()) return;
  TextTable table({{title}, {"REASON"}, {"COUNT", TextTable::Align::kRight}});
  for (const json& row : rows) table.Add({TextOf(row, "outcome"), TextOf(row, "reason"), CountOf(row, "count")});
  fmt::print("\n{}", table.Text());
}

}  // namespace

Result<int> ShowStats(const BusAddress& bus) {
  net::HttpCall call;
  call.target = "/v1/stats";
  MP_ASSIGN_OR_RETURN(const json stats, Call(bus, call));
  if (bus.json) {
    Print(stats);
    return 0;
  }
  const double saved = NumberOf(stats, "prefillTokensSavedTotal");
  const double resident = NumberOf(stats, "prefillTokensResidentTotal");
  const double evaluated = NumberOf(stats, "prefillTokensEvaluatedTotal");
  const double all = saved + resident + evaluated;
  fmt::print("moonpool {}  {}\n\n", TextOf(stats, "version"),
             stats.value("ready", false) ? "ready" : "not ready yet (see the engines)");
  fmt::print("prompt tokens   saved by the bus {:.0f}, held by slots {:.0f}, evaluated {:.0f}{}\n", saved, resident,
             evaluated, all > 0 ? fmt::format(" ({:.0f} % saved)", 100 * saved / all) : "");
  fmt::print("promises        {} tokens promised, {} kept, {} restores without effect\n",
             CountOf(stats, "promisedTokensTotal"), CountOf(stats, "keptTokensTotal"),
             CountOf(stats, "restoresIneffectiveTotal"));
  const json store = stats.value("store", json::object());
  fmt::print("store           {} objects, {} of {}, {} evicted, {} damaged\n", CountOf(store, "objects"),
             ApproximateBytes(NumberOf(store, "bytes")), ApproximateBytes(NumberOf(store, "quotaBytes")),
             CountOf(store, "evictionsTotal"), CountOf(store, "corruptTotal"));
  using Align = TextTable::Align;
  TextTable engines({{"ENGINE"},
                     {"STATE"},
                     {"SLOTS", Align::kRight},
                     {"CONTEXT", Align::kRight},
                     {"TICKETS", Align::kRight},
                     {"MODEL"},
                     {"REASON"}});
  for (const json& engine : ListOf(stats, "engines")) {
    engines.Add({TextOf(engine, "name"), TextOf(engine, "state"), CountOf(engine, "totalSlots"),
                 CountOf(engine, "contextTokens"), CountOf(engine, "tickets"), TextOf(engine, "model"),
                 TextOf(engine, "reason")});
  }
  fmt::print("\n{}", engines.Text());
  PrintReasons("DECISION", ListOf(stats, "decisions"));
  PrintReasons("COMMIT", ListOf(stats, "commits"));
  PrintReasons("MISS AFTER DECISION", ListOf(stats, "failures"));
  return 0;
}

Result<int> ExplainPrompt(const BusAddress& bus, const ExplainedPrompt& prompt) {
  PosixFileSystem files;
  json request = {{"engine", prompt.engine}, {"namespace", prompt.name_space}};
  if (!prompt.tokens_file.empty()) {
    MP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, prompt.tokens_file, kPromptFileBytesMax));
    request["tokens"] = json::parse(text, nullptr, false);
    if (!request["tokens"].is_array()) {
      return Fail(ErrorCode::kInvalidArgument, prompt.tokens_file.string() + " does not hold a JSON array");
    }
  } else if (!prompt.text_file.empty()) {
    MP_ASSIGN_OR_RETURN(request["text"], ReadWholeFile(files, prompt.text_file, kPromptFileBytesMax));
  } else if (prompt.text) {
    request["text"] = *prompt.text;
  } else {
    return Fail(ErrorCode::kInvalidArgument, "a prompt is needed: --text, --text-file or --tokens-file");
  }
  MP_ASSIGN_OR_RETURN(const json reply, Call(bus, PostOf("/v1/lookup", request)));
  if (bus.json) {
    Print(reply);
    return 0;
  }
  const json estimates = reply.value("estimates", json::object());
  fmt::print("decision              {} ({})\n", TextOf(reply, "decision"), TextOf(reply, "reason"));
  if (!TextOf(reply, "detail").empty()) fmt::print("                      {}\n", TextOf(reply, "detail"));
  fmt::print("prompt                {} tokens\n", CountOf(reply, "promptTokens"));
  fmt::print("stored prefix         {} tokens, in blocks of {}\n", CountOf(reply, "storedTokens"),
             CountOf(reply, "blockTokens"));
  fmt::print("a restore promises    {} tokens\n", CountOf(reply, "restorableTokens"));
  if (!TextOf(reply, "object").empty()) fmt::print("from object           {}\n", TextOf(reply, "object"));
  if (NumberOf(reply, "storedTokens") > 0) {
    fmt::print("restoring costs       {:.1f} ms\n", NumberOf(estimates, "restoreMs"));
    fmt::print("recomputing costs     {:.1f} ms\n", NumberOf(estimates, "recomputeMs"));
    fmt::print("prefill rate          {}\n", Rate(NumberOf(estimates, "prefillTokensPerSecond"), "tokens"));
    fmt::print("restore bandwidth     {}\n", ByteRate(NumberOf(estimates, "restoreBytesPerSecond")));
    fmt::print("break-even bandwidth  {}\n", ByteRate(NumberOf(estimates, "breakEvenBytesPerSecond")));
    fmt::print("arbiter               {} ({})\n", TextOf(estimates, "choice"), TextOf(estimates, "reason"));
  }
  return 0;
}

Result<int> ProbeEngine(const BusAddress& bus, const std::string& engine, std::optional<uint32_t> slot) {
  json request = {{"engine", engine}};
  if (slot) request["slot"] = *slot;
  MP_ASSIGN_OR_RETURN(const json status, Call(bus, PostOf("/v1/probe", request), kProbeTimeout));
  const bool ready = TextOf(status, "state") == "ready";
  if (bus.json) {
    Print(status);
    return ready ? 0 : 1;
  }
  fmt::print("{} is {}{}{}\n", TextOf(status, "name"), TextOf(status, "state"),
             TextOf(status, "reason").empty() ? "" : ": ", TextOf(status, "reason"));
  if (ready) fmt::print("{}\nfingerprint {}\n", TextOf(status, "describe"), TextOf(status, "fingerprint"));
  return ready ? 0 : 1;
}

}  // namespace moonpool::app

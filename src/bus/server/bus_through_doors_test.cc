// The real core behind the doors: an agent's whole turn, tenants, and numbers that equal the state (field reports B57,
// B62 a and b). Fake servers, real store, fake clock.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "bus/server/bus_server.h"
#include "bus/server/core_front.h"
#include "bus/server/grpc_library.h"
#include "bus/server/json_message.h"
#include "kvcache_bus.grpc.pb.h"
#include "net/http_client.h"
#include "support/bus_world.h"

namespace moonpool::testing {
namespace {

using nlohmann::json;

class BusThroughDoors : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.AddServer("a");
    world_.AddServer("b");
    world_.Settle();
    Open();
  }
  void Open() {
    front_ = std::make_unique<bus::CoreFront>(*world_.bus);
    bus::BusServerOptions options;
    options.grpc.address = "127.0.0.1";
    auto server = bus::BusServer::Start(options, *front_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }

  net::HttpResponse Http(const std::string& method, const std::string& target, const std::string& body = "") {
    net::HttpEndpoint endpoint;
    endpoint.host = "127.0.0.1";
    endpoint.port = server_->http_port();
    net::HttpClient client(endpoint, {});
    net::HttpCall call;
    call.method = method;
    call.target = target;
    call.body = body;
    auto response = client.Send(call, Deadline(clock_, std::chrono::seconds(60)));
    EXPECT_TRUE(response) << response.error().message;
    return response ? *response : net::HttpResponse{};
  }

  // One Prepare, through HTTP or gRPC.
  v1::PrepareReply Prepare(bool over_grpc, const std::string& engine, const std::vector<TokenId>& tokens,
                           const std::string& name_space) {
    v1::PromptRequest request;
    request.set_engine(engine);
    request.set_namespace_(name_space);
    request.mutable_tokens()->Assign(tokens.begin(), tokens.end());
    request.set_wait_ms(0);
    v1::PrepareReply reply;
    if (over_grpc) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
      const grpc::Status status = Stub()->Prepare(&context, request, &reply);
      EXPECT_TRUE(status.ok()) << status.error_message();
    } else {
      const net::HttpResponse response = Http("POST", "/v1/prepare", bus::WriteJson(request));
      EXPECT_EQ(response.status, 200) << response.body;
      EXPECT_TRUE(bus::ReadJson(response.body, reply));
    }
    return reply;
  }
  std::unique_ptr<v1::KVCacheBus::Stub> Stub() {
    return v1::KVCacheBus::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->grpc_port()), grpc::InsecureChannelCredentials()));
  }

  v1::CommitReply Commit(bool over_grpc, const std::string& ticket, const bus::Completion& completion) {
    v1::CommitRequest request;
    request.set_ticket(ticket);
    request.set_wait(v1::CommitRequest::PUBLISHED);
    const bus::ObservedTimings timings = BusWorld::Timings(completion);
    request.mutable_timings()->set_prompt_n(static_cast<uint32_t>(timings.prompt_n));
    request.mutable_timings()->set_cache_n(static_cast<uint32_t>(timings.cache_n));
    request.mutable_timings()->set_prompt_ms(timings.prompt_ms);
    request.mutable_timings()->set_predicted_n(static_cast<uint32_t>(timings.predicted_n));
    v1::CommitReply reply;
    if (over_grpc) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
      EXPECT_TRUE(Stub()->Commit(&context, request, &reply).ok());
    } else {
      const net::HttpResponse response = Http("POST", "/v1/commit", bus::WriteJson(request));
      EXPECT_EQ(response.status, 200) << response.body;
      EXPECT_TRUE(bus::ReadJson(response.body, reply));
    }
    world_.executor.RunAll();
    return reply;
  }

  // Prepare, complete, commit. Answers what was restored.
  uint32_t Turn(bool over_grpc, const std::string& engine, const std::vector<TokenId>& tokens,
                const std::string& name_space = "") {
    const v1::PrepareReply prepared = Prepare(over_grpc, engine, tokens, name_space);
    bus::PrepareReply slot;
    if (prepared.has_slot()) slot.slot = prepared.slot();
    const bus::Completion completion = world_.Complete(engine, slot, tokens);
    if (!prepared.ticket().empty()) Commit(over_grpc, prepared.ticket(), completion);
    return prepared.restored_tokens();
  }

  std::map<std::string, double> Metrics() {
    std::map<std::string, double> samples;
    std::istringstream page(Http("GET", "/metrics").body);
    for (std::string line; std::getline(page, line);) {
      if (!line.starts_with('#')) samples[line.substr(0, line.rfind(' '))] = std::stod(line.substr(line.rfind(' ')));
    }
    return samples;
  }

  SystemClock clock_;  // for sockets; the world has its own
  BusWorld world_;
  std::unique_ptr<bus::CoreFront> front_;
  std::unique_ptr<bus::BusServer> server_;  // stops before the bus goes
};

TEST_F(BusThroughDoors, RestoresOnOneServerWhatAnotherComputed) {
  for (const bool over_grpc : {false, true}) {
    const std::vector<TokenId> prompt = Tokens(100, over_grpc ? 1 : 2);
    EXPECT_EQ(Turn(over_grpc, "a", prompt), 0u);
    EXPECT_EQ(Turn(over_grpc, "b", prompt), 96u) << "six whole blocks of 16";
  }
  const std::map<std::string, double> metrics = Metrics();
  EXPECT_GE(metrics.at("moonpool_prefill_tokens_saved_total"), 2 * 96);
  EXPECT_EQ(metrics.at(R"(moonpool_engine_state{engine="a",state="ready"})"), 1);
  const json stats = json::parse(Http("GET", "/v1/stats").body);
  EXPECT_EQ(stats["prefillTokensSavedTotal"], metrics.at("moonpool_prefill_tokens_saved_total"));
  EXPECT_EQ(stats["engines"].size(), 2u);
  EXPECT_EQ(Http("GET", "/readyz").status, 200);
}

// Both halves are asserted: a cache that is off would pass the second alone.
TEST_F(BusThroughDoors, SharesWithinANamespaceAndNeverAcross) {
  for (const bool over_grpc : {false, true}) {
    const std::vector<TokenId> prompt = Tokens(100, over_grpc ? 3 : 4);
    Turn(over_grpc, "a", prompt, "tenant-1");
    EXPECT_GT(Turn(over_grpc, "b", prompt, "tenant-1"), 0u);
    EXPECT_EQ(Turn(over_grpc, "b", prompt, "tenant-2"), 0u);
  }
}

// What another namespace stored looks exactly like what nobody stored.
TEST_F(BusThroughDoors, AnswersForeignPromptsLikeRealMisses) {
  const std::vector<TokenId> known = Tokens(100, 5);
  Turn(false, "a", known, "tenant-1");
  const auto lookup = [&](const std::vector<TokenId>& tokens) {
    const json request = {{"engine", "a"}, {"namespace", "tenant-2"}, {"tokens", tokens}};
    return Http("POST", "/v1/lookup", request.dump()).body;
  };
  EXPECT_EQ(lookup(known), lookup(Tokens(100, 6)));
}

TEST_F(BusThroughDoors, NamesWhatIsWrongWithARequest) {
  const auto status = [&](const json& request) { return Http("POST", "/v1/lookup", request.dump()); };
  const net::HttpResponse unknown = status({{"engine", "nobody"}, {"tokens", {1}}});
  EXPECT_GE(unknown.status, 400);
  EXPECT_LT(unknown.status, 500);
  EXPECT_NE(unknown.body.find("nobody"), std::string::npos);
  EXPECT_EQ(Http("POST", "/v1/release", R"({"ticket":"made-up"})").body, R"({"released":false})");
  EXPECT_EQ(json::parse(Http("POST", "/v1/commit", R"({"ticket":"made-up"})").body).contains("ticket"), false);
}

// After every step each gauge equals a recount of what it counts. Repeat with the printed seed.
TEST_F(BusThroughDoors, GaugesEqualTheState) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed={}", seed));
  std::mt19937 random(seed);
  std::map<std::string, std::string> owned;  // ticket -> engine
  for (int step = 0; step < 150; ++step) {
    const std::string engine = random() % 2 == 0 ? "a" : "b";
    switch (random() % 5) {
      case 0: Turn(random() % 2 == 0, engine, Tokens(20 + random() % 60, static_cast<int>(random() % 6))); break;
      case 1: {
        const v1::PrepareReply prepared = Prepare(false, engine, Tokens(50, static_cast<int>(random() % 6)), "");
        if (!prepared.ticket().empty()) owned[prepared.ticket()] = engine;
        break;
      }
      case 2:
        if (!owned.empty()) {
          const std::string body = json{{"ticket", owned.begin()->first}}.dump();
          Http("POST", "/v1/release", body);
          Http("POST", "/v1/release", body);  // a second time changes nothing
          owned.erase(owned.begin());
        }
        break;
      case 3: {
        const auto objects = world_.store->List();
        if (objects && !objects->empty()) (void)world_.store->Remove(objects->front().id);
        break;
      }
      default: world_.Tick(std::chrono::milliseconds(250)); break;
    }
    const std::map<std::string, double> metrics = Metrics();
    for (const auto& [series, value] : metrics) ASSERT_TRUE(value >= 0 && std::isfinite(value)) << series;
    ASSERT_EQ(metrics.at("moonpool_store_objects"), world_.store->List()->size()) << step;
    double tickets = 0;
    for (const bus::EngineStatus& status : world_.bus->Engines()) {
      ASSERT_EQ(metrics.at(fmt::format("moonpool_engine_tickets{{engine=\"{}\"}}", status.name)), status.tickets);
      tickets += status.tickets;
    }
    ASSERT_LE(tickets, 2) << "one slot each";
  }
}

TEST_F(BusThroughDoors, StartsAtZeroWhenTheBusIsRebuilt) {
  Turn(false, "a", Tokens(100, 7));
  EXPECT_GT(Metrics().at("moonpool_prefill_tokens_evaluated_total"), 0);
  server_.reset();
  front_.reset();
  world_.RestartBus();
  Open();
  for (const auto& [series, value] : Metrics()) {
    if (series.find("_total") == std::string::npos || series.starts_with("moonpool_store")) continue;
    EXPECT_EQ(value, 0) << series;
  }
}

}  // namespace
}  // namespace moonpool::testing

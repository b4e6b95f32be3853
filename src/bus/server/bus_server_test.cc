// Both doors on all four listeners: the same answers, the same refusals, and nobody waits for somebody else.
#include "bus/server/bus_server.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "bus/server/door_fixture.h"

namespace moonpool::testing {
namespace {

using bus::BusServerOptions;
using v1::LookupReply;
using v1::PromptRequest;

class BusDoors : public DoorFixture {};

PromptRequest Prompt(int tokens = 3) {
  PromptRequest request;
  request.set_engine("gpu0");
  for (int i = 0; i < tokens; ++i) request.add_tokens(i);
  return request;
}

TEST_F(BusDoors, AnswersTheSameThroughEveryDoor) {
  Open();
  for (int door = 0; door < kDoors; ++door) {
    LookupReply reply;
    EXPECT_EQ(LookupThrough(door, Prompt(), &reply), (DoorAnswer{"OK", ""})) << DoorName(door);
    EXPECT_EQ(reply.prompt_tokens(), 3u) << DoorName(door);
    EXPECT_EQ(reply.decision(), v1::RESTORE) << DoorName(door);
    EXPECT_EQ(front_.last().tokens, (std::vector<TokenId>{0, 1, 2})) << DoorName(door);
  }
}

TEST_F(BusDoors, OffersEveryVerbThroughBothKinds) {
  Open();
  const net::HttpResponse prepared = Post("/v1/prepare", R"({"engine":"gpu0","tokens":[1],"waitMs":"5"})");
  EXPECT_EQ(prepared.status, 200);
  EXPECT_EQ(nlohmann::json::parse(prepared.body)["decision"], "LEAD");
  EXPECT_EQ(nlohmann::json::parse(prepared.body)["slot"], 1);
  EXPECT_EQ(front_.last().wait_ms, 5);
  EXPECT_EQ(Post("/v1/commit", R"({"ticket":"ticket-1","timings":{"promptN":4,"cacheN":2},"wait":"SAVED"})").status,
            200);
  EXPECT_EQ(front_.commits().back().timings->cache_n, 2u);
  EXPECT_EQ(front_.commits().back().wait, bus::CommitWait::kSaved);
  EXPECT_EQ(Post("/v1/release", R"({"ticket":"ticket-1"})").body, R"({"released":true})");
  EXPECT_EQ(Post("/v1/release", R"({"ticket":"other"})").body, R"({"released":false})");
  EXPECT_EQ(nlohmann::json::parse(Post("/v1/probe", R"({"engine":"gpu0","slot":0})").body)["state"], "ready");

  const auto stub = Stub();
  {
    grpc::ClientContext context;
    FurnishCall(context);
    v1::PrepareReply reply;
    ASSERT_TRUE(stub->Prepare(&context, Prompt(), &reply).ok());
    EXPECT_EQ(reply.ticket(), "ticket-1");
  }
  {
    grpc::ClientContext context;
    FurnishCall(context);
    v1::CommitRequest request;
    request.set_ticket("ticket-1");
    request.set_keep(true);
    v1::CommitReply reply;
    ASSERT_TRUE(stub->Commit(&context, request, &reply).ok());
    EXPECT_EQ(reply.status(), v1::CommitReply::ACCEPTED);
    EXPECT_TRUE(front_.commits().back().keep);
  }
  {
    grpc::ClientContext context;
    FurnishCall(context);
    v1::ReleaseRequest request;
    request.set_ticket("ticket-1");
    v1::ReleaseReply reply;
    ASSERT_TRUE(stub->Release(&context, request, &reply).ok());
    EXPECT_TRUE(reply.released());
  }
}

TEST_F(BusDoors, RefusesTheSameThroughEveryDoor) {
  Open();
  struct Case {
    PromptRequest request;
    std::string part;
  };
  std::vector<Case> cases;
  cases.push_back({PromptRequest(), "engine"});
  cases.push_back({Prompt(0), "tokens"});
  cases.push_back({Prompt(), "tokens[3]: -7 is negative"});
  cases.back().request.add_tokens(-7);
  cases.push_back({Prompt(), "not both"});
  cases.back().request.set_text("x");
  cases.push_back({Prompt(), "slot: -1"});
  cases.back().request.set_slot(-1);
  for (const Case& refused : cases) {
    DoorAnswer first;
    for (int door = 0; door < kDoors; ++door) {
      const DoorAnswer answer = LookupThrough(door, refused.request);
      EXPECT_EQ(answer.code, "INVALID_ARGUMENT") << DoorName(door);
      EXPECT_NE(answer.message.find(refused.part), std::string::npos) << DoorName(door) << answer.message;
      if (door == 0) first = answer;
      EXPECT_EQ(answer, first) << DoorName(door);
    }
  }
}

TEST_F(BusDoors, TellsTheCoresErrorsAlike) {
  Open();
  const std::vector<std::pair<ErrorCode, std::string>> cases = {{ErrorCode::kNotFound, "NOT_FOUND"},
                                                                {ErrorCode::kUnavailable, "UNAVAILABLE"},
                                                                {ErrorCode::kBusy, "RESOURCE_EXHAUSTED"},
                                                                {ErrorCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"},
                                                                {ErrorCode::kInternal, "INTERNAL"},
                                                                {ErrorCode::kFailedPrecondition, "FAILED_PRECONDITION"},
                                                                {ErrorCode::kPermission, "PERMISSION_DENIED"},
                                                                {ErrorCode::kInvalidArgument, "INVALID_ARGUMENT"}};
  for (const auto& [error, name] : cases) {
    front_.FailWith({error, "because \xff"});
    for (int door = 0; door < kDoors; ++door) {
      EXPECT_EQ(LookupThrough(door, Prompt()), (DoorAnswer{name, "because ?"})) << DoorName(door);
    }
  }
}

// Field report B33: gRPC's default of 4 MiB would refuse this as if the bus were away.
TEST_F(BusDoors, TakesTwoMillionTokensThroughEveryDoor) {
  Open();
  const PromptRequest request = Prompt(2'000'000);
  for (int door = 0; door < kDoors; ++door) {
    LookupReply reply;
    EXPECT_EQ(LookupThrough(door, request, &reply), (DoorAnswer{"OK", ""})) << DoorName(door);
    EXPECT_EQ(reply.prompt_tokens(), 2'000'000u) << DoorName(door);
  }
}

TEST_F(BusDoors, NamesTheLimitWhereARequestIsTooLarge) {
  Open();
  PromptRequest request;
  request.set_engine("gpu0");
  request.set_text(std::string(65u << 20, 'a'));
  const DoorAnswer over_grpc = LookupThrough(2, request);
  EXPECT_EQ(over_grpc.code, "RESOURCE_EXHAUSTED");
  EXPECT_NE(over_grpc.message.find("67108864"), std::string::npos) << over_grpc.message;
  // The server answers without reading the whole body; the client may see the answer or the closed connection.
  const auto over_http = Http({.method = "POST", .target = "/v1/lookup", .body = bus::WriteJson(request)});
  if (over_http) {
    EXPECT_EQ(over_http->status, 413);
  }
  EXPECT_EQ(LookupThrough(0, Prompt()).code, "OK");
  EXPECT_EQ(LookupThrough(2, Prompt()).code, "OK");
}

TEST_F(BusDoors, AnswersMalformedBodiesWithNamedErrors) {
  Open();
  const std::vector<std::string> bodies = {"",
                                           "{",
                                           "[]",
                                           "null",
                                           std::string(100'000, '['),
                                           R"({"engine":"e","tokens":)" + std::string(100'000, '['),
                                           R"({"engine":"e","tokens":[1,-1]})",
                                           R"({"engine":"e","tokens":[1e300]})",
                                           R"({"engine":"e","tokens":[1.5]})",
                                           R"({"engine":"e","tokens":["x"]})",
                                           R"({"engine":"e","tokens":[null]})",
                                           R"({"engine":"e","tokens":null})",
                                           R"({"engine":"e","tokens":[1],"tokens":[1]})",
                                           R"({"engine":"e","tokens":[1],"slot":2147483648})",
                                           R"({"engine":"e","tokens":[1],"slot":1.5})",
                                           R"({"engine":"e","tokens":[1],"extra":0})",
                                           "{\"engine\":\"\xff\",\"tokens\":[1]}",
                                           std::string("{\"engine\":\"e\",\"tokens\":[1]}\0{}", 31)};
  for (const std::string& body : bodies) {
    for (const char* path : {"/v1/lookup", "/v1/prepare", "/v1/commit", "/v1/release", "/v1/probe"}) {
      const net::HttpResponse response = Post(path, body);
      EXPECT_EQ(response.status, 400) << path << " " << body.substr(0, 60);
      EXPECT_EQ(ErrorOf(response).code, "INVALID_ARGUMENT") << response.body;
      EXPECT_LT(response.body.size(), 300u);
    }
  }
  EXPECT_EQ(LookupThrough(0, Prompt()).code, "OK");
}

TEST_F(BusDoors, KnowsItsPathsAndMethods) {
  Open();
  EXPECT_EQ(Get("/nothing").status, 404);
  EXPECT_EQ(Get("/v1/lookup").status, 405);
  EXPECT_EQ(Get("/v1/lookup").headers.Find("Allow"), "POST");
  EXPECT_EQ(Post("/v1/stats", "{}").status, 405);
  const auto form = Http({.method = "POST", .target = "/v1/lookup", .body = "{}", .content_type = "text/plain"});
  ASSERT_TRUE(form);
  EXPECT_EQ(form->status, 415);
  const auto json = Http({.method = "POST",
                          .target = "/v1/release?x=1",
                          .body = R"({"ticket":"t"})",
                          .content_type = "Application/JSON; charset=utf-8"});
  ASSERT_TRUE(json);
  EXPECT_EQ(json->status, 200);
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(nlohmann::json::parse(Get("/v1/stats").body)["ready"], true);
}

TEST_F(BusDoors, SaysWhenTheBusIsNotReady) {
  Open();
  EXPECT_EQ(Get("/readyz").status, 200);
  bus::EngineStatus engine;
  engine.name = "gpu0";
  engine.state = "probing";
  front_.SetEngines({engine});
  front_.SetReady(false);
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(nlohmann::json::parse(Get("/readyz").body)["engines"][0]["state"], "probing");
  EXPECT_EQ(Get("/healthz").status, 200) << "alive all the same";
}

// --- Waiting -------------------------------------------------------------------------------------------------------

TEST_F(BusDoors, PassesACancelledGrpcCallOn) {
  Open();
  front_.Hold();
  const auto stub = Stub();
  grpc::ClientContext context;
  FurnishCall(context);
  grpc::Status status;
  std::thread caller([&] {
    v1::PrepareReply reply;
    status = stub->Prepare(&context, Prompt(), &reply);
  });
  front_.AwaitWaiting(1);
  context.TryCancel();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  front_.AwaitCancelled(1);
}

TEST_F(BusDoors, PassesAGrpcDeadlineOn) {
  Open();
  front_.Hold();
  const auto stub = Stub();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  v1::PrepareReply reply;
  EXPECT_EQ(stub->Prepare(&context, Prompt(), &reply).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  front_.AwaitCancelled(1);
}

TEST_F(BusDoors, NoticesAnHttpClientThatWentAway) {
  Open();
  front_.Hold();
  std::thread caller([&] {
    net::HttpEndpoint endpoint;
    endpoint.host = "127.0.0.1";
    endpoint.port = server_->http_port();
    net::HttpClient client(endpoint, {});
    // The client gives up after a while and closes its connection.
    const auto response = client.Send({.method = "POST", .target = "/v1/prepare", .body = bus::WriteJson(Prompt())},
                                      Deadline(clock_, std::chrono::milliseconds(100)));
    EXPECT_FALSE(response);
  });
  caller.join();
  front_.AwaitCancelled(1);
}

// A crowd that waits fills its own lane only: who is too many hears so at once, and the commit that the crowd waits for
// gets through.
TEST_F(BusDoors, RefusesAtOnceWhenTheLaneIsFullAndLetsCommitsThrough) {
  BusServerOptions options;
  options.lanes.prepare_threads = 2;
  options.lanes.prepare_queue_max = 1;
  Open(options);
  front_.Hold();
  std::vector<std::thread> crowd;
  for (int i = 0; i < 2; ++i) {
    crowd.emplace_back([&] { EXPECT_EQ(Post("/v1/prepare", R"({"engine":"e","tokens":[1]})").status, 200); });
    front_.AwaitWaiting(i + 1);  // one after the other, or the second could find the first still queued
  }
  // One more fits the queue; whichever of the next ones it is, the others are refused.
  std::atomic<int> refused{0};
  std::atomic<int> served{0};
  std::vector<std::thread> late;
  for (int i = 0; i < 3; ++i) {
    late.emplace_back([&] {
      const net::HttpResponse response = Post("/v1/prepare", R"({"engine":"e","tokens":[1]})");
      if (response.status == 429 && ErrorOf(response).code == "RESOURCE_EXHAUSTED") ++refused;
      if (response.status == 200) ++served;
    });
  }
  while (refused < 2) std::this_thread::yield();

  grpc::ClientContext context;
  FurnishCall(context);
  v1::PrepareReply reply;
  EXPECT_EQ(Stub()->Prepare(&context, Prompt(), &reply).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);

  EXPECT_EQ(Post("/v1/commit", R"({"ticket":"ticket-1"})").status, 200);
  EXPECT_EQ(Post("/v1/release", R"({"ticket":"ticket-1"})").status, 200);
  EXPECT_EQ(LookupThrough(2, Prompt()).code, "OK");
  EXPECT_NE(Get("/metrics").body.find(R"(moonpool_calls_total{verb="prepare",end="rejected"} 3)"), std::string::npos);

  front_.Let();
  for (std::thread& thread : crowd) thread.join();
  for (std::thread& thread : late) thread.join();
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(served, 1);
}

TEST_F(BusDoors, EndsWaitingPreparesWhenItDrains) {
  Open();
  front_.Hold();
  std::thread over_http([&] { EXPECT_EQ(Post("/v1/prepare", R"({"engine":"e","tokens":[1]})").status, 200); });
  std::thread over_grpc([&] {
    grpc::ClientContext context;
    FurnishCall(context);
    v1::PrepareReply reply;
    EXPECT_TRUE(Stub()->Prepare(&context, Prompt(), &reply).ok());
  });
  front_.AwaitWaiting(2);
  server_->BeginDrain();
  over_http.join();
  over_grpc.join();
  front_.AwaitCancelled(2);
  EXPECT_EQ(Get("/readyz").status, 503);
  for (int door = 0; door < kDoors; ++door) EXPECT_EQ(LookupThrough(door, Prompt()).code, "UNAVAILABLE");
  EXPECT_EQ(Post("/v1/commit", R"({"ticket":"ticket-1"})").status, 200) << "commits still end";
  server_->Stop(std::chrono::seconds(1));
}

TEST_F(BusDoors, StopsWhilePreparesWait) {
  Open();
  front_.Hold();
  std::thread caller([&] {
    grpc::ClientContext context;
    FurnishCall(context);
    v1::PrepareReply reply;
    Stub(true)->Prepare(&context, Prompt(), &reply);
  });
  front_.AwaitWaiting(1);
  server_->Stop(Duration::zero());
  caller.join();
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "grpc.sock"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "http.sock"));
}

// --- Health and reflection -----------------------------------------------------------------------------------------

// The standard services, asked without their generated code: bytes in, bytes out.
std::string AskGeneric(uint16_t port, const std::string& method, const std::string& request) {
  grpc::GenericStub stub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const grpc::Slice slice(request);
  const grpc::ByteBuffer message(&slice, 1);
  grpc::ByteBuffer answer;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, method, {}, &message, &answer, [&](const grpc::Status& status) { ended.set_value(status); });
  const grpc::Status status = ended.get_future().get();
  if (!status.ok()) return "error " + std::to_string(status.error_code());
  grpc::Slice bytes;
  if (!answer.DumpToSingleSlice(&bytes).ok()) return "";
  return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
}

std::string AskHealth(uint16_t port, const std::string& service) {
  const std::string field = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
  return AskGeneric(port, "/grpc.health.v1.Health/Check", service.empty() ? "" : field);
}

TEST_F(BusDoors, TellsItsHealthToGrpcClients) {
  Open();
  constexpr char kServing[] = "\x08\x01";
  constexpr char kNotServing[] = "\x08\x02";
  server_->SetServing(true);
  EXPECT_EQ(AskHealth(server_->grpc_port(), ""), kServing);
  EXPECT_EQ(AskHealth(server_->grpc_port(), "moonpool.v1.KVCacheBus"), kServing);
  server_->SetServing(false);
  EXPECT_EQ(AskHealth(server_->grpc_port(), "moonpool.v1.KVCacheBus"), kNotServing);
  EXPECT_EQ(AskHealth(server_->grpc_port(), "nobody"), "error 5");
}

TEST_F(BusDoors, DescribesItselfToGrpcClients) {
  Open();
  const std::string list_services = "\x3a\x01*";
  const std::string answer =
      AskGeneric(server_->grpc_port(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services);
  EXPECT_NE(answer.find("moonpool.v1.KVCacheBus"), std::string::npos);
}

// --- Exclusive starts (field report B63) ---------------------------------------------------------------------------

TEST_F(BusDoors, RefusesASecondServerAndLeavesTheFirstAlone) {
  Open();
  const std::string http_port = std::to_string(server_->http_port());
  const std::string grpc_port = std::to_string(server_->grpc_port());
  ScriptedFront other;
  const auto why_not = [&](auto change) {
    BusServerOptions options;
    options.http.address = "";
    change(options);
    const auto second = bus::BusServer::Start(options, other);
    EXPECT_FALSE(second);
    if (second) return std::string();
    EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
    return second.error().message;
  };
  EXPECT_NE(why_not([&](auto& o) { o.grpc.unix_socket_path = directory_ / "grpc.sock"; }).find("grpc.sock"),
            std::string::npos);
  EXPECT_NE(why_not([&](auto& o) { o.http.unix_socket_path = directory_ / "http.sock"; }).find("http.sock"),
            std::string::npos);
  EXPECT_NE(why_not([&](auto& o) {
              o.grpc.address = "127.0.0.1";
              o.grpc.port = server_->grpc_port();
            }).find(grpc_port),
            std::string::npos);
  EXPECT_NE(why_not([&](auto& o) {
              o.http.address = "127.0.0.1";
              o.http.port = server_->http_port();
            }).find(http_port),
            std::string::npos);
  for (int door = 0; door < kDoors; ++door) EXPECT_EQ(LookupThrough(door, Prompt()).code, "OK") << DoorName(door);
}

// gRPC shares ports between servers by default (decision 13); here nobody can come in beside us, gRPC server or not.
TEST_F(BusDoors, DoesNotShareItsPortWithAnotherGrpcServer) {
  Open();
  grpc::ServerBuilder builder;
  int port = -1;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(server_->grpc_port()), grpc::InsecureServerCredentials(),
                           &port);
  const auto other = builder.BuildAndStart();
  EXPECT_LE(port, 0);
}

TEST_F(BusDoors, RefusesWhatIsNoSocketAndKeepsIt) {
  const std::string path = directory_ / "file";
  std::ofstream(path) << "precious";
  BusServerOptions options;
  options.http.address = "";
  options.grpc.unix_socket_path = path;
  const auto server = bus::BusServer::Start(options, front_);
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().message.find(path), std::string::npos);
  std::string content;
  std::ifstream(path) >> content;
  EXPECT_EQ(content, "precious");

  options.grpc.unix_socket_path = directory_ / std::string(200, 'p');
  const auto long_path = bus::BusServer::Start(options, front_);
  ASSERT_FALSE(long_path);
  EXPECT_EQ(long_path.error().code, ErrorCode::kInvalidArgument);
}

// Also for paths that mean something in a URI.
TEST_F(BusDoors, MakesSocketsForTheirOwnerOnly) {
  const mode_t before = umask(0);
  Open();
  umask(before);
  for (const char* name : {"grpc.sock", "http.sock"}) {
    struct stat info {};
    ASSERT_EQ(lstat((directory_ / name).c_str(), &info), 0) << name;
    EXPECT_TRUE(S_ISSOCK(info.st_mode)) << name;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
}

TEST_F(BusDoors, ServesUnderOddPaths) {
  const auto odd = directory_ / "a %41?b#c";
  std::filesystem::create_directory(odd);
  BusServerOptions options;
  options.http.address = "";
  options.grpc.unix_socket_path = odd / "s";
  const auto server = bus::BusServer::Start(options, front_);
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_TRUE(std::filesystem::is_socket(odd / "s"));
  const auto stub = v1::KVCacheBus::NewStub(
      grpc::CreateChannel("unix:" + (directory_ / "a%20%2541%3Fb%23c/s").string(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  FurnishCall(context);
  LookupReply reply;
  EXPECT_TRUE(stub->Lookup(&context, Prompt(), &reply).ok());
}

}  // namespace
}  // namespace moonpool::testing

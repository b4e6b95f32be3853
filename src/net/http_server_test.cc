#include "net/http_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "base/mutex.h"
#include "net/server_fixture.h"
#include "support/temp_dir.h"

namespace moonpool::net {
namespace {

using testing::RawSocket;
using testing::TempDir;

TEST_F(ServerTest, ServesManyRequestsOverOneConnection) {
  ServeEcho();
  for (int i = 0; i < 3; ++i) {
    const Result<HttpResponse> response =
        Client().Send({.method = "POST", .target = "/a?b=c", .body = "12345"}, Soon());
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->body, "POST /a?b=c 5");
    EXPECT_EQ(response->headers.Find("content-type"), "text/plain");
  }
  EXPECT_EQ(server_->Stats().connections_accepted, 1u);
  EXPECT_EQ(server_->Stats().requests_handled, 3u);
}

TEST_F(ServerTest, AnswersFromAnotherThreadLater) {
  std::thread other;
  Serve([&](HttpRequest, HttpReply reply) { other = std::thread([reply] { reply(Text("late")); }); });
  const Result<HttpResponse> response = Client().Send({}, Soon());
  other.join();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->body, "late");
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  ServeEcho();
  RawSocket raw = Raw();
  raw.Say("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = raw.HearAll();
  const size_t one = answer.find("GET /1 0");
  const size_t two = answer.find("GET /2 0");
  EXPECT_NE(one, std::string::npos);
  EXPECT_NE(two, std::string::npos);
  EXPECT_LT(one, two);
}

TEST_F(ServerTest, HeadHasALengthAndNoBody) {
  ServeEcho();
  RawSocket raw = Raw();
  raw.Say("HEAD /1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = raw.HearAll();
  EXPECT_NE(answer.find("Content-Length: 9\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST_F(ServerTest, AHandlerCannotSplitTheHeader) {
  Serve([](HttpRequest, HttpReply reply) {
    HttpResponse response = Text("x");
    response.headers.Add("X-Echo", "a\r\nSet-Cookie: b");
    reply(std::move(response));
  });
  const Result<HttpResponse> response = Client().Send({}, Soon());
  ASSERT_TRUE(response);
  EXPECT_FALSE(response->headers.Find("Set-Cookie"));
}

TEST_F(ServerTest, AReplyThatNobodySendsIsA500) {
  Serve([](HttpRequest request, HttpReply) {
    if (request.target == "/throw") throw std::runtime_error("bug");
  });
  EXPECT_EQ(Client().Send({}, Soon())->status, 500);
  EXPECT_EQ(Client().Send({.target = "/throw"}, Soon())->status, 500);
}

TEST_F(ServerTest, OnlyTheFirstReplyCounts) {
  Serve([](HttpRequest, HttpReply reply) {
    reply(Text("first"));
    reply(Text("second"));
    reply.Begin(Text("third"));
    EXPECT_FALSE(reply.Write("x"));
    reply.Abort();
  });
  EXPECT_EQ(Client().Send({}, Soon())->body, "first");
  EXPECT_EQ(Client().Send({}, Soon())->body, "first");
}

// Field report B33: malformed and oversized requests end quickly with a 4xx, and the server lives on.
TEST_F(ServerTest, ExpectContinueIsAnswered) {
  ServeEcho();
  RawSocket raw = Raw();
  raw.Say("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(raw.HearUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  raw.Say("abc");
  EXPECT_NE(raw.HearAll().find("POST / 3"), std::string::npos);
}

TEST_F(ServerTest, AClientThatDisappearsIsSeenByTheHandler) {
  std::promise<HttpRequest> got;
  std::vector<HttpReply> replies;
  Serve([&](HttpRequest request, HttpReply reply) {
    replies.push_back(reply);
    got.set_value(std::move(request));
  });
  for (const bool reset : {false, true}) {
    got = {};
    RawSocket raw = Raw();
    raw.Say("GET / HTTP/1.1\r\n\r\n");
    const HttpRequest request = got.get_future().get();
    EXPECT_FALSE(request.cancelled());
    if (reset) {
      raw.Reset();
    } else {
      raw.Close();
    }
    Eventually([&] { return request.cancelled(); });
  }
  for (const HttpReply& reply : replies) reply(Text("to nobody"));
}

TEST_F(ServerTest, AClientThatOnlyEndedItsSendingSideIsStillAnswered) {
  std::promise<HttpReply> held;
  Serve([&](HttpRequest, HttpReply reply) { held.set_value(std::move(reply)); });
  RawSocket raw = Raw();
  raw.Say("GET / HTTP/1.1\r\n\r\n");
  raw.EndSending();
  held.get_future().get()(Text("heard"));
  EXPECT_NE(raw.HearAll().find("heard"), std::string::npos);
}

TEST_F(ServerTest, StreamsInChunksAsTheyAreWritten) {
  std::promise<HttpReply> held;
  Serve([&](HttpRequest, HttpReply reply) { held.set_value(std::move(reply)); });
  RawSocket raw = Raw();
  raw.Say("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  HttpReply reply = held.get_future().get();
  reply.Begin(MakeResponse(200, "text/event-stream", ""));
  EXPECT_TRUE(reply.Write("data: 1\n\n"));
  EXPECT_NE(raw.HearUntil("data: 1\n\n").find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_TRUE(reply.Write("data: 2\n\n"));
  EXPECT_EQ(raw.HearUntil("data: 2\n\n"), "\r\n9\r\ndata: 2\n\n");
  reply.Finish();
  EXPECT_EQ(raw.HearAll(), "\r\n0\r\n\r\n");
  EXPECT_FALSE(reply.Write("late"));
}

TEST_F(ServerTest, AStreamDroppedWithoutItsEndIsReset) {
  Serve([&](HttpRequest, HttpReply reply) { reply.Begin(Text("part")); });
  const Result<HttpResponse> response = Client().Send({}, Soon());
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kUnavailable);
}

// Field report B33: idle connections beyond the bound make room for those that ask something.
// Field report B63: addresses are exclusive, and a busy one is named.
TEST_F(ServerTest, ABusyPortIsRefusedByNameAndTheFirstServerLivesOn) {
  ServeEcho();
  EXPECT_NE(server_->port(), 0);
  FunctionHandler other([](HttpRequest, HttpReply) {});
  const auto second = HttpServer::Start(HttpServerOptions{.port = server_->port()}, other);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(server_->port())), std::string::npos);
  EXPECT_TRUE(Alive());
}

TEST_F(ServerTest, AStoppedServersPortCanBeTakenAgainAtOnce) {
  ServeEcho();
  ASSERT_TRUE(Client().Send({}, Soon()));
  const uint16_t port = server_->port();
  server_.reset();
  client_.reset();
  ServeEcho(HttpServerOptions{.port = port});
  EXPECT_TRUE(Alive());
}

TEST_F(ServerTest, AnAddressThatIsNotLoopbackNeedsAnExplicitWord) {
  FunctionHandler other([](HttpRequest, HttpReply) {});
  for (const char* address : {"0.0.0.0", "::"}) {
    const auto refused = HttpServer::Start(HttpServerOptions{.address = address}, other);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(HttpServer::Start(HttpServerOptions{.address = "localhost.example"}, other));
  EXPECT_FALSE(HttpServer::Start(HttpServerOptions{.address = ""}, other));
}

TEST_F(ServerTest, ServesOnAUnixSocketAndKnowsWhoAsks) {
  TempDir directory;
  const std::string path = directory / "bus.sock";
  std::promise<HttpRequest> got;
  Serve(
      [&](HttpRequest request, HttpReply reply) {
        got.set_value(std::move(request));
        reply(Text("ok"));
      },
      HttpServerOptions{.address = "", .unix_socket_path = path});
  EXPECT_EQ(server_->port(), 0);
  HttpClient client(HttpEndpoint{.unix_socket_path = path}, {});
  const Result<HttpResponse> response = client.Send({}, Soon());
  ASSERT_TRUE(response) << response.error().message;
  const HttpRequest request = got.get_future().get();
  EXPECT_TRUE(request.via_unix_socket);
  EXPECT_EQ(request.peer_uid, ::getuid());

  FunctionHandler other([](HttpRequest, HttpReply) {});
  const auto second = HttpServer::Start(HttpServerOptions{.address = "", .unix_socket_path = path}, other);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(RawSocket::ToPath(path).connected());
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ServerTest, StopLetsRunningRequestsFinishWithinTheGrace) {
  std::promise<HttpReply> held;
  Serve([&](HttpRequest, HttpReply reply) { held.set_value(std::move(reply)); });
  RawSocket idle = Raw();
  RawSocket busy = Raw();
  busy.Say("GET / HTTP/1.1\r\n\r\n");
  HttpReply reply = held.get_future().get();
  std::thread stopper([&] { server_->Stop(kLong); });
  EXPECT_TRUE(idle.HearEnd()) << "idle connections go at once";
  reply(Text("finished"));
  EXPECT_NE(busy.HearAll().find("finished"), std::string::npos);
  busy.Close();
  stopper.join();
  EXPECT_FALSE(Raw().connected());
}

TEST_F(ServerTest, StopWithoutGraceCutsOffAndRepliesAfterItReachNobody) {
  std::promise<std::pair<HttpRequest, HttpReply>> held;
  Serve([&](HttpRequest request, HttpReply reply) { held.set_value({std::move(request), std::move(reply)}); });
  RawSocket busy = Raw();
  busy.Say("GET / HTTP/1.1\r\n\r\n");
  auto [request, reply] = held.get_future().get();
  server_->Stop(Duration::zero());
  EXPECT_TRUE(request.cancelled());
  EXPECT_TRUE(busy.HearEnd());
  server_.reset();
  reply(Text("too late"));
}

TEST_F(ServerTest, RepliesRacingWithStopAreSafe) {
  for (int round = 0; round < 50; ++round) {
    Mutex mutex;
    std::vector<std::thread> threads;
    Serve([&](HttpRequest, HttpReply reply) {
      MutexLock lock(mutex);
      threads.emplace_back([reply] {
        reply.Begin(Text("a"));
        for (int i = 0; i < 20; ++i) reply.Write("b");
        reply.Finish();
      });
    });
    std::vector<RawSocket> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(Raw());
      clients.back().Say("GET / HTTP/1.1\r\n\r\n");
    }
    clients.pop_back();
    server_->Stop(Duration::zero());
    server_.reset();
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace moonpool::net

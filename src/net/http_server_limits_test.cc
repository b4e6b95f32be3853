// What a client can make grow or last, and where HttpServer stops it. Field report B33 (its HTTP part).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>

#include "base/mutex.h"
#include "net/server_fixture.h"

namespace moonpool::net {
namespace {

using testing::RawSocket;
using ServerLimitsTest = ServerTest;

TEST_F(ServerLimitsTest, WhatIsNotHttpIsA400) {
  ServeEcho();
  for (const char* bad :
       {"nonsense\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n", "GET\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: abc\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "\x16\x03\x01\x02\r\n\r\n"}) {
    RawSocket raw = Raw();
    raw.Say(bad);
    EXPECT_EQ(Status(raw.HearAll()), 400) << bad;
  }
  EXPECT_TRUE(Alive());
  EXPECT_EQ(server_->Stats().requests_handled, 1u);
}

TEST_F(ServerLimitsTest, ABodyShorterThanAnnouncedIsA400AndReachesNoHandler) {
  ServeEcho();
  RawSocket raw = Raw();
  raw.Say("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  raw.EndSending();
  EXPECT_EQ(Status(raw.HearAll()), 400);
  EXPECT_EQ(server_->Stats().requests_handled, 0u);
}

TEST_F(ServerLimitsTest, ABodyLongerThanAnnouncedIsTheNextRequestAndA400) {
  ServeEcho();
  RawSocket raw = Raw();
  raw.Say("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabcdef\r\n\r\n");
  const std::string answer = raw.HearAll();
  EXPECT_EQ(Status(answer), 200);
  EXPECT_NE(answer.find("HTTP/1.1 400"), std::string::npos);
}

TEST_F(ServerLimitsTest, AHeaderAbove16KiBIsA431) {
  ServeEcho();
  RawSocket fits = Raw();
  fits.Say("GET / HTTP/1.1\r\nConnection: close\r\nX: " + std::string(15'000, 'a') + "\r\n\r\n");
  EXPECT_EQ(Status(fits.HearAll()), 200);
  for (const std::string& big : {"GET / HTTP/1.1\r\nX: " + std::string(17'000, 'a') + "\r\n\r\n",
                                 "GET /" + std::string(17'000, 'a') + " HTTP/1.1\r\n\r\n",
                                 "GET / HTTP/1.1\r\nX: " + std::string(500'000, 'a')}) {
    RawSocket raw = Raw();
    raw.Say(big);
    EXPECT_EQ(Status(raw.HearAll()), 431);
  }
  EXPECT_TRUE(Alive());
}

TEST_F(ServerLimitsTest, ABodyAboveTheLimitIsA413BeforeItIsRead) {
  ServeEcho(HttpServerOptions{.body_bytes_max = 1000});
  const Result<HttpResponse> fits = Client().Send({.method = "POST", .body = std::string(1000, 'x')}, Soon());
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->body, "POST / 1000");
  // Announced: refused from the header alone, though 2 GiB are promised.
  RawSocket announced = Raw();
  announced.Say("POST / HTTP/1.1\r\nContent-Length: 2147483648\r\n\r\n");
  EXPECT_EQ(Status(announced.HearUntil("\r\n\r\n")), 413);
  // Chunked: when the limit is passed.
  RawSocket chunked = Raw();
  chunked.Say("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + std::string(1000, 'x') +
              "\r\n1\r\nx\r\n");
  EXPECT_EQ(Status(chunked.HearUntil("\r\n\r\n")), 413);
  // A client that is still sending when it is refused hears the answer, not a reset.
  RawSocket sending = Raw();
  sending.Say("POST / HTTP/1.1\r\nContent-Length: 1000001\r\n\r\n" + std::string(1'000'001, 'x'));
  EXPECT_EQ(Status(sending.HearAll()), 413);
  EXPECT_TRUE(Alive());
}

TEST_F(ServerLimitsTest, LargeBodiesThatFitArriveWhole) {
  std::string received;
  Serve([&](HttpRequest request, HttpReply reply) {
    received = std::move(request.body);
    reply(Text("ok"));
  });
  std::string body(20 << 20, 'a');
  for (size_t i = 0; i < body.size(); i += 997) body[i] = static_cast<char>('a' + i % 26);
  const Result<HttpResponse> response = Client().Send({.method = "POST", .body = body}, Soon());
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_TRUE(received == body);
}

TEST_F(ServerLimitsTest, BodiesInMemoryAreBoundedTogetherAndTheBudgetComesBack) {
  std::promise<void> handling;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::thread other;
  Serve(
      [&](HttpRequest request, HttpReply reply) {
        if (request.target != "/hold") return reply(Text("ok"));
        other = std::thread([released, reply] {
          released.wait();
          reply(Text("held"));
        });
        handling.set_value();
      },
      HttpServerOptions{.bodies_bytes_max = 1500});
  auto held = std::async(std::launch::async, [&] {
    return Client().Send({.method = "POST", .target = "/hold", .body = std::string(1000, 'x')}, Soon());
  });
  handling.get_future().wait();
  HttpClient second(Client().endpoint(), {});
  EXPECT_EQ(second.Send({.method = "POST", .body = std::string(1000, 'x')}, Soon())->status, 503);
  EXPECT_EQ(second.Send({.method = "POST", .body = std::string(400, 'x')}, Soon())->status, 200);
  release.set_value();
  EXPECT_EQ(held.get()->body, "held");
  other.join();
  Eventually([&] { return second.Send({.method = "POST", .body = std::string(1000, 'x')}, Soon())->status == 200; });
}

TEST_F(ServerLimitsTest, SlowHeadersBodiesAndIdleConnectionsAreClosed) {
  const Duration brief = std::chrono::milliseconds(30);
  ServeEcho(HttpServerOptions{.idle_timeout = brief, .header_timeout = brief, .body_timeout = brief});
  for (const char* part : {"", "GET / HTTP/1.1\r\nX", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"}) {
    RawSocket raw = Raw();
    raw.Say(part);
    EXPECT_TRUE(raw.HearEnd()) << part;
  }
  Eventually([&] { return server_->Stats().connections_open == 0; });
}

TEST_F(ServerLimitsTest, AHandlerMayTakeLongerThanEveryTimeout) {
  const Duration brief = std::chrono::milliseconds(20);
  std::promise<HttpReply> held;
  Serve(
      [&](HttpRequest, HttpReply reply) { held.set_value(std::move(reply)); },
      HttpServerOptions{.idle_timeout = brief, .header_timeout = brief, .body_timeout = brief, .write_timeout = brief});
  RawSocket raw = Raw();
  raw.Say("GET / HTTP/1.1\r\n\r\n");
  HttpReply reply = held.get_future().get();
  // An idle connection that came later is timed out first: all the limits have passed by then.
  RawSocket idle = Raw();
  EXPECT_TRUE(idle.HearEnd());
  reply(Text("patient"));
  EXPECT_NE(raw.HearUntil("patient").find("200 OK"), std::string::npos);
}

TEST_F(ServerLimitsTest, AStreamWhoseClientDoesNotReadIsBounded) {
  std::promise<HttpReply> held;
  Serve([&](HttpRequest, HttpReply reply) { held.set_value(std::move(reply)); },
        HttpServerOptions{.stream_ahead_bytes_max = 1 << 20});
  RawSocket raw = Raw();
  raw.Say("GET / HTTP/1.1\r\n\r\n");
  HttpReply reply = held.get_future().get();
  reply.Begin(Text(""));
  int written = 0;
  const std::string piece(64 * 1024, 'x');
  while (reply.Write(piece)) ASSERT_LT(++written, 10'000) << "never refused";
  Eventually([&] { return server_->Stats().connections_open == 0; });
}

TEST_F(ServerLimitsTest, AThousandIdleConnectionsDoNotKeepOthersOut) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ServeEcho(HttpServerOptions{.connections_max = 100});
  std::vector<RawSocket> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(Raw());
    ASSERT_TRUE(idle.back().connected()) << i;
  }
  EXPECT_TRUE(Alive());
  Eventually([&] { return server_->Stats().connections_accepted >= 1001; });
  EXPECT_LE(server_->Stats().connections_open, 100u);
  EXPECT_GE(server_->Stats().connections_evicted, 900u);
  EXPECT_EQ(server_->Stats().connections_refused, 0u);
  EXPECT_TRUE(idle.front().HearEnd()) << "the oldest was closed";
  idle.back().Say("GET /newest HTTP/1.1\r\n\r\n");
  EXPECT_EQ(Status(idle.back().HearUntil("\r\n")), 200);
}

TEST_F(ServerLimitsTest, WhenNoConnectionIsIdleTheNewcomerIsToldSo) {
  Mutex mutex;
  std::vector<HttpReply> held;
  Serve(
      [&](HttpRequest request, HttpReply reply) {
        if (request.target != "/hold") return reply(Text("ok"));
        MutexLock lock(mutex);
        held.push_back(reply);
      },
      HttpServerOptions{.connections_max = 2});
  RawSocket first = Raw();
  RawSocket second = Raw();
  first.Say("GET /hold HTTP/1.1\r\n\r\n");
  second.Say("GET /hold HTTP/1.1\r\n\r\n");
  Eventually([&] {
    MutexLock lock(mutex);
    return held.size() == 2;
  });
  RawSocket third = Raw();
  third.Say("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(Status(third.HearAll()), 503);
  EXPECT_EQ(server_->Stats().connections_refused, 1u);
  {
    MutexLock lock(mutex);
    held[0](Text("done"));
    held[1](Text("done"));
  }
  EXPECT_EQ(Status(first.HearUntil("done")), 200);
  Eventually([&] { return Alive(); });
}

}  // namespace
}  // namespace moonpool::net

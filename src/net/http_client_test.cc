#include "net/http_client.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "support/fake_clock.h"
#include "support/raw_socket.h"
#include "support/temp_dir.h"

namespace moonpool::net {
namespace {

using testing::RawServer;
using testing::RawSocket;

// Only limits for a hang; no test waits for it to pass.
constexpr Duration kLong = std::chrono::minutes(3);

class HttpClientTest : public ::testing::Test {
 protected:
  Deadline Soon() const { return Deadline(clock_, kLong); }
  static std::unique_ptr<HttpClient> ClientOf(const std::string& url, HttpClientOptions options = {}) {
    Result<HttpEndpoint> endpoint = HttpEndpoint::Parse(url);
    EXPECT_TRUE(endpoint) << (endpoint ? "" : endpoint.error().message);
    return std::make_unique<HttpClient>(*endpoint, std::move(options));
  }
  // Reads a request with a Content-Length body, or none.
  static std::string HearRequest(RawSocket& socket) {
    std::string head = socket.HearUntil("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    return head + socket.HearBytes(static_cast<size_t>(std::atoi(head.c_str() + at + 16)));
  }
  SystemClock clock_;
};

constexpr std::string_view kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

TEST(HttpEndpoint, TakesAddressesAndNothingElse) {
  const Result<HttpEndpoint> plain = HttpEndpoint::Parse("http://127.0.0.1:8080");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, 8080);
  EXPECT_EQ(plain->base_path, "");
  const Result<HttpEndpoint> v6 = HttpEndpoint::Parse("http://[::1]:90/v1/");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->base_path, "/v1");
  EXPECT_EQ(v6->ToString(), "http://[::1]:90/v1");
  EXPECT_EQ(HttpEndpoint::Parse("http://localhost")->port, 80);
  EXPECT_EQ(HttpEndpoint::Parse("unix:/run/a.sock")->unix_socket_path, "/run/a.sock");
  for (const char* bad :
       {"", "127.0.0.1:80", "https://127.0.0.1", "http://example.com", "http://", "http://1.2.3.4:0",
        "http://1.2.3.4:65536", "http://1.2.3.4:80x", "http://user@1.2.3.4", "http://[::1", "http://[::1]x",
        "http://1.2.3.4:", "unix:relative", "http://1.2.3.4/a b", "http://1.2.3.4/\r\nX: y", "http://1.2.3.4/?q"}) {
    const Result<HttpEndpoint> refused = HttpEndpoint::Parse(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << bad;
  }
}

TEST_F(HttpClientTest, SendsAnExplicitHostTokenHeadersAndBody) {
  std::string heard;
  {
    RawServer server([&](RawSocket& socket, int) {
      heard = HearRequest(socket);
      socket.Say(kOk);
    });
    HttpClientOptions options;
    options.bearer_token = "secret";
    options.headers.Add("X-One", "1");
    auto client = ClientOf(server.url() + "/base", options);
    HttpCall call{.method = "POST", .target = "/x?y=1", .body = "{}"};
    call.headers.Add("X-Two", "a\r\nInjected: yes");
    const Result<HttpResponse> response = client->Send(call, Soon());
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, "ok");
    EXPECT_EQ(heard.substr(0, heard.find("\r\n")), "POST /base/x?y=1 HTTP/1.1");
    EXPECT_NE(heard.find("\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"), std::string::npos);
  }
  EXPECT_NE(heard.find("\r\nAuthorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_NE(heard.find("\r\nX-One: 1\r\n"), std::string::npos);
  EXPECT_NE(heard.find("\r\nX-Two: aInjected: yes\r\n"), std::string::npos);
  EXPECT_TRUE(heard.ends_with("\r\n\r\n{}"));
}

TEST_F(HttpClientTest, IgnoresProxySettingsOfTheEnvironment) {
  RawServer proxy([](RawSocket& socket, int) { socket.Say("HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n"); });
  RawServer server([](RawSocket& socket, int) {
    HearRequest(socket);
    socket.Say(kOk);
  });
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  ::setenv("HTTP_PROXY", proxy.url().c_str(), 1);
  const Result<HttpResponse> response = ClientOf(server.url())->Send({}, Soon());
  ::unsetenv("http_proxy");
  ::unsetenv("HTTP_PROXY");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(proxy.connections(), 0);
}

TEST_F(HttpClientTest, KeepsConnectionsAndNoticesThatAKeptOneWasClosed) {
  RawServer server([](RawSocket& socket, int number) {
    HearRequest(socket);
    socket.Say(kOk);
    if (number > 0) return;
    HearRequest(socket);
    socket.Say(kOk);
  });  // the connection closes after its second answer
  auto client = ClientOf(server.url());
  ASSERT_TRUE(client->Send({}, Soon()));
  ASSERT_TRUE(client->Send({}, Soon()));
  EXPECT_EQ(server.connections(), 1);
  // Whether the end is seen before sending or after, the GET succeeds.
  ASSERT_TRUE(client->Send({}, Soon()));
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(HttpClientTest, RepeatsAGetOnAStaleConnectionButNeverAPost) {
  for (const char* method : {"GET", "POST"}) {
    int requests = 0;
    RawServer server([&](RawSocket& socket, int number) {
      HearRequest(socket);
      ++requests;
      socket.Say(kOk);
      if (number > 0) return;
      HearRequest(socket);  // read, but never answered: only the method tells whether a repeat is safe
      ++requests;
      socket.Reset();
    });
    auto client = ClientOf(server.url());
    ASSERT_TRUE(client->Send({}, Soon()));
    HttpProgress progress;
    const Result<HttpResponse> second = client->Send({.method = method, .body = "", .progress = &progress}, Soon());
    if (std::string_view(method) == "GET") {
      ASSERT_TRUE(second) << second.error().message;
      EXPECT_EQ(server.connections(), 2);
    } else {
      ASSERT_FALSE(second);
      EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
      EXPECT_EQ(server.connections(), 1);
      EXPECT_TRUE(progress.sent);
      EXPECT_FALSE(progress.answered);
    }
  }
}

TEST_F(HttpClientTest, AFreshConnectionIsNeitherTakenFromNorGivenToTheKeptOnes) {
  RawServer server([](RawSocket& socket, int) {
    while (!HearRequest(socket).empty()) socket.Say(kOk);
  });
  auto client = ClientOf(server.url());
  ASSERT_TRUE(client->Send({.fresh_connection = true}, Soon()));
  EXPECT_EQ(client->IdleConnections(), 0u);
  ASSERT_TRUE(client->Send({}, Soon()));
  EXPECT_EQ(client->IdleConnections(), 1u);
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(HttpClientTest, AGetIsRepeatedOnlyOnce) {
  RawServer server([](RawSocket& socket, int number) {
    HearRequest(socket);
    if (number == 0) {
      socket.Say(kOk);
      HearRequest(socket);
    }
    socket.Reset();
  });
  auto client = ClientOf(server.url());
  ASSERT_TRUE(client->Send({}, Soon()));
  const Result<HttpResponse> second = client->Send({}, Soon());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(HttpClientTest, RefusedConnectionsAreUnavailableAndNothingWasSent) {
  uint16_t port = 0;
  {
    port = RawServer([](RawSocket&, int) {}).port();
  }
  HttpProgress progress;
  const Result<HttpResponse> response =
      ClientOf("http://127.0.0.1:" + std::to_string(port))->Send({.progress = &progress}, Soon());
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(response.error().message.find(std::to_string(port)), std::string::npos);
  EXPECT_FALSE(progress.sent);
}

TEST_F(HttpClientTest, AnAnswerThatBreaksOffIsUnavailable) {
  for (const std::string part : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
                                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    RawServer server([&](RawSocket& socket, int) {
      HearRequest(socket);
      socket.Say(part);
    });
    const Result<HttpResponse> response = ClientOf(server.url())->Send({.method = "POST"}, Soon());
    ASSERT_FALSE(response) << part;
    EXPECT_EQ(response.error().code, ErrorCode::kUnavailable) << part << response.error().message;
  }
}

TEST_F(HttpClientTest, AnAnswerThatIsNotHttpIsCorrupt) {
  const std::string endless = "HTTP/1.1 200 OK\r\nX: " + std::string(200'000, 'a');
  for (const std::string& part :
       {std::string("SSH-2.0-OpenSSH_9\r\n\r\n"), std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), endless,
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;") + std::string(1'000'000, 'a')}) {
    RawServer server([&](RawSocket& socket, int) {
      HearRequest(socket);
      socket.Say(part);
    });
    const Result<HttpResponse> response = ClientOf(server.url())->Send({}, Soon());
    ASSERT_FALSE(response) << part.substr(0, 60);
    EXPECT_EQ(response.error().code, ErrorCode::kCorrupt) << part.substr(0, 60) << response.error().message;
  }
}

TEST_F(HttpClientTest, AnAnswerAboveItsLimitIsAQuotaErrorHoweverItIsFramed) {
  for (const std::string part :
       {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n4\r\n6789\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n123456789"}) {
    RawServer server([&](RawSocket& socket, int) {
      HearRequest(socket);
      socket.Say(part);
    });
    auto client = ClientOf(server.url());
    const Result<HttpResponse> response = client->Send({.response_bytes_max = 8}, Soon());
    ASSERT_FALSE(response) << part;
    EXPECT_EQ(response.error().code, ErrorCode::kQuota) << part;
    const Result<HttpResponse> fits = client->Send({.response_bytes_max = 9}, Soon());
    ASSERT_TRUE(fits) << fits.error().message;
    EXPECT_EQ(fits->body, "123456789");
  }
}

TEST_F(HttpClientTest, EveryStepEndsByTheDeadline) {
  // Silence after the request, in the header, in the body, between chunks. The server waits for the client to go.
  for (const std::string part : {"", "HTTP/1.1 200 OK\r\nConte", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
                                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"}) {
    RawServer server([&](RawSocket& socket, int) {
      HearRequest(socket);
      socket.Say(part);
      EXPECT_TRUE(socket.HearEnd());
    });
    const Result<HttpResponse> response =
        ClientOf(server.url())->Send({}, Deadline(clock_, std::chrono::milliseconds(50)));
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, ErrorCode::kDeadlineExceeded);
  }
}

TEST_F(HttpClientTest, ADeadlineOfAFakeClockIsSpentInRealTime) {
  testing::FakeClock clock;
  RawServer server([](RawSocket& socket, int) { socket.HearAll(); });
  const Deadline deadline(clock, std::chrono::milliseconds(20));
  const Result<HttpResponse> response = ClientOf(server.url())->Send({}, deadline);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kDeadlineExceeded);
  clock.Advance(std::chrono::seconds(1));
  HttpProgress progress{.sent = true};
  EXPECT_EQ(ClientOf(server.url())->Send({.progress = &progress}, deadline).error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(HttpClientTest, StreamsPiecesAsTheyComeAndCanBeCancelled) {
  std::atomic<bool> client_went{false};
  {
    RawServer server([&](RawSocket& socket, int) {
      HearRequest(socket);
      socket.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
      // The second piece is only sent while the first has been heard: the client must not wait for the end.
      socket.Say("3\r\ntwo\r\n");
      client_went = socket.HearEnd();
    });
    std::string heard;
    HttpCall call;
    call.on_body = [&](std::string_view bytes) {
      heard += bytes;
      return heard.size() < 6;
    };
    const Result<HttpResponse> response = ClientOf(server.url())->Send(call, Soon());
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, "");
    EXPECT_EQ(heard, "onetwo");
  }
  EXPECT_TRUE(client_went);
}

TEST_F(HttpClientTest, ABodyOfAnErrorIsNotStreamed) {
  RawServer server([](RawSocket& socket, int) {
    HearRequest(socket);
    socket.Say("HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nbad");
  });
  HttpCall call;
  call.on_body = [](std::string_view) {
    ADD_FAILURE();
    return true;
  };
  const Result<HttpResponse> response = ClientOf(server.url())->Send(call, Soon());
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 500);
  EXPECT_EQ(response->body, "bad");
}

TEST_F(HttpClientTest, AnAnswerBeforeTheRequestIsCompleteIsHeard) {
  RawServer server([](RawSocket& socket, int) {
    socket.HearUntil("\r\n\r\n");
    socket.Say("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(socket.HearAll().size() < 64u << 20);
  });
  HttpCall call{.method = "POST", .body = std::string(64 << 20, 'x')};
  const Result<HttpResponse> response = ClientOf(server.url())->Send(call, Soon());
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 413);
}

TEST_F(HttpClientTest, InterimAnswersAreSkippedUpToALimit) {
  RawServer server([](RawSocket& socket, int number) {
    HearRequest(socket);
    for (int i = 0; i < (number == 0 ? 2 : 100); ++i) socket.Say("HTTP/1.1 100 Continue\r\n\r\n");
    socket.Say(kOk);
  });
  EXPECT_EQ(ClientOf(server.url())->Send({}, Soon())->body, "ok");
  EXPECT_EQ(ClientOf(server.url())->Send({}, Soon()).error().code, ErrorCode::kCorrupt);
}

TEST_F(HttpClientTest, LocalhostAndUnixSocketsWork) {
  RawServer server([](RawSocket& socket, int) {
    HearRequest(socket);
    socket.Say(kOk);
  });
  EXPECT_TRUE(ClientOf("http://localhost:" + std::to_string(server.port()))->Send({}, Soon()));
  testing::TempDir directory;
  const Result<HttpResponse> nobody = ClientOf("unix:" + (directory / "none").string())->Send({}, Soon());
  EXPECT_EQ(nobody.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace moonpool::net

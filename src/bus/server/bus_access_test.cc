// Who may call, and in whose namespace (decisions 12 and 13; field report B62 c, f).
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bus/server/access_policy.h"
#include "bus/server/bus_server.h"
#include "bus/server/door_fixture.h"
#include "support/raw_socket.h"

namespace moonpool::testing {
namespace {

using bus::AccessPolicy;
using bus::AccessRules;
using bus::BusServerOptions;
using bus::Listener;
using v1::PromptRequest;

constexpr char kOpenToken[] = "open-token-0123456789";
constexpr char kBoundToken[] = "bound-token-0123456789";

class BusAccess : public DoorFixture {};

AccessRules Rules(std::string_view tokens) {
  AccessRules rules;
  auto grants = AccessRules::ParseTokens(tokens);
  EXPECT_TRUE(grants);
  if (grants) rules.tokens = *grants;
  return rules;
}

PromptRequest PromptIn(const std::string& name_space) {
  PromptRequest request;
  request.set_engine("gpu0");
  request.set_namespace_(name_space);
  request.add_tokens(1);
  return request;
}

TEST(AccessRules, ReadsTokens) {
  const auto grants = AccessRules::ParseTokens(
      "# ours\n\n  token-of-everybody-1\r\ntoken-of-team-a-0001 \t namespace=team a\ntoken-without-newline");
  ASSERT_TRUE(grants) << grants.error().message;
  ASSERT_EQ(grants->size(), 3u);
  EXPECT_EQ((*grants)[0].token, "token-of-everybody-1");
  EXPECT_FALSE((*grants)[0].name_space);
  EXPECT_EQ((*grants)[1].name_space, "team a");
  EXPECT_EQ((*grants)[2].token, "token-without-newline");
}

TEST(AccessRules, NamesTheLineAndNeverTheToken) {
  for (const std::string text : {"", "# nothing\n", "short", "token-0123456789abc other=1",
                                 "token-0123456789abc namespace=", "token-0123456789abc\ntoken-0123456789abc\n"}) {
    const auto grants = AccessRules::ParseTokens(text);
    ASSERT_FALSE(grants) << text;
    EXPECT_EQ(grants.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(grants.error().message.find("token-0"), std::string::npos) << grants.error().message;
  }
  EXPECT_NE(AccessRules::ParseTokens("token-0123456789abc\ntoken-0123456789abc\n").error().message.find("line 2"),
            std::string::npos);
}

TEST(AccessRules, ReadsBindings) {
  AccessRules rules;
  ASSERT_TRUE(rules.Bind("http=a"));
  ASSERT_TRUE(rules.Bind("uid:1000=b=c"));
  EXPECT_EQ(rules.listener_namespaces.at(Listener::kHttpTcp), "a");
  EXPECT_EQ(rules.uid_namespaces.at(1000), "b=c");
  for (const char* bad : {"", "http", "http=", "=a", "ftp=a", "uid:=a", "uid:x=a", "uid:-1=a", "uid:99999999999=a"}) {
    EXPECT_FALSE(rules.Bind(bad)) << bad;
  }
}

TEST(AccessPolicy, AsksForTokensOnTcpOnly) {
  const AccessPolicy policy(Rules(kOpenToken));
  const std::string right = std::string("bearer ") + kOpenToken;
  for (const Listener tcp : {Listener::kHttpTcp, Listener::kGrpcTcp}) {
    EXPECT_TRUE(policy.Admit({.listener = tcp, .authorization = right, .peer_uid = {}}));
    for (const std::string& wrong :
         {std::string(), std::string("Bearer "), std::string("Bearer x"), std::string(kOpenToken), right + "x",
          right.substr(0, right.size() - 1), std::string("Basic ") + kOpenToken}) {
      EXPECT_FALSE(policy.Admit({.listener = tcp, .authorization = wrong, .peer_uid = {}})) << wrong;
    }
  }
  for (const Listener local : {Listener::kHttpUnix, Listener::kGrpcUnix}) {
    EXPECT_TRUE(policy.Admit({.listener = local, .authorization = "", .peer_uid = {}}));
    EXPECT_FALSE(policy.Admit({.listener = local, .authorization = "Bearer wrong", .peer_uid = {}}));
  }
  EXPECT_TRUE(AccessPolicy(AccessRules()).Admit({.listener = Listener::kHttpTcp, .authorization = "", .peer_uid = {}}));
}

TEST(AccessPolicy, BindsByTokenThenUserThenListener) {
  AccessRules rules = Rules(std::string(kOpenToken) + "\n" + kBoundToken + " namespace=of-token\n");
  ASSERT_TRUE(rules.Bind("http-unix=of-listener"));
  ASSERT_TRUE(rules.Bind("uid:7=of-user"));
  const AccessPolicy policy(rules);
  const auto bound = [&](std::string authorization, std::optional<uint32_t> uid) {
    return policy.Admit({.listener = Listener::kHttpUnix, .authorization = authorization, .peer_uid = uid})
        .value()
        .bound_namespace.value();
  };
  EXPECT_EQ(bound("", std::nullopt), "of-listener");
  EXPECT_EQ(bound("", 8), "of-listener");
  EXPECT_EQ(bound("", 7), "of-user");
  EXPECT_EQ(bound(std::string("Bearer ") + kBoundToken, 7), "of-token");
  EXPECT_EQ(bound(std::string("Bearer ") + kOpenToken, 7), "of-user");
}

TEST_F(BusAccess, RefusesCallersWithoutTokenOnBothTcpDoors) {
  BusServerOptions options;
  options.access = Rules(kOpenToken);
  Open(options);
  for (const char* wrong : {"", "wrong-token-0123456789"}) {
    token_ = wrong;
    EXPECT_EQ(LookupThrough(0, PromptIn("")).code, "UNAUTHENTICATED");
    EXPECT_EQ(LookupThrough(2, PromptIn("")).code, "UNAUTHENTICATED");
    EXPECT_EQ(Get("/v1/stats").status, 401);
    EXPECT_EQ(Get("/metrics").status, 401);
    EXPECT_EQ(Get("/metrics").headers.Find("WWW-Authenticate"), "Bearer");
    EXPECT_EQ(Get("/healthz").status, 200);
    EXPECT_EQ(Get("/readyz").status, 200);
  }
  token_ = kOpenToken;
  for (int door = 0; door < kDoors; ++door) EXPECT_EQ(LookupThrough(door, PromptIn("")).code, "OK") << DoorName(door);
}

TEST_F(BusAccess, KeepsABoundTokenInItsNamespaceThroughEveryDoor) {
  BusServerOptions options;
  options.access = Rules(std::string(kOpenToken) + "\n" + kBoundToken + " namespace=team-a\n");
  Open(options);
  token_ = kBoundToken;
  for (int door = 0; door < kDoors; ++door) {
    EXPECT_EQ(LookupThrough(door, PromptIn("team-b")).code, "PERMISSION_DENIED") << DoorName(door);
    EXPECT_EQ(LookupThrough(door, PromptIn("")).code, "OK") << DoorName(door);
    EXPECT_EQ(front_.last().name_space, "team-a");
    EXPECT_EQ(LookupThrough(door, PromptIn("team-a")).code, "OK") << DoorName(door);
    EXPECT_EQ(front_.last().name_space, "team-a");
  }
  EXPECT_EQ(Post("/v1/prepare", bus::WriteJson(PromptIn("team-b"))).status, 403);
  EXPECT_EQ(Post("/v1/probe", R"({"engine":"gpu0","slot":0})").status, 403) << "it would cost the others their slot";
  token_ = kOpenToken;
  for (int door = 0; door < kDoors; ++door) {
    EXPECT_EQ(LookupThrough(door, PromptIn("team-b")).code, "OK");
    EXPECT_EQ(front_.last().name_space, "team-b");
  }
}

TEST_F(BusAccess, KeepsABoundListenerAndUserInTheirNamespace) {
  BusServerOptions options;
  ASSERT_TRUE(options.access.Bind("http=of-http"));
  ASSERT_TRUE(options.access.Bind("uid:" + std::to_string(geteuid()) + "=of-user"));
  Open(options);
  EXPECT_EQ(LookupThrough(0, PromptIn("else")).code, "PERMISSION_DENIED");
  EXPECT_EQ(LookupThrough(0, PromptIn("")).code, "OK");
  EXPECT_EQ(front_.last().name_space, "of-http");
  for (const int local : {1, 3}) {
    EXPECT_EQ(LookupThrough(local, PromptIn("else")).code, "PERMISSION_DENIED") << DoorName(local);
    EXPECT_EQ(LookupThrough(local, PromptIn("")).code, "OK");
    EXPECT_EQ(front_.last().name_space, "of-user") << DoorName(local);
  }
  EXPECT_EQ(LookupThrough(2, PromptIn("else")).code, "OK") << "nothing is bound here";
}

TEST_F(BusAccess, ListensBeyondThisMachineOnlyOnDemandAndWithTokens) {
  BusServerOptions options;
  options.http.address = "0.0.0.0";
  const auto without_flag = bus::BusServer::Start(options, front_);
  ASSERT_FALSE(without_flag);
  EXPECT_NE(without_flag.error().message.find("--listen-any"), std::string::npos);

  options.listen_any = true;
  const auto without_token = bus::BusServer::Start(options, front_);
  ASSERT_FALSE(without_token);
  EXPECT_NE(without_token.error().message.find("--token-file"), std::string::npos);

  options.http.address = "";
  options.grpc.address = "0.0.0.0";
  EXPECT_FALSE(bus::BusServer::Start(options, front_));
  options.listen_any = false;
  options.access = Rules(kOpenToken);
  EXPECT_FALSE(bus::BusServer::Start(options, front_)) << "tokens alone are no consent";
}

TEST(Loopback, IsKnownByNumber) {
  for (const char* yes : {"127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(bus::IsLoopback(yes)) << yes;
  for (const char* no : {"0.0.0.0", "::", "10.0.0.1", "localhost", "::ffff:127.0.0.1", ""}) {
    EXPECT_FALSE(bus::IsLoopback(no)) << no;
  }
}

// A page in a browser reaches loopback; its requests show the name it used, or its origin.
TEST_F(BusAccess, DoesNotAnswerWebPages) {
  Open();
  const auto status_with = [&](const std::string& headers) {
    RawSocket raw = RawSocket::ToPort(server_->http_port());
    raw.Say("GET /v1/stats HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n");
    const std::string answer = raw.HearAll();
    return answer.size() > 12 ? answer.substr(9, 3) : answer;
  };
  const std::string port = std::to_string(server_->http_port());
  for (const std::string& good :
       {"127.0.0.1:" + port, "LOCALHOST:" + port, "[::1]:" + port, std::string("localhost")}) {
    EXPECT_EQ(status_with("Host: " + good + "\r\n"), "200") << good;
  }
  for (const std::string& bad :
       std::vector<std::string>{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example", "localhost.evil",
                                "[::1", "[", "", "127.0.0.1@evil", "localhost:80@evil.example"}) {
    EXPECT_NE(status_with("Host: " + bad + "\r\n"), "200") << bad;
  }
  EXPECT_NE(status_with(""), "200") << "no Host at all";
  EXPECT_EQ(status_with("Host: localhost\r\nOrigin: http://evil.example\r\n"), "403");
  EXPECT_EQ(status_with("Host: localhost\r\nOrigin: null\r\n"), "403");
}

}  // namespace
}  // namespace moonpool::testing

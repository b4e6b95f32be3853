// Between messages and core values: nothing is lost, nothing bad gets through (field reports B32, B33).
#include "bus/server/message_translation.h"

#include <gtest/gtest.h>

#include <limits>

#include "bus/server/json_message.h"
#include "bus/server/rpc_code.h"
#include "bus/server/utf8_text.h"

namespace moonpool::bus {
namespace {

v1::PromptRequest Prompt() {
  v1::PromptRequest message;
  message.set_engine("gpu0");
  message.add_tokens(7);
  return message;
}

std::string WhyNot(const v1::PromptRequest& message) {
  const auto request = FromMessage(message);
  return request ? "" : request.error().message;
}

TEST(PromptRequestMessage, CarriesEveryField) {
  v1::PromptRequest message = Prompt();
  message.set_namespace_("team-a");
  message.set_slot(3);
  message.set_wait_ms(0);
  message.set_has_media(true);
  const auto request = FromMessage(message);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->engine, "gpu0");
  EXPECT_EQ(request->name_space, "team-a");
  EXPECT_EQ(request->tokens, std::vector<TokenId>{7});
  EXPECT_EQ(request->slot, 3);
  EXPECT_EQ(request->wait_ms, 0);
  EXPECT_TRUE(request->has_media);
  EXPECT_FALSE(request->text);

  message.clear_tokens();
  message.clear_slot();
  message.clear_wait_ms();
  message.set_text("");
  const auto text_request = FromMessage(message);
  ASSERT_TRUE(text_request);
  EXPECT_EQ(text_request->text, "");
  EXPECT_FALSE(text_request->slot);
  EXPECT_FALSE(text_request->wait_ms);
}

TEST(PromptRequestMessage, IsRefusedByName) {
  EXPECT_NE(WhyNot(v1::PromptRequest()).find("engine"), std::string::npos);

  v1::PromptRequest message = Prompt();
  message.set_text("both");
  EXPECT_NE(WhyNot(message).find("not both"), std::string::npos);

  message = Prompt();
  message.clear_tokens();
  EXPECT_NE(WhyNot(message).find("tokens"), std::string::npos);

  message = Prompt();
  message.add_tokens(-1);
  EXPECT_EQ(WhyNot(message), "tokens[1]: -1 is negative");

  message = Prompt();
  message.set_slot(-1);
  EXPECT_EQ(WhyNot(message), "slot: -1 is negative");

  message = Prompt();
  message.set_wait_ms(-5);
  EXPECT_EQ(WhyNot(message), "waitMs: -5 is negative");
}

TEST(CommitRequestMessage, CarriesEveryField) {
  v1::CommitRequest message;
  message.set_ticket("t");
  message.set_wait(v1::CommitRequest::PUBLISHED);
  message.set_keep(true);
  message.set_truncated(true);
  message.mutable_timings()->set_prompt_n(1);
  message.mutable_timings()->set_cache_n(2);
  message.mutable_timings()->set_prompt_ms(3.5);
  message.mutable_timings()->set_predicted_n(4);
  const auto request = FromMessage(message);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->ticket, "t");
  EXPECT_EQ(request->wait, CommitWait::kPublished);
  EXPECT_TRUE(request->keep);
  EXPECT_TRUE(request->truncated);
  ASSERT_TRUE(request->timings);
  EXPECT_EQ(request->timings->prompt_n, 1u);
  EXPECT_EQ(request->timings->cache_n, 2u);
  EXPECT_EQ(request->timings->prompt_ms, 3.5);
  EXPECT_EQ(request->timings->predicted_n, 4u);
}

TEST(CommitRequestMessage, RefusesImpossibleTimes) {
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    v1::CommitRequest message;
    message.set_ticket("t");
    message.mutable_timings()->set_prompt_ms(bad);
    EXPECT_FALSE(FromMessage(message));
  }
  v1::CommitRequest message;
  EXPECT_FALSE(FromMessage(message)) << "no ticket";
  message.set_ticket("t");
  message.set_wait(static_cast<v1::CommitRequest::Wait>(77));
  EXPECT_FALSE(FromMessage(message)) << "unknown wait";
}

TEST(ReplyMessage, CarriesEveryField) {
  PrepareReply reply;
  reply.slot = 1;
  reply.restored_tokens = 2048;
  reply.decision = Decision::kRestore;
  reply.reason = "hit";
  reply.detail = "d";
  reply.ticket = "t";
  reply.ticket_ttl_ms = 600000;
  reply.prompt_tokens = 2049;
  reply.tokens = {5, 6};
  reply.estimates.restore_ms = 1;
  reply.times.server_wait_ms = 9;
  const v1::PrepareReply message = ToMessage(reply);
  EXPECT_EQ(message.slot(), 1u);
  EXPECT_EQ(message.restored_tokens(), 2048u);
  EXPECT_EQ(message.decision(), v1::RESTORE);
  EXPECT_EQ(message.reason(), "hit");
  EXPECT_EQ(message.ticket(), "t");
  EXPECT_EQ(message.ticket_ttl_ms(), 600000);
  EXPECT_EQ(message.prompt_tokens(), 2049u);
  EXPECT_EQ(message.tokens_size(), 2);
  EXPECT_EQ(message.estimates().restore_ms(), 1);
  EXPECT_EQ(message.times().server_wait_ms(), 9);
  EXPECT_FALSE(ToMessage(PrepareReply()).has_slot());
}

// The bus's words and the messages' names are the same set, or clients of the two would disagree.
TEST(ReplyMessage, NamesDecisionsAlikeEverywhere) {
  for (const Decision decision : {Decision::kRestore, Decision::kRecompute, Decision::kLead, Decision::kBypass}) {
    EXPECT_NE(ToMessage(decision), v1::DECISION_UNSPECIFIED);
  }
}

TEST(ReplyMessage, NeverCarriesBrokenUtf8) {
  LookupReply reply;
  reply.detail = "server said: \xff\xfe";
  EXPECT_EQ(ToMessage(reply).detail(), "server said: ??");
  EXPECT_NE(WriteJson(ToMessage(reply)).find("server said: ??"), std::string::npos);
}

TEST(Utf8Text, ReplacesOnlyWhatIsBroken) {
  EXPECT_EQ(Utf8Text("aé€😀"), "aé€😀");
  EXPECT_EQ(Utf8Text(std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(Utf8Text("\xC0\xAF"), "??");            // overlong
  EXPECT_EQ(Utf8Text("\xED\xA0\x80"), "???");       // surrogate
  EXPECT_EQ(Utf8Text("\xF4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(Utf8Text("\xE2\x82"), "??");            // cut
}

TEST(RpcCode, MapsEveryErrorToAStatusOfBothDoors) {
  EXPECT_EQ(HttpStatusOf(RpcCodeOf(ErrorCode::kInvalidArgument)), 400);
  EXPECT_EQ(HttpStatusOf(RpcCodeOf(ErrorCode::kNotFound)), 404);
  EXPECT_EQ(HttpStatusOf(RpcCodeOf(ErrorCode::kPermission)), 403);
  EXPECT_EQ(HttpStatusOf(RpcCodeOf(ErrorCode::kBusy)), 429);
  EXPECT_EQ(HttpStatusOf(RpcCodeOf(ErrorCode::kUnavailable)), 503);
  EXPECT_EQ(HttpStatusOf(RpcCodeOf(ErrorCode::kDeadlineExceeded)), 504);
  EXPECT_EQ(HttpStatusOf(RpcCodeOf(ErrorCode::kInternal)), 500);
  EXPECT_EQ(HttpStatusOf(RpcCode::kUnauthenticated), 401);
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    const RpcCode rpc = RpcCodeOf(static_cast<ErrorCode>(code));
    EXPECT_NE(rpc, RpcCode::kOk);
    EXPECT_GE(HttpStatusOf(rpc), 400);
  }
}

}  // namespace
}  // namespace moonpool::bus

#include "bus/engine/completion_stream.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/fake_clock.h"

namespace moonpool::bus {
namespace {

using testing::FakeClock;

const std::string kFirst = R"(data: {"content":" the","tokens":[260],"stop":false,"id_slot":-1})"
                           "\n\n";
const std::string kSecond = R"(data: {"content":" day","tokens":[1194],"stop":false,"id_slot":-1})"
                            "\n\n";
const std::string kLast =
    R"(data: {"content":"","tokens":[],"id_slot":1,"stop":true,"truncated":false,"timings":{"cache_n":5,"prompt_n":3,)"
    R"("prompt_ms":12.5,"predicted_n":2,"predicted_ms":4.5}})"
    "\n\n";

class CompletionStreamTest : public ::testing::Test {
 protected:
  Result<Completion> Read(const std::string& text) {
    CompletionStream stream(clock_, clock_.Now());
    stream.Feed(text);
    return stream.Finish();
  }
  FakeClock clock_;
};

TEST_F(CompletionStreamTest, PutsTheEventsTogetherHoweverTheyAreCut) {
  const std::string all = ": keep-alive\n\n" + kFirst + kSecond + kLast;
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    CompletionStream stream(clock_, clock_.Now());
    stream.Feed(std::string_view(all).substr(0, cut));
    stream.Feed(std::string_view(all).substr(cut));
    const Result<Completion> completion = stream.Finish();
    ASSERT_TRUE(completion) << cut << completion.error().message;
    EXPECT_EQ(completion->text, " the day");
    EXPECT_EQ(completion->tokens, (std::vector<TokenId>{260, 1194}));
    EXPECT_EQ(completion->slot, 1u);
    EXPECT_EQ(completion->timings.prompt_tokens_cached, 5u);
    EXPECT_EQ(completion->timings.prompt_tokens_evaluated, 3u);
    EXPECT_DOUBLE_EQ(completion->timings.prompt_ms, 12.5);
    EXPECT_EQ(completion->timings.predicted_tokens, 2u);
  }
}

TEST_F(CompletionStreamTest, TheFirstTokenIsTimedAtItsEventNotAtTheHeaders) {
  CompletionStream stream(clock_, clock_.Now());
  clock_.Advance(std::chrono::milliseconds(10));
  // An event without content, as servers send to report progress, is no token.
  EXPECT_TRUE(stream.Feed("data: {\"content\":\"\",\"tokens\":[],\"stop\":false,\"id_slot\":-1}\n\n"));
  clock_.Advance(std::chrono::milliseconds(90));
  EXPECT_TRUE(stream.Feed(kFirst));
  clock_.Advance(std::chrono::milliseconds(400));
  EXPECT_FALSE(stream.Feed(kLast)) << "nothing of interest comes after the last event";
  const Result<Completion> completion = stream.Finish();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->first_token_after, std::chrono::milliseconds(100));
  EXPECT_EQ(completion->total, std::chrono::milliseconds(500));
}

TEST_F(CompletionStreamTest, LinesMayEndInCarriageReturns) {
  std::string text = kFirst + kLast;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.insert(at, "\r");
  EXPECT_TRUE(Read(text));
}

TEST_F(CompletionStreamTest, AStreamWithoutItsLastEventIsAnError) {
  for (const std::string& text : {std::string(), kFirst, kFirst + kLast.substr(0, kLast.size() / 2)}) {
    EXPECT_EQ(Read(text).error().code, ErrorCode::kInternal);
  }
}

TEST_F(CompletionStreamTest, AnErrorInsideTheStreamIsTheServersError) {
  const std::string broken = kFirst + R"(data: {"error":{"code":400,"message":"context","type":"x"}})" + "\n\n";
  const Result<Completion> completion = Read(broken);
  EXPECT_EQ(completion.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(completion.error().message.find("context"), std::string::npos);
  EXPECT_EQ(Read("error: {\"code\":500,\"message\":\"old\"}\n\n").error().code, ErrorCode::kInternal);
  EXPECT_EQ(Read("data: {\"error\":{\"message\":\"no code\"}}\n\n").error().code, ErrorCode::kInternal);
}

TEST_F(CompletionStreamTest, FieldsOfTheLastEventAreCheckedByName) {
  for (const auto& [what, with, named] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"\"cache_n\":5,", "", "timings.cache_n"},
           {"\"cache_n\":5", "\"cache_n\":-5", "timings.cache_n"},
           {"\"prompt_n\":3", "\"prompt_n\":\"3\"", "timings.prompt_n"},
           {"12.5", "-1", "timings.prompt_ms"},
           {"12.5", "1e999", ""},
           {"4.5", "null", "timings.predicted_ms"},
           {"\"id_slot\":1,", "", "event.id_slot"},
           {"\"id_slot\":1,", "\"id_slot\":-1,", "event.id_slot"},
           {"\"truncated\":false,", "", "event.truncated"},
           {"\"tokens\":[]", "\"tokens\":[-1]", "event.tokens"},
           {"\"tokens\":[],", "", "event.tokens"},
           {"\"content\":\"\"", "\"content\":7", "event.content"},
           {"\"timings\":{", "\"timing\":{", "event.timings"}}) {
    std::string text = kFirst + kLast;
    const size_t at = text.rfind(what);
    ASSERT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), with);
    const Result<Completion> completion = Read(text);
    ASSERT_FALSE(completion) << what << " -> " << with;
    EXPECT_EQ(completion.error().code, ErrorCode::kInternal);
    EXPECT_NE(completion.error().message.find(named), std::string::npos) << completion.error().message;
  }
}

TEST_F(CompletionStreamTest, RandomDamageNeverDoesMoreThanFail) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE(::testing::Message() << "seed=" << seed);
  SeededRng rng(seed);
  const std::string good = kFirst + kSecond + kLast;
  int failed = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (uint64_t changes = 1 + rng.Next() % 4; changes > 0; --changes) {
      text[rng.Next() % text.size()] = static_cast<char>(rng.Next() % 256);
    }
    if (!Read(text)) ++failed;
  }
  EXPECT_GT(failed, 1000);
}

}  // namespace
}  // namespace moonpool::bus

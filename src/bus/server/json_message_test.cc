// The JSON reader: strictness of decision 13c, hostile bodies of field report B33 and its class C6.
#include "bus/server/json_message.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvcache_bus.pb.h"

namespace moonpool::bus {
namespace {

v1::PromptRequest Read(const std::string& text) {
  v1::PromptRequest message;
  const auto result = ReadJson(text, message);
  EXPECT_TRUE(result) << text << ": " << result.error().message;
  return message;
}

template <class Message = v1::PromptRequest>
std::string WhyNot(const std::string& text) {
  Message message;
  const auto result = ReadJson(text, message);
  if (result) return "";
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  return result.error().message;
}

TEST(ReadJson, AcceptsBothSpellings) {
  EXPECT_EQ(Read(R"({"waitMs": 5})").wait_ms(), 5);
  EXPECT_EQ(Read(R"({"wait_ms": 5})").wait_ms(), 5);
  EXPECT_TRUE(Read(R"({"hasMedia": true})").has_media());
}

TEST(ReadJson, AcceptsNumericStringsAndWholeFloats) {
  const v1::PromptRequest message = Read(R"({"tokens": [1, "2", 3.0, 4e0, "5.0", 2147483647], "slot": "0"})");
  EXPECT_EQ(std::vector<int32_t>(message.tokens().begin(), message.tokens().end()),
            (std::vector<int32_t>{1, 2, 3, 4, 5, 2147483647}));
  EXPECT_EQ(message.slot(), 0);
}

TEST(ReadJson, TellsAbsentFromZero) {
  EXPECT_FALSE(Read("{}").has_slot());
  EXPECT_TRUE(Read(R"({"slot": 0})").has_slot());
  EXPECT_FALSE(Read(R"({"slot": null})").has_slot());  // proto3 JSON: null is absence
  EXPECT_TRUE(Read(R"({"text": ""})").has_text());
}

TEST(ReadJson, ReadsMessagesInsideMessages) {
  v1::CommitRequest message;
  ASSERT_TRUE(
      ReadJson(R"({"ticket":"t","timings":{"promptN":7,"cache_n":"9","promptMs":1.5},"wait":"saved"})", message));
  EXPECT_EQ(message.timings().prompt_n(), 7u);
  EXPECT_EQ(message.timings().cache_n(), 9u);
  EXPECT_EQ(message.timings().prompt_ms(), 1.5);
  EXPECT_EQ(message.wait(), v1::CommitRequest::SAVED);
  ASSERT_TRUE(ReadJson(R"({"wait": 2})", message));
}

TEST(ReadJson, NamesTheFieldAndTheIndex) {
  EXPECT_EQ(WhyNot(R"({"tokens": [1, 2, 1.5]})"), "tokens[2]: 1.5 is not a whole number");
  EXPECT_EQ(WhyNot(R"({"tokens": [1e300]})"), "tokens[0]: 1e+300 is out of range");
  EXPECT_EQ(WhyNot(R"({"tokens": [1, 2147483648]})"), "tokens[1]: 2147483648 is out of range");
  EXPECT_EQ(WhyNot(R"({"tokens": [-2147483649]})"), "tokens[0]: -2147483649 is out of range");
  EXPECT_EQ(WhyNot(R"({"tokens": [1, null]})"), "tokens[1]: null is not allowed inside a list");
  EXPECT_EQ(WhyNot(R"({"tokens": ["x"]})"), "tokens[0]: the string \"x\" is not a number");
  EXPECT_EQ(WhyNot(R"({"tokens": [true]})"), "tokens[0]: true is not a whole number");
  EXPECT_EQ(WhyNot(R"({"tokens": [[1]]})"), "tokens[0]: a list inside a list");
  EXPECT_EQ(WhyNot(R"({"tokens": [{}]})"), "tokens[0]: an object is not a whole number");
  EXPECT_EQ(WhyNot(R"({"tokens": 1})"), "tokens: must be a list");
  EXPECT_EQ(WhyNot(R"({"engine": ["a"]})"), "engine: a list is not a string");
  EXPECT_EQ(WhyNot(R"({"engine": 1})"), "engine: a number is not a string");
  EXPECT_EQ(WhyNot(R"({"slot": 1.5})"), "slot: 1.5 is not a whole number");
  EXPECT_EQ(WhyNot(R"({"slot": 2147483648})"), "slot: 2147483648 is out of range");
  EXPECT_EQ(WhyNot(R"({"hasMedia": "true"})"), "hasMedia: a string is not true or false");
  EXPECT_EQ(WhyNot(R"({"tokens": [18446744073709551615]})"), "tokens[0]: 1.8446744073709552e+19 is out of range");
}

TEST(ReadJson, NamesTheFieldInsideMessages) {
  EXPECT_EQ(WhyNot<v1::CommitRequest>(R"({"timings": {"promptN": -1}})"), "timings.promptN: -1 is out of range");
  EXPECT_EQ(WhyNot<v1::CommitRequest>(R"({"timings": {"x": 1}})"), "timings: unknown field \"x\"");
  EXPECT_EQ(WhyNot<v1::CommitRequest>(R"({"timings": 3})"), "timings: a number is not an object");
  EXPECT_EQ(WhyNot<v1::CommitRequest>(R"({"wait": "SOON"})"), "wait: \"SOON\" is none of NONE, SAVED, PUBLISHED");
  EXPECT_EQ(WhyNot<v1::CommitRequest>(R"({"wait": 9})"), "wait: 9 is none of NONE, SAVED, PUBLISHED");
}

TEST(ReadJson, RefusesStringsThatAreAlmostNumbers) {
  for (const char* text : {"", " 1", "1 ", "+1", "0x10", "1,5", "inf", "nan", "-", "1e", "--1", "1e400"}) {
    EXPECT_EQ(WhyNot(fmt::format(R"({{"tokens": ["{}"]}})", text)),
              fmt::format("tokens[0]: the string \"{}\" is not a number", text));
  }
}

TEST(ReadJson, RefusesUnknownAndRepeatedFields) {
  EXPECT_EQ(WhyNot(R"({"engin": "a"})"), "unknown field \"engin\"");
  EXPECT_EQ(WhyNot(R"({"slot": 1, "slot": 1})"), "slot: given twice");
  EXPECT_EQ(WhyNot(R"({"waitMs": 1, "wait_ms": 1})"), "waitMs: given twice");
  EXPECT_EQ(WhyNot(R"({"tokens": [1], "tokens": [2]})"), "tokens: given twice");
  EXPECT_EQ(WhyNot(R"({"slot": null, "slot": 1})"), "slot: given twice");
}

TEST(ReadJson, DoesNotEchoLongOrUnprintableText) {
  const std::string why = WhyNot("{\"" + std::string(100000, 'k') + "\": 1}");
  EXPECT_LT(why.size(), 100u);
  EXPECT_EQ(WhyNot("{\"a\\u0000\\n\xC3\xA9\": 1}"), "unknown field \"a????\"");
}

TEST(ReadJson, RefusesWhatIsNotOneJsonObject) {
  for (const std::string text : {"",
                                 " ",
                                 "[]",
                                 "1",
                                 "\"a\"",
                                 "null",
                                 "true",
                                 "{",
                                 "{\"slot\"",
                                 "{\"slot\":",
                                 "{\"slot\":1",
                                 "{\"slot\":1,}",
                                 "{}{}",
                                 "{} x",
                                 "{'slot':1}",
                                 "{\"slot\":01}",
                                 "{\"slot\":NaN}",
                                 "{\"tokens\":[1,]}",
                                 "{\"tokens\":[1",
                                 "{\"text\":\"\xff\"}",
                                 "{\"text\":\"\xed\xa0\x80\"}",
                                 "{\"text\":\"\\ud800\"}",
                                 "{\"text\":\"a\nb\"}",
                                 "{\"slot\":1e400}"}) {
    EXPECT_NE(WhyNot(text), "") << text;
  }
  EXPECT_NE(WhyNot(std::string("{}\0", 3)), "");
}

// A body cut anywhere ends in an error, never in a half-read message that passes.
TEST(ReadJson, RefusesEveryTruncation) {
  const std::string whole = R"({"engine":"gpu0","namespace":"a\"b","tokens":[1,22,"3"],"slot":-0,"hasMedia":false})";
  Read(whole);
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_NE(WhyNot(whole.substr(0, length)), "") << length;
}

// 100,000 levels end at the limit, without recursion and without memory.
TEST(ReadJson, RefusesDeepNestingAtTheLimit) {
  const std::string arrays = "{\"tokens\":" + std::string(100000, '[');
  EXPECT_EQ(WhyNot(arrays), "tokens[0]: a list inside a list");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"timings\":";
  EXPECT_EQ(WhyNot<v1::CommitRequest>(objects), "timings: unknown field \"timings\"");
  EXPECT_NE(WhyNot(std::string(100000, '[')), "");

  v1::CommitRequest message;
  const auto result = ReadJson(R"({"timings":{}})", message, {.depth_max = 1});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("nested more than 1 deep"), std::string::npos);
}

TEST(ReadJson, ReadsTwoMillionTokens) {
  std::string text = R"({"engine":"e","tokens":[)";
  for (int i = 0; i < 2'000'000; ++i) text += std::to_string(i % 49152) + (i + 1 < 2'000'000 ? "," : "]}");
  const v1::PromptRequest message = Read(text);
  ASSERT_EQ(message.tokens_size(), 2'000'000);
  EXPECT_EQ(message.tokens(1'999'999), 1'999'999 % 49152);
}

TEST(WriteJson, PrintsLowerCamelCaseNumbersAndZeros) {
  v1::PrepareReply reply;
  reply.set_slot(0);
  reply.set_restored_tokens(2048);
  reply.set_decision(v1::RESTORE);
  reply.mutable_times()->set_restore_ms(1.5);
  const std::string text = WriteJson(reply);
  for (const char* part : {R"("slot":0)", R"("restoredTokens":2048)", R"("decision":"RESTORE")", R"("reason":"")",
                           R"("tokens":[])", R"("restoreMs":1.5)", R"("ticketTtlMs":0)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_EQ(WriteJson(v1::PrepareReply()).find("\"slot\""), std::string::npos);
}

// What one side prints the other side reads, for every message of the file.
TEST(WriteJson, PrintsWhatReadJsonReads) {
  v1::StatsReply stats;
  stats.set_ready(true);
  stats.add_engines()->set_name("a\"b\\\n\xE2\x82\xAC");
  stats.mutable_engines(0)->set_bytes_per_token(46080);
  stats.mutable_store()->set_bytes(1e15);
  stats.add_decisions()->set_reason("hit");
  v1::StatsReply copy;
  const auto result = ReadJson(WriteJson(stats), copy);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(copy.SerializeAsString(), stats.SerializeAsString());
}

}  // namespace
}  // namespace moonpool::bus

#include "bus/engine/llama_answers.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "bus/engine/slot_file_name.h"

namespace moonpool::bus {
namespace {

using nlohmann::json;

json GoodProps() {
  return {{"default_generation_settings", {{"n_ctx", 1024}}},
          {"total_slots", 2},
          {"model_alias", "smol"},
          {"model_path", "/m.gguf"},
          {"modalities", {{"vision", true}, {"audio", false}, {"video", false}}},
          {"media_marker", "<__media_x__>"},
          {"build_info", "b11549-abc"},
          {"is_sleeping", false}};
}

// An answer is good; the same with one field changed must fail and name the field.
struct Bad {
  std::string pointer;  // JSON pointer of the field
  json value;           // discarded: the field is removed
  std::string named;
};
const json kMissing = json(json::value_t::discarded);

void ExpectEachRefused(const json& good, const std::vector<Bad>& bads,
                       const std::function<Result<void>(std::string_view)>& parse) {
  ASSERT_TRUE(parse(good.dump()));
  for (const Bad& bad : bads) {
    json changed = good;
    const json::json_pointer pointer(bad.pointer);
    if (bad.value.is_discarded()) {
      changed.at(pointer.parent_pointer()).erase(pointer.back());
    } else {
      changed[pointer] = bad.value;
    }
    const Result<void> result = parse(changed.dump());
    ASSERT_FALSE(result) << bad.pointer << " = " << changed.dump();
    EXPECT_EQ(result.error().code, ErrorCode::kInternal) << bad.pointer;
    EXPECT_NE(result.error().message.find(bad.named), std::string::npos) << result.error().message;
  }
  for (const char* broken : {"", "{", "[1", "null", "7", "\"text\"", "{\"a\":\"\xff\"}"}) {
    const Result<void> result = parse(broken);
    ASSERT_FALSE(result) << broken;
    EXPECT_EQ(result.error().code, ErrorCode::kInternal);
  }
}

template <class T>
Result<void> Discard(Result<T> result) {
  if (!result) return Fail(std::move(result).error());
  return {};
}

TEST(ParseProps, ReadsWhatTheServerTells) {
  const Result<EngineProps> props = ParseProps(GoodProps().dump());
  ASSERT_TRUE(props) << props.error().message;
  EXPECT_EQ(props->incarnation, "<__media_x__>");
  EXPECT_EQ(props->model_path, "/m.gguf");
  EXPECT_EQ(props->model_alias, "smol");
  EXPECT_EQ(props->build, "b11549-abc");
  EXPECT_EQ(props->total_slots, 2u);
  EXPECT_EQ(props->context_tokens, 1024u);
  EXPECT_TRUE(props->has_vision);
  EXPECT_FALSE(props->has_audio);
  EXPECT_FALSE(props->sleeping);
}

TEST(ParseProps, RefusesWhatMakesNoSenseByName) {
  ExpectEachRefused(GoodProps(),
                    {{"/total_slots", kMissing, "props.total_slots"},
                     {"/total_slots", "2", "props.total_slots"},
                     {"/total_slots", 0, "props.total_slots"},
                     {"/total_slots", -1, "props.total_slots"},
                     {"/total_slots", 1.5, "props.total_slots"},
                     {"/total_slots", 1e300, "props.total_slots"},
                     {"/total_slots", kSlotsMax + 1, "props.total_slots"},
                     {"/total_slots", nullptr, "props.total_slots"},
                     {"/model_path", kMissing, "props.model_path"},
                     {"/model_path", 7, "props.model_path"},
                     {"/model_path", std::string(100'000, 'a'), "props.model_path"},
                     {"/media_marker", 7, "props.media_marker"},
                     {"/default_generation_settings", kMissing, "props.default_generation_settings"},
                     {"/default_generation_settings", json::array(), "props.default_generation_settings"},
                     {"/default_generation_settings/n_ctx", kMissing, "n_ctx"},
                     {"/default_generation_settings/n_ctx", 1ull << 40, "n_ctx"},
                     {"/modalities", "none", "props.modalities"},
                     {"/modalities/vision", "yes", "props.modalities.vision"},
                     {"/is_sleeping", 1, "props.is_sleeping"},
                     {"/build_info", json::object(), "props.build_info"}},
                    [](std::string_view body) { return Discard(ParseProps(body)); });
}

TEST(ParseProps, ADeepAnswerIsRefusedBeforeItIsBuilt) {  // field report B33
  const auto refused = ParseProps(std::string(1'000'000, '['));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("deep"), std::string::npos) << refused.error().message;
  json text = GoodProps();
  text["chat_template"] = std::string(1000, '[') + "\\\"" + std::string(1000, '{');
  EXPECT_TRUE(ParseProps(text.dump())) << "brackets in a text are text";
}

TEST(ParseProps, AServerWithoutAMarkerIsTooOld) {
  json old = GoodProps();
  old.erase("media_marker");
  EXPECT_EQ(ParseProps(old.dump()).error().code, ErrorCode::kUnsupported);
}

TEST(ParseProps, WhatOlderServersDoNotTellIsLeftAtItsDefault) {
  json old = GoodProps();
  for (const char* name : {"model_alias", "modalities", "build_info", "is_sleeping"}) old.erase(name);
  const Result<EngineProps> props = ParseProps(old.dump());
  ASSERT_TRUE(props);
  EXPECT_FALSE(props->has_vision);
  EXPECT_EQ(props->build, "");
}

TEST(ParseSlots, AbsenceOfTokensAndTaskCountsAsZero) {
  const json good = {{{"id", 1}, {"is_processing", true}, {"id_task", 7}, {"n_prompt_tokens", 40}},
                     {{"id", 0}, {"is_processing", false}},
                     {{"id", 2}, {"is_processing", false}, {"id_task", -1}, {"n_prompt_tokens", nullptr}}};
  const Result<std::vector<SlotInfo>> slots = ParseSlots(good.dump());
  ASSERT_TRUE(slots) << slots.error().message;
  ASSERT_EQ(slots->size(), 3u);
  EXPECT_EQ((*slots)[0].id, 0u);
  EXPECT_EQ((*slots)[0].tokens_cached, 0u);
  EXPECT_EQ((*slots)[1].tokens_cached, 40u);
  EXPECT_EQ((*slots)[1].task, 7u);
  EXPECT_TRUE((*slots)[1].processing);
  EXPECT_EQ((*slots)[2].task, 0u);
}

TEST(ParseSlots, RefusesWhatMakesNoSenseByName) {
  const json good = {{{"id", 0}, {"is_processing", false}, {"id_task", 7}, {"n_prompt_tokens", 40}},
                     {{"id", 1}, {"is_processing", false}}};
  ExpectEachRefused(good,
                    {{"/0/id", kMissing, "slots[0].id"},
                     {"/1/id", "1", "slots[1].id"},
                     {"/1/id", 0, "twice"},
                     {"/1/id", kSlotsMax, "slots[1].id"},
                     {"/0/is_processing", kMissing, "slots[0].is_processing"},
                     {"/0/is_processing", 0, "slots[0].is_processing"},
                     {"/0/n_prompt_tokens", -5, "slots[0].n_prompt_tokens"},
                     {"/0/n_prompt_tokens", 1ull << 40, "slots[0].n_prompt_tokens"},
                     {"/0/id_task", "x", "slots[0].id_task"},
                     {"/0", 3, "slots[0]"}},
                    [](std::string_view body) { return Discard(ParseSlots(body)); });
}

TEST(ParseTokens, TakesOnlyTokens) {
  EXPECT_EQ(*ParseTokens(R"({"tokens":[0,1,2147483647]})"), (std::vector<TokenId>{0, 1, 2147483647}));
  EXPECT_TRUE(ParseTokens(R"({"tokens":[]})")->empty());
  for (const char* bad :
       {R"({"tokens":[-1]})", R"({"tokens":[2147483648]})", R"({"tokens":[1.0]})", R"({"tokens":["1"]})",
        R"({"tokens":[null]})", R"({"tokens":[{"id":1}]})", R"({"tokens":7})", R"({})", R"([1])", "x"}) {
    const Result<std::vector<TokenId>> tokens = ParseTokens(bad);
    ASSERT_FALSE(tokens) << bad;
    EXPECT_EQ(tokens.error().code, ErrorCode::kInternal);
  }
}

TEST(ParseTokens, ADeeplyNestedAnswerIsAnErrorAndNoOverflow) {
  const std::string deep = "{\"tokens\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_FALSE(ParseTokens(deep));
  EXPECT_FALSE(ParseTokens(std::string(1'000'000, '[')));
}

TEST(ParseSave, RefusesWhatMakesNoSenseByName) {
  const json good = {
      {"id_slot", 1}, {"filename", "a.bin"}, {"n_saved", 8}, {"n_written", 185224}, {"timings", {{"save_ms", 0.6}}}};
  const Result<SlotSave> save = ParseSave(good.dump(), 1, "a.bin");
  ASSERT_TRUE(save);
  EXPECT_EQ(save->tokens, 8u);
  EXPECT_EQ(save->bytes, 185224u);
  EXPECT_DOUBLE_EQ(save->server_ms, 0.6);
  ExpectEachRefused(good,
                    {{"/id_slot", kMissing, "answer.id_slot"},
                     {"/id_slot", 0, "answer.id_slot"},
                     {"/filename", "b.bin", "answer.filename"},
                     {"/n_saved", kMissing, "answer.n_saved"},
                     {"/n_saved", -1, "answer.n_saved"},
                     {"/n_written", kMissing, "answer.n_written"},
                     {"/n_written", 1ull << 60, "answer.n_written"},
                     {"/timings", kMissing, "answer.timings"},
                     {"/timings/save_ms", kMissing, "answer.timings.save_ms"},
                     {"/timings/save_ms", -1.0, "answer.timings.save_ms"},
                     {"/timings/save_ms", 1e300, "answer.timings.save_ms"},
                     {"/timings/save_ms", "fast", "answer.timings.save_ms"}},
                    [](std::string_view body) { return Discard(ParseSave(body, 1, "a.bin")); });
}

TEST(ParseRestore, RefusesWhatMakesNoSenseByName) {
  const json good = {
      {"id_slot", 0}, {"filename", "a.bin"}, {"n_restored", 8}, {"n_read", 99}, {"timings", {{"restore_ms", 0.2}}}};
  ExpectEachRefused(good,
                    {{"/n_restored", kMissing, "answer.n_restored"},
                     {"/n_read", 1.5, "answer.n_read"},
                     {"/timings/restore_ms", nullptr, "answer.timings.restore_ms"}},
                    [](std::string_view body) { return Discard(ParseRestore(body, 0, "a.bin")); });
}

TEST(ParseErase, ChecksTheSlot) {
  EXPECT_EQ(*ParseErase(R"({"id_slot":3,"n_erased":12})", 3), 12u);
  EXPECT_FALSE(ParseErase(R"({"id_slot":2,"n_erased":12})", 3));
  EXPECT_FALSE(ParseErase(R"({"id_slot":3})", 3));
}

TEST(ParseLoraAdapters, ReadsPathAndScale) {
  EXPECT_TRUE(ParseLoraAdapters("[]")->empty());
  const Result<std::vector<LoraAdapter>> adapters = ParseLoraAdapters(R"([{"id":0,"path":"/a.gguf","scale":0.5}])");
  ASSERT_TRUE(adapters);
  EXPECT_EQ((*adapters)[0].path, "/a.gguf");
  EXPECT_DOUBLE_EQ((*adapters)[0].scale, 0.5);
  for (const char* bad : {"{}", "[{}]", R"([{"path":"/a"}])", R"([{"path":1,"scale":1}])", "[7]"}) {
    EXPECT_EQ(ParseLoraAdapters(bad).error().code, ErrorCode::kInternal) << bad;
  }
}

TEST(ErrorOfStatus, EveryStatusMeansWhatTheServerMeansByIt) {
  const std::string loading = R"({"error":{"code":503,"message":"Loading model","type":"unavailable_error"}})";
  const std::string busy = R"({"error":{"code":503,"message":"no slot available","type":"unavailable_error"}})";
  EXPECT_EQ(ErrorOfStatus(400, "").code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ErrorOfStatus(401, "").code, ErrorCode::kPermission);
  EXPECT_EQ(ErrorOfStatus(404, "").code, ErrorCode::kUnsupported);
  EXPECT_EQ(ErrorOfStatus(501, "").code, ErrorCode::kUnsupported);
  EXPECT_EQ(ErrorOfStatus(503, loading).code, ErrorCode::kUnavailable);
  EXPECT_EQ(ErrorOfStatus(503, busy).code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(ErrorOfStatus(500, "").code, ErrorCode::kInternal);
  EXPECT_EQ(ErrorOfStatus(302, "").code, ErrorCode::kInternal);
  EXPECT_EQ(ErrorOfStatus(204, "").code, ErrorCode::kInternal);
}

TEST(ErrorOfStatus, KeepsTheServersWordsShortAndOnOneLine) {
  const json body = {{"error", {{"message", "a\nb\x1b[31m" + std::string(10'000, 'c')}}}};
  const std::string message = ErrorOfStatus(500, body.dump()).message;
  EXPECT_LT(message.size(), 500u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_NE(message.find("a b"), std::string::npos);
}

// Field report B32: names that mean something else to a file system or a command line.
TEST(SlotFileName, IsOnePlainNameAndNothingElse) {
  for (const char* good : {"a", "0", "a.bin", "moonpool-1_2.bin", "0123456789abcdef"})
    EXPECT_TRUE(IsSlotFileName(good));
  EXPECT_TRUE(IsSlotFileName(std::string(200, 'a')));
  using namespace std::string_view_literals;
  for (const std::string_view bad : {""sv,
                                     "."sv,
                                     ".."sv,
                                     "..."sv,
                                     "a/b"sv,
                                     "a\\b"sv,
                                     "%2e%2e%2fx"sv,
                                     "x\0y"sv,
                                     "-a"sv,
                                     "_a"sv,
                                     ".a"sv,
                                     "a."sv,
                                     "a..b"sv,
                                     "A"sv,
                                     "a b"sv,
                                     "a:b"sv,
                                     "\xc0\xae\xc0\xae"sv,
                                     "\xc3\xa4"sv,
                                     "a\n"sv,
                                     "~"sv,
                                     "*"sv,
                                     "/etc/passwd"sv}) {
    EXPECT_FALSE(IsSlotFileName(bad)) << bad;
  }
  EXPECT_FALSE(IsSlotFileName(std::string(201, 'a')));
  EXPECT_FALSE(IsSlotFileName(std::string(300, 'a')));
}

}  // namespace
}  // namespace moonpool::bus

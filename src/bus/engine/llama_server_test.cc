// LlamaServer against the scripted server: what is sent, what comes back, what every failure means.
#include "bus/engine/llama_server.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "support/fake_clock.h"
#include "support/fake_llama_server.h"
#include "support/raw_socket.h"
#include "support/temp_dir.h"

namespace moonpool::bus {
namespace {

using testing::FakeClock;
using testing::FakeFault;
using testing::FakeLlamaOptions;
using testing::FakeLlamaServer;
using testing::TempDir;

// Only a limit for a hang; no test waits for it to pass.
constexpr Duration kLong = std::chrono::seconds(30);
// Real time that a call is given when its answer is held back.
constexpr Duration kBrief = std::chrono::milliseconds(50);

class LlamaServerTest : public ::testing::Test {
 protected:
  void Serve(FakeLlamaOptions options = {}) {
    options.slot_directory = directory_.path();
    fake_ = std::make_unique<FakeLlamaServer>(std::move(options));
    Connect({});
  }
  void Connect(LlamaServerOptions options) {
    if (options.url.empty()) options.url = fake_->url();
    Result<std::unique_ptr<LlamaServer>> made = LlamaServer::Make(std::move(options), clock_);
    ASSERT_TRUE(made) << made.error().message;
    engine_ = std::move(*made);
  }
  Deadline Soon() const { return Deadline(clock_, kLong); }
  Deadline Briefly() const { return Deadline(clock_, kBrief); }
  static CompletionRequest Ask(std::vector<TokenId> prompt, uint32_t slot = 0) {
    CompletionRequest request;
    request.prompt = std::move(prompt);
    request.slot = slot;
    request.predict_max = 3;
    return request;
  }

  // Every call of the engine by the name under which the fake knows it.
  struct EngineCall {
    std::string name;
    std::function<std::optional<Error>(const Deadline&)> run;
  };
  std::vector<EngineCall> EveryCall() {
    const auto error_of = [](auto result) -> std::optional<Error> {
      if (result) return std::nullopt;
      return result.error();
    };
    return {{"GET /health", [=, this](const Deadline& d) { return error_of(engine_->Health(d)); }},
            {"GET /props", [=, this](const Deadline& d) { return error_of(engine_->Props(d)); }},
            {"GET /slots", [=, this](const Deadline& d) { return error_of(engine_->Slots(d)); }},
            {"GET /lora-adapters", [=, this](const Deadline& d) { return error_of(engine_->LoraAdapters(d)); }},
            {"POST /tokenize", [=, this](const Deadline& d) { return error_of(engine_->Tokenize("text", d)); }},
            {"POST /completion",
             [=, this](const Deadline& d) {
               return error_of(engine_->Complete(Ask({1, 2}), d));
             }},
            {"save", [=, this](const Deadline& d) { return error_of(engine_->SaveSlot(0, "a.bin", d)); }},
            {"restore", [=, this](const Deadline& d) { return error_of(engine_->RestoreSlot(0, "a.bin", d)); }},
            {"erase", [=, this](const Deadline& d) { return error_of(engine_->EraseSlot(0, d)); }}};
  }

  SystemClock clock_;
  TempDir directory_;
  std::unique_ptr<FakeLlamaServer> fake_;
  std::unique_ptr<LlamaServer> engine_;
};

TEST_F(LlamaServerTest, ABadAddressIsRefusedAtOnce) {
  EXPECT_EQ(LlamaServer::Make({.url = "https://127.0.0.1"}, clock_).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(LlamaServerTest, EveryCallWorksOnAServerThatIsWell) {
  Serve();
  ASSERT_FALSE(EveryCall()[5].run(Soon()));
  for (const EngineCall& call : EveryCall()) {
    const std::optional<Error> error = call.run(Soon());
    EXPECT_FALSE(error) << call.name << ": " << error->message;
  }
}

TEST_F(LlamaServerTest, PropsTellTheServersIdentity) {
  Serve({.slots = 3, .context_tokens = 512, .model_path = "/x/model.gguf"});
  const Result<EngineProps> props = engine_->Props(Soon());
  ASSERT_TRUE(props) << props.error().message;
  EXPECT_EQ(props->total_slots, 3u);
  EXPECT_EQ(props->context_tokens, 512u);
  EXPECT_EQ(props->model_path, "/x/model.gguf");
  EXPECT_FALSE(props->incarnation.empty());
}

// Field report B13: text becomes tokens exactly as the server itself does it for a prompt.
TEST_F(LlamaServerTest, TokenizesAsTheServerTokenizesAPrompt) {
  Serve();
  const std::string text = "a<|special|>b \"quoted\" \xc3\xa4";
  const Result<std::vector<TokenId>> tokens = engine_->Tokenize(text, Soon());
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->front(), FakeLlamaServer::kBos);
  EXPECT_NE(std::ranges::find(*tokens, FakeLlamaServer::kSpecial), tokens->end());
  const nlohmann::json sent = fake_->Calls().back().body;
  EXPECT_EQ(sent["add_special"], true);
  EXPECT_EQ(sent["parse_special"], true);

  // A string prompt and our tokens are the same prompt: the second is cached but for its last token.
  net::HttpClient client(engine_->endpoint(), {});
  const nlohmann::json body = {{"prompt", text}, {"id_slot", 0}, {"n_predict", 0}};
  ASSERT_TRUE(client.Send({.method = "POST", .target = "/completion", .body = body.dump()}, Soon()));
  const Result<Completion> completion = engine_->Complete(Ask(*tokens), Soon());
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->timings.prompt_tokens_cached, tokens->size() - 1);
}

TEST_F(LlamaServerTest, TextThatIsNotUtf8IsRefusedBeforeItIsSent) {
  Serve();
  EXPECT_EQ(engine_->Tokenize("a\xff", Soon()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fake_->Calls().empty());
}

TEST_F(LlamaServerTest, ACompletionReportsWhatWasEvaluatedAndWhatWasCached) {
  Serve();
  std::vector<TokenId> prompt = {5, 6, 7, 8, 9};
  const Result<Completion> cold = engine_->Complete(Ask(prompt, 1), Soon());
  ASSERT_TRUE(cold) << cold.error().message;
  EXPECT_EQ(cold->slot, 1u);
  EXPECT_EQ(cold->tokens.size(), 3u);
  EXPECT_EQ(cold->text.size(), 3u);
  EXPECT_EQ(cold->timings.prompt_tokens_evaluated, 5u);
  EXPECT_EQ(cold->timings.prompt_tokens_cached, 0u);
  EXPECT_GT(cold->total, Duration::zero());
  EXPECT_LE(cold->first_token_after, cold->total);
  prompt.push_back(10);
  const Result<Completion> warm = engine_->Complete(Ask(prompt, 1), Soon());
  ASSERT_TRUE(warm);
  EXPECT_EQ(warm->timings.prompt_tokens_cached, 5u);
  EXPECT_EQ(warm->timings.prompt_tokens_evaluated, 1u);
  const nlohmann::json sent = fake_->Calls().back().body;
  EXPECT_EQ(sent["id_slot"], 1);
  EXPECT_EQ(sent["stream"], true);
  EXPECT_EQ(sent["return_tokens"], true);
  EXPECT_EQ(sent["prompt"], (std::vector<TokenId>{5, 6, 7, 8, 9, 10}));
}

TEST_F(LlamaServerTest, TheFirstTokenIsTimedWhenItComes) {
  FakeClock fake_clock;
  Serve();
  Result<std::unique_ptr<LlamaServer>> engine = LlamaServer::Make({.url = fake_->url()}, fake_clock);
  ASSERT_TRUE(engine);
  fake_->Hold("POST /completion#first");
  auto running = std::async(std::launch::async, [&] {
    return (*engine)->Complete(Ask({1, 2, 3}), Deadline(fake_clock, kLong));
  });
  fake_->AwaitHeld("POST /completion#first", 1);  // the headers are out
  fake_clock.Advance(std::chrono::milliseconds(700));
  fake_->Release("POST /completion#first");
  const Result<Completion> completion = running.get();
  ASSERT_TRUE(completion) << completion.error().message;
  EXPECT_EQ(completion->first_token_after, std::chrono::milliseconds(700));
}

TEST_F(LlamaServerTest, SavesRestoresAndErases) {
  Serve();
  ASSERT_TRUE(engine_->Complete(Ask({1, 2, 3}), Soon()));
  const Result<SlotSave> save = engine_->SaveSlot(0, "a.bin", Soon());
  ASSERT_TRUE(save) << save.error().message;
  EXPECT_EQ(save->tokens, 5u) << "prompt and generated tokens but the last";
  EXPECT_EQ(save->bytes, std::filesystem::file_size(directory_ / "a.bin"));
  EXPECT_DOUBLE_EQ(save->server_ms, 1.5);
  const Result<SlotRestore> restore = engine_->RestoreSlot(1, "a.bin", Soon());
  ASSERT_TRUE(restore) << restore.error().message;
  EXPECT_EQ(restore->tokens, 5u);
  EXPECT_EQ(restore->bytes, save->bytes);
  EXPECT_EQ(fake_->SlotTokens(1), fake_->SlotTokens(0));
  EXPECT_EQ(*engine_->EraseSlot(1, Soon()), 5u);
  EXPECT_EQ(*engine_->EraseSlot(1, Soon()), 0u);
}

// Field report B16: the restore's own answer promises everything; only the completion tells the truth.
TEST_F(LlamaServerTest, AnIneffectiveRestoreShowsInTheTimingsAlone) {
  Serve();
  ASSERT_TRUE(engine_->Complete(Ask({1, 2, 3, 4}), Soon()));
  ASSERT_TRUE(engine_->SaveSlot(0, "a.bin", Soon()));
  fake_->MakeRestoresIneffective(true);
  const Result<SlotRestore> restore = engine_->RestoreSlot(1, "a.bin", Soon());
  ASSERT_TRUE(restore);
  EXPECT_EQ(restore->tokens, 6u);
  const Result<Completion> completion = engine_->Complete(Ask({1, 2, 3, 4, 5}, 1), Soon());
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->timings.prompt_tokens_cached, 0u);
  EXPECT_EQ(completion->timings.prompt_tokens_evaluated, 5u);
}

TEST_F(LlamaServerTest, EveryStatusMeansTheSameForEveryCall) {
  Serve();
  ASSERT_TRUE(engine_->Props(Soon()));
  const std::vector<std::pair<FakeFault, ErrorCode>> faults = {
      {FakeFault::Status(400, "bad"), ErrorCode::kInvalidArgument},
      {FakeFault::Status(401, "key"), ErrorCode::kPermission},
      {FakeFault::Status(404, "File Not Found"), ErrorCode::kUnsupported},
      {FakeFault::Status(500, "Unable to save slot"), ErrorCode::kInternal},
      {FakeFault::Status(501, "off"), ErrorCode::kUnsupported},
      {FakeFault::Status(503, "Loading model"), ErrorCode::kUnavailable},
      {FakeFault::Status(503, "no slot available"), ErrorCode::kFailedPrecondition}};
  for (const EngineCall& call : EveryCall()) {
    for (const auto& [fault, code] : faults) {
      ASSERT_TRUE(engine_->Props(Soon()));
      fake_->Fail(call.name, fault);
      const std::optional<Error> error = call.run(Soon());
      ASSERT_TRUE(error) << call.name;
      const bool health_503 = call.name == "GET /health" && fault.status == 503;
      EXPECT_EQ(error->code, health_503 ? ErrorCode::kUnavailable : code) << call.name << ": " << error->message;
      EXPECT_NE(error->message.find(fault.text), std::string::npos) << error->message;
      EXPECT_FALSE(engine_->ActionInDoubt(0)) << "an answer settles what became of the action";
    }
  }
}

TEST_F(LlamaServerTest, AResetIsUnavailabilityForEveryCall) {
  Serve();
  for (const EngineCall& call : EveryCall()) {
    ASSERT_TRUE(engine_->Props(Soon()));
    // A GET may be repeated on a fresh connection, so it is reset twice.
    fake_->Fail(call.name, FakeFault::Reset(), call.name.starts_with("GET") ? 2 : 1);
    const std::optional<Error> error = call.run(Soon());
    ASSERT_TRUE(error) << call.name;
    EXPECT_EQ(error->code, ErrorCode::kUnavailable) << call.name << error->message;
  }
}

TEST_F(LlamaServerTest, AnAnswerThatBreaksOffIsUnavailabilityForEveryCall) {
  Serve();
  for (const EngineCall& call : EveryCall()) {
    ASSERT_TRUE(engine_->Props(Soon()));
    fake_->Fail(call.name, FakeFault::Truncated());
    if (call.name == "GET /health") continue;
    const std::optional<Error> error = call.run(Soon());
    ASSERT_TRUE(error) << call.name;
    EXPECT_EQ(error->code, ErrorCode::kUnavailable) << call.name << error->message;
  }
}

TEST_F(LlamaServerTest, AnAnswerThatMakesNoSenseIsInternalForEveryCall) {
  Serve();
  for (const EngineCall& call : EveryCall()) {
    if (call.name == "GET /health") continue;  // its 200 says it all
    for (const FakeFault& fault :
         {FakeFault::Garbage(), FakeFault::Body("{}"), FakeFault::Body("[{}]"), FakeFault::Body(""),
          FakeFault::Body("null"), FakeFault::Body("{\"tokens\":[-1]}")}) {
      ASSERT_TRUE(engine_->Props(Soon()));
      fake_->Fail(call.name, fault);
      const std::optional<Error> error = call.run(Soon());
      ASSERT_TRUE(error) << call.name << fault.text;
      const bool too_old = call.name == "GET /props" && fault.text == "{}";
      if (call.name == "GET /props" && (too_old || fault.text.starts_with("{"))) {
        EXPECT_EQ(error->code, ErrorCode::kUnsupported) << error->message;
      } else {
        EXPECT_EQ(error->code, ErrorCode::kInternal) << call.name << fault.text << error->message;
      }
    }
  }
}

TEST_F(LlamaServerTest, AHugeAnswerIsInternalAndNotKept) {
  Serve();
  Connect({.answer_bytes_max = 100'000});
  ASSERT_TRUE(engine_->Props(Soon()));
  const std::string huge = "[" + std::string(30 << 20, ' ') + "]";
  for (const EngineCall& call : EveryCall()) {
    fake_->Fail(call.name, FakeFault::Body(huge));
    const std::optional<Error> error = call.run(Soon());
    ASSERT_TRUE(error) << call.name;
    EXPECT_EQ(error->code, ErrorCode::kInternal) << call.name << error->message;
  }
}

TEST_F(LlamaServerTest, FailuresInsideAStreamedCompletionAreErrors) {
  Serve();
  for (const auto& [fault, code] :
       std::vector<std::pair<FakeFault, ErrorCode>>{{FakeFault::Status(500, "went wrong"), ErrorCode::kInternal},
                                                    {FakeFault::Status(503, "no slot"), ErrorCode::kFailedPrecondition},
                                                    {FakeFault::Garbage(), ErrorCode::kInternal},
                                                    {FakeFault::Truncated(), ErrorCode::kInternal},
                                                    {FakeFault::Reset(), ErrorCode::kUnavailable}}) {
    fake_->Fail("POST /completion#first", fault);
    const Result<Completion> completion = engine_->Complete(Ask({1, 2, 3}), Soon());
    ASSERT_FALSE(completion);
    EXPECT_EQ(completion.error().code, code) << completion.error().message;
  }
}

TEST_F(LlamaServerTest, EveryCallEndsByItsDeadline) {
  Serve();
  for (const EngineCall& call : EveryCall()) {
    ASSERT_TRUE(engine_->Props(Soon()));
    fake_->Hold(call.name);
    const std::optional<Error> error = call.run(Briefly());
    ASSERT_TRUE(error) << call.name;
    EXPECT_EQ(error->code, ErrorCode::kDeadlineExceeded) << call.name << error->message;
    fake_->Release(call.name);
    const size_t before = fake_->Calls().size();
    EXPECT_EQ(call.run(Deadline(clock_, Duration::zero()))->code, ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(fake_->Calls().size(), before) << "a deadline that has passed sends nothing";
  }
}

TEST_F(LlamaServerTest, AServerThatIsNotThereIsUnavailable) {
  uint16_t port = 0;
  {
    port = testing::RawServer([](testing::RawSocket&, int) {}).port();
  }
  Connect({.url = "http://127.0.0.1:" + std::to_string(port)});
  for (const EngineCall& call : EveryCall()) {
    EXPECT_EQ(call.run(Soon())->code, ErrorCode::kUnavailable) << call.name;
  }
  EXPECT_FALSE(engine_->ActionInDoubt(0)) << "nothing was sent";
}

TEST_F(LlamaServerTest, TheApiKeyIsSentAndItsLackIsAPermissionError) {
  Serve({.api_key = "secret"});
  EXPECT_TRUE(engine_->Health(Soon())) << "the one call that needs no key";
  EXPECT_EQ(engine_->Props(Soon()).error().code, ErrorCode::kPermission);
  EXPECT_EQ(engine_->SaveSlot(0, "a.bin", Soon()).error().code, ErrorCode::kPermission);
  Connect({.api_key = "wrong"});
  EXPECT_EQ(engine_->Slots(Soon()).error().code, ErrorCode::kPermission);
  Connect({.api_key = "secret"});
  for (const EngineCall& call : EveryCall()) EXPECT_FALSE(call.run(Soon())) << call.name;
}

TEST_F(LlamaServerTest, ARoutersModelIsNamedInEveryCall) {
  Serve({.router_model = "m"});
  EXPECT_EQ(engine_->Props(Soon()).error().code, ErrorCode::kInvalidArgument);
  Connect({.model = "m"});
  for (const EngineCall& call : EveryCall()) {
    const std::optional<Error> error = call.run(Soon());
    EXPECT_FALSE(error) << call.name << ": " << error->message;
  }
  for (const FakeLlamaServer::Call& call : fake_->Calls()) {
    // llama.cpp issue 22373: in the body, a query does not count.
    if (!call.slot) continue;
    EXPECT_EQ(call.body.value("model", "none"), "m");
  }
}

TEST_F(LlamaServerTest, WithoutASlotDirectoryActionsAreUnsupported) {
  fake_ = std::make_unique<FakeLlamaServer>(FakeLlamaOptions{});
  Connect({});
  EXPECT_EQ(engine_->SaveSlot(0, "a.bin", Soon()).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(engine_->RestoreSlot(0, "a.bin", Soon()).error().code, ErrorCode::kUnsupported);
}

// Field report B32: the server takes a slot id modulo the number of its slots, so a wrong one would overwrite
// somebody else's conversation. And names that are not plain never leave the house.
TEST_F(LlamaServerTest, SlotsThatDoNotExistAreRefusedBeforeAnythingIsSent) {
  Serve({.slots = 2});
  fake_->SetSlotTokens(1, {1, 2, 3});
  for (const uint32_t slot : {2u, 3u, 7u, 0x80000000u, 0xffffffffu}) {
    for (const Error& error :
         {engine_->SaveSlot(slot, "a.bin", Soon()).error(), engine_->RestoreSlot(slot, "a.bin", Soon()).error(),
          engine_->EraseSlot(slot, Soon()).error(), engine_->Complete(Ask({1}, slot), Soon()).error()}) {
      EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << error.message;
    }
  }
  for (const char* name : {"save", "restore", "erase", "POST /completion"}) EXPECT_EQ(fake_->CountOf(name), 0u);
  EXPECT_EQ(fake_->CountOf("GET /props"), 1u) << "asked once, then known";
  EXPECT_EQ(fake_->SlotTokens(1), (std::vector<TokenId>{1, 2, 3}));
}

TEST_F(LlamaServerTest, FileNamesThatAreNotPlainAreRefusedBeforeAnythingIsSent) {
  Serve();
  const std::filesystem::path outside = directory_.path().parent_path() / "canary_of_engine_test";
  std::ofstream(outside) << "untouched";
  using namespace std::string_literals;
  for (const std::string& name : {""s, "."s, ".."s, "..."s, "a/b"s, "a\\b"s, "%2e%2e%2fx"s, "x\0y"s,
                                  std::string(300, 'a'), "\xc0\xae"s, "-rf"s, "../canary_of_engine_test"s}) {
    EXPECT_EQ(engine_->SaveSlot(0, name, Soon()).error().code, ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(engine_->RestoreSlot(0, name, Soon()).error().code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_TRUE(fake_->Calls().empty());
  std::string text;
  std::ifstream(outside) >> text;
  EXPECT_EQ(text, "untouched");
  std::filesystem::remove(outside);
}

TEST_F(LlamaServerTest, TheNumberOfSlotsIsAskedAgainAfterTheServerWasAway) {
  Serve({.slots = 4});
  ASSERT_TRUE(engine_->EraseSlot(3, Soon()));
  fake_->Restart(2);
  fake_->Fail("erase", FakeFault::Reset());
  EXPECT_EQ(engine_->EraseSlot(3, Soon()).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(engine_->EraseSlot(3, Soon()).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(LlamaServerTest, PromptsThatCannotBeMeantAreRefusedBeforeAnythingIsSent) {
  Serve();
  EXPECT_EQ(engine_->Complete(Ask({}), Soon()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine_->Complete(Ask({1, -1}), Soon()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fake_->Calls().empty());
}

TEST_F(LlamaServerTest, OneSlotActionIsOutstandingAtATime) {
  Serve();
  ASSERT_TRUE(engine_->Props(Soon()));
  fake_->Hold("erase");
  auto first = std::async(std::launch::async, [&] { return engine_->EraseSlot(0, Soon()); });
  fake_->AwaitHeld("erase", 1);
  // Another slot, another action: it is not sent while the first is out, and its own deadline still ends it.
  EXPECT_EQ(engine_->SaveSlot(1, "a.bin", Briefly()).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(fake_->CountOf("save"), 0u);
  EXPECT_FALSE(engine_->ActionInDoubt(1)) << "it was never sent";
  EXPECT_TRUE(engine_->Slots(Soon())) << "everything else goes on";
  fake_->Release("erase");
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(engine_->SaveSlot(1, "a.bin", Soon()));
}

// Field report B20: an answer that comes too late is nobody's answer, but the action still happens.
TEST_F(LlamaServerTest, ATimedOutActionStaysInDoubtUntilAnEraseIsAnswered) {
  Serve();
  ASSERT_TRUE(engine_->Complete(Ask({1, 2, 3}), Soon()));
  ASSERT_TRUE(engine_->SaveSlot(0, "a.bin", Soon()));
  fake_->Hold("restore");
  EXPECT_EQ(engine_->RestoreSlot(1, "a.bin", Briefly()).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(engine_->ActionInDoubt(1));
  EXPECT_FALSE(engine_->ActionInDoubt(0));
  EXPECT_TRUE(fake_->SlotTokens(1).empty());
  fake_->Release("restore");
  fake_->AwaitDone("restore", 1);
  EXPECT_FALSE(fake_->SlotTokens(1).empty()) << "the server carried it out all the same";
  EXPECT_TRUE(engine_->ActionInDoubt(1));
  EXPECT_EQ(*engine_->EraseSlot(1, Soon()), 5u);
  EXPECT_FALSE(engine_->ActionInDoubt(1));
}

TEST_F(LlamaServerTest, AResetLeavesAnActionInDoubtUntilTheServerIsAnother) {
  Serve();
  ASSERT_TRUE(engine_->Props(Soon()));
  fake_->Fail("save", FakeFault::Reset());
  EXPECT_FALSE(engine_->SaveSlot(0, "a.bin", Soon()));
  EXPECT_TRUE(engine_->ActionInDoubt(0));
  ASSERT_TRUE(engine_->Props(Soon()));
  EXPECT_TRUE(engine_->ActionInDoubt(0)) << "the same process";
  fake_->Restart();
  ASSERT_TRUE(engine_->Props(Soon()));
  EXPECT_FALSE(engine_->ActionInDoubt(0));
}

TEST_F(LlamaServerTest, SlotActionsAreNeverRepeated) {
  Serve();
  ASSERT_TRUE(engine_->Props(Soon()));
  for (const char* name : {"save", "restore", "erase", "POST /completion"}) fake_->Fail(name, FakeFault::Reset());
  (void)engine_->SaveSlot(0, "a.bin", Soon());
  (void)engine_->RestoreSlot(0, "a.bin", Soon());
  (void)engine_->EraseSlot(0, Soon());
  (void)engine_->Complete(Ask({1}), Soon());
  for (const char* name : {"save", "restore", "erase", "POST /completion"}) EXPECT_EQ(fake_->CountOf(name), 1u) << name;
}

TEST_F(LlamaServerTest, ARestartChangesTheIncarnation) {
  Serve();
  const std::string before = engine_->Props(Soon())->incarnation;
  EXPECT_EQ(engine_->Props(Soon())->incarnation, before);
  fake_->Restart();
  EXPECT_NE(engine_->Props(Soon())->incarnation, before);
}

TEST_F(LlamaServerTest, ASleepChangesTheIncarnationAsTheSlotsAreLost) {
  Serve();
  const std::string before = engine_->Props(Soon())->incarnation;
  fake_->SetSlotTokens(0, {1, 2, 3});
  fake_->SetSleeping(true);
  const Result<EngineProps> asleep = engine_->Props(Soon());
  EXPECT_TRUE(asleep->sleeping);
  EXPECT_NE(asleep->incarnation, before);
  EXPECT_EQ((*engine_->Slots(Soon()))[0].tokens_cached, 0u);  // wakes it
  const Result<EngineProps> awake = engine_->Props(Soon());
  EXPECT_FALSE(awake->sleeping);
  EXPECT_EQ(awake->incarnation, asleep->incarnation) << "one sleep, one change";
}

TEST_F(LlamaServerTest, ALoadingServerIsUnavailableAndWaitHealthyWaitsForIt) {
  FakeClock fake_clock;
  Serve();
  Result<std::unique_ptr<LlamaServer>> engine = LlamaServer::Make({.url = fake_->url()}, fake_clock);
  ASSERT_TRUE(engine);
  fake_->SetLoading(true);
  EXPECT_EQ((*engine)->Health(Deadline(fake_clock, kLong)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ((*engine)->Slots(Deadline(fake_clock, kLong)).error().code, ErrorCode::kUnavailable);
  auto waiting = std::async(std::launch::async,
                            [&] { return (*engine)->WaitHealthy(Deadline(fake_clock, std::chrono::hours(1))); });
  fake_clock.AwaitWaiters(1);
  fake_->SetLoading(false);
  fake_clock.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(waiting.get());

  fake_->SetLoading(true);
  auto in_vain = std::async(std::launch::async,
                            [&] { return (*engine)->WaitHealthy(Deadline(fake_clock, std::chrono::seconds(10))); });
  fake_clock.AwaitWaiters(1);
  fake_clock.Advance(std::chrono::seconds(11));
  EXPECT_EQ(in_vain.get().error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(LlamaServerTest, WaitHealthyDoesNotWaitForWhatCannotGetBetter) {
  Serve();
  fake_->Fail("GET /health", FakeFault::Status(404, "not here"));
  EXPECT_EQ(engine_->WaitHealthy(Soon()).error().code, ErrorCode::kUnsupported);
}

// Field report B33: two million token ids are a large request, not an odd one.
TEST_F(LlamaServerTest, VeryLongPromptsAndTextsGoThrough) {
  Serve({.context_tokens = 3'000'000});
  std::vector<TokenId> prompt(2'000'000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i % 100'000);
  const Result<Completion> completion = engine_->Complete(Ask(prompt), Soon());
  ASSERT_TRUE(completion) << completion.error().message;
  EXPECT_EQ(completion->timings.prompt_tokens_evaluated, prompt.size());
  const Result<std::vector<TokenId>> tokens = engine_->Tokenize(std::string(2'000'000, 'x'), Soon());
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->size(), 2'000'001u);
}

TEST_F(LlamaServerTest, ManyThreadsMayUseOneServer) {
  Serve({.slots = 4});
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "f" + std::to_string(i) + ".bin";
      for (int round = 0; round < 10; ++round) {
        ASSERT_TRUE(engine_->Complete(Ask({1, 2, static_cast<TokenId>(i + 3)}, i), Soon()));
        ASSERT_TRUE(engine_->SaveSlot(i, name, Soon()));
        ASSERT_TRUE(engine_->RestoreSlot(i, name, Soon()));
        ASSERT_TRUE(engine_->Slots(Soon()));
        ASSERT_TRUE(engine_->EraseSlot(i, Soon()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace moonpool::bus

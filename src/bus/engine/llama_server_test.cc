// LlamaServer against the scripted server: what is sent, what comes back, what is refused before it is sent.
#include "bus/engine/llama_server.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "bus/engine/llama_server_fixture.h"
#include "support/fake_clock.h"

namespace moonpool::bus {
namespace {

using testing::FakeClock;
using testing::FakeFault;
using testing::FakeLlamaServer;

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

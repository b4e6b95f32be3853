// LlamaServer against a real llama.cpp server: what the scripted server of the unit tests imitates is checked here.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "bus/engine/llama_server.h"
#include "net/http_client.h"
#include "support/llama_process.h"
#include "support/temp_dir.h"

namespace moonpool::bus {
namespace {

using testing::LlamaProcess;
using testing::TempDir;

constexpr Duration kLong = std::chrono::minutes(2);
constexpr const char* kText = "The harbour master counts the ships that come in before dawn, and writes them down.";

class EngineServerTest : public ::testing::Test {
 protected:
  void Serve(std::vector<std::string> flags, std::string api_key = {}) {
    flags.insert(flags.end(), {"--ctx=4096", "--cache-ram=0"});
    if (!api_key.empty()) flags.push_back("--api-key=" + api_key);
    Result<std::unique_ptr<LlamaProcess>> process =
        LlamaProcess::Start(LlamaProcess::PlainModel(), slot_directory_, flags);
    ASSERT_TRUE(process) << process.error().message;
    process_ = std::move(*process);
    Result<std::unique_ptr<LlamaServer>> engine =
        LlamaServer::Make({.url = process_->url(), .api_key = std::move(api_key)}, clock_);
    ASSERT_TRUE(engine);
    engine_ = std::move(*engine);
  }
  Deadline Soon() const { return Deadline(clock_, kLong); }
  CompletionRequest Ask(std::vector<TokenId> prompt, uint32_t slot, uint32_t predict_max) {
    return CompletionRequest{.prompt = std::move(prompt), .predict_max = predict_max, .slot = slot};
  }
  std::vector<TokenId> LongPrompt(size_t tokens) {
    std::vector<TokenId> prompt = *engine_->Tokenize(kText, Soon());
    const std::vector<TokenId> once = prompt;
    while (prompt.size() < tokens) prompt.insert(prompt.end(), once.begin(), once.end());
    prompt.resize(tokens);
    return prompt;
  }

  SystemClock clock_;
  TempDir directory_;
  const std::filesystem::path slot_directory_ = directory_ / "slots";
  std::unique_ptr<LlamaProcess> process_;
  std::unique_ptr<LlamaServer> engine_;
};

TEST_F(EngineServerTest, SpeaksToARealServer) {
  Serve({"--np=2"});
  ASSERT_TRUE(engine_->WaitHealthy(Soon()));
  const Result<EngineProps> props = engine_->Props(Soon());
  ASSERT_TRUE(props) << props.error().message;
  EXPECT_EQ(props->total_slots, 2u);
  EXPECT_EQ(props->context_tokens, 2048u);
  EXPECT_EQ(props->model_path, LlamaProcess::PlainModel().string());
  EXPECT_FALSE(props->incarnation.empty());
  EXPECT_FALSE(props->has_vision);
  EXPECT_FALSE(props->sleeping);
  const Result<std::vector<LoraAdapter>> adapters = engine_->LoraAdapters(Soon());
  ASSERT_TRUE(adapters) << adapters.error().message;
  EXPECT_TRUE(adapters->empty());

  // A slot that never ran a task shows nothing; after a task its tokens are there.
  Result<std::vector<SlotInfo>> slots = engine_->Slots(Soon());
  ASSERT_TRUE(slots) << slots.error().message;
  ASSERT_EQ(slots->size(), 2u);
  EXPECT_EQ((*slots)[1].tokens_cached, 0u);
  EXPECT_EQ((*slots)[1].task, 0u);

  const std::vector<TokenId> prompt = LongPrompt(300);
  const Result<Completion> cold = engine_->Complete(Ask(prompt, 1, 4), Soon());
  ASSERT_TRUE(cold) << cold.error().message;
  EXPECT_EQ(cold->slot, 1u);
  EXPECT_EQ(cold->tokens.size(), 4u);
  EXPECT_FALSE(cold->text.empty());
  EXPECT_EQ(cold->timings.prompt_tokens_evaluated, 300u);
  EXPECT_EQ(cold->timings.prompt_tokens_cached, 0u);
  EXPECT_FALSE(cold->truncated);
  EXPECT_GT(cold->first_token_after, Duration::zero());
  EXPECT_LE(cold->first_token_after, cold->total);
  // The prefill is most of the time: a first token timed at the headers would come far before it.
  EXPECT_GE(ToMs(cold->first_token_after), 0.5 * cold->timings.prompt_ms);
  slots = engine_->Slots(Soon());
  EXPECT_EQ((*slots)[1].tokens_cached, 303u) << "prompt and generated tokens but the last";
  EXPECT_GT((*slots)[1].task, 0u);

  const Result<SlotSave> save = engine_->SaveSlot(1, "a.bin", Soon());
  ASSERT_TRUE(save) << save.error().message;
  EXPECT_EQ(save->tokens, 303u);
  EXPECT_EQ(save->bytes, std::filesystem::file_size(slot_directory_ / "a.bin"));

  const Result<SlotRestore> restore = engine_->RestoreSlot(0, "a.bin", Soon());
  ASSERT_TRUE(restore) << restore.error().message;
  EXPECT_EQ(restore->tokens, 303u);
  EXPECT_EQ(restore->bytes, save->bytes);
  const Result<Completion> warm = engine_->Complete(Ask(prompt, 0, 4), Soon());
  ASSERT_TRUE(warm) << warm.error().message;
  EXPECT_EQ(warm->timings.prompt_tokens_cached, 299u) << "one token is always evaluated";
  EXPECT_EQ(warm->timings.prompt_tokens_evaluated, 1u);

  EXPECT_EQ(*engine_->EraseSlot(0, Soon()), 303u);
  EXPECT_EQ(*engine_->EraseSlot(0, Soon()), 0u);

  // Prefill only: nothing is predicted that anybody asked for, and exactly the prompt stays.
  const Result<Completion> prefill = engine_->Complete(Ask(prompt, 0, 0), Soon());
  ASSERT_TRUE(prefill) << prefill.error().message;
  EXPECT_EQ(engine_->SaveSlot(0, "b.bin", Soon())->tokens, 300u);
}

// Field report B13 with a real tokenizer: a string prompt and our token list are the same prompt.
TEST_F(EngineServerTest, TokenizesAsTheServerTokenizesAPrompt) {
  Serve({});
  const std::string text = std::string("<|im_start|>user\n") + kText + "<|im_end|>\n";
  const Result<std::vector<TokenId>> tokens = engine_->Tokenize(text, Soon());
  ASSERT_TRUE(tokens) << tokens.error().message;
  const nlohmann::json body = {{"prompt", text}, {"n_predict", 0}, {"id_slot", 0}};
  net::HttpClient client(engine_->endpoint(), {});
  const Result<net::HttpResponse> answer =
      client.Send({.method = "POST", .target = "/completion", .body = body.dump()}, Soon());
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(nlohmann::json::parse(answer->body)["tokens_evaluated"], tokens->size());
  const Result<Completion> completion = engine_->Complete(Ask(*tokens, 0, 0), Soon());
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->timings.prompt_tokens_cached, tokens->size() - 1);
}

TEST_F(EngineServerTest, RefusalsMeanWhatTheyMean) {
  Serve({"--np=2"}, "secret");
  EXPECT_TRUE(engine_->Health(Soon()));
  EXPECT_EQ(engine_->RestoreSlot(0, "missing.bin", Soon()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(engine_->ActionInDoubt(0));
  std::ofstream(slot_directory_ / "bad.bin") << "this is no slot file at all";
  EXPECT_EQ(engine_->RestoreSlot(0, "bad.bin", Soon()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine_->EraseSlot(2, Soon()).error().code, ErrorCode::kInvalidArgument);
  const Result<Completion> too_long = engine_->Complete(Ask(LongPrompt(2100), 0, 1), Soon());
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(too_long.error().message.find("context"), std::string::npos) << too_long.error().message;

  Result<std::unique_ptr<LlamaServer>> stranger = LlamaServer::Make({.url = process_->url()}, clock_);
  ASSERT_TRUE(stranger);
  EXPECT_TRUE((*stranger)->Health(Soon()));
  EXPECT_EQ((*stranger)->Props(Soon()).error().code, ErrorCode::kPermission);
  EXPECT_EQ((*stranger)->Tokenize("x", Soon()).error().code, ErrorCode::kPermission);
}

TEST_F(EngineServerTest, AnActionOnABusySlotTimesOutAndHappensAllTheSame) {
  Serve({});
  const std::vector<TokenId> prompt = LongPrompt(64);
  ASSERT_TRUE(engine_->Complete(Ask(prompt, 0, 0), Soon()));
  auto generation = std::async(std::launch::async, [&] { return engine_->Complete(Ask(prompt, 0, 150), Soon()); });
  while (true) {
    const Result<std::vector<SlotInfo>> slots = engine_->Slots(Soon());
    ASSERT_TRUE(slots);
    if ((*slots)[0].processing) break;
  }
  // On a slow machine the time may be over before anything was sent; then there is no doubt either.
  do {
    const Result<uint64_t> erased = engine_->EraseSlot(0, Deadline(clock_, std::chrono::milliseconds(20)));
    ASSERT_FALSE(erased);
    EXPECT_EQ(erased.error().code, ErrorCode::kDeadlineExceeded);
  } while (!engine_->ActionInDoubt(0));
  EXPECT_TRUE(generation.get());
  EXPECT_TRUE(engine_->EraseSlot(0, Soon()));
  EXPECT_FALSE(engine_->ActionInDoubt(0));
}

TEST_F(EngineServerTest, AFrozenServerTimesOutAndAKilledOneIsUnavailable) {
  Serve({});
  const std::string before = engine_->Props(Soon())->incarnation;
  process_->Freeze();
  const Deadline brief(clock_, std::chrono::milliseconds(100));
  const Result<void> frozen = engine_->Health(brief);
  ASSERT_FALSE(frozen);
  EXPECT_EQ(frozen.error().code, ErrorCode::kDeadlineExceeded);
  process_->Thaw();
  EXPECT_TRUE(engine_->Health(Soon()));
  process_->Kill();
  EXPECT_EQ(engine_->Health(Soon()).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(engine_->SaveSlot(0, "a.bin", Soon()).error().code, ErrorCode::kUnavailable);
  Serve({});
  EXPECT_NE(engine_->Props(Soon())->incarnation, before);
}

}  // namespace
}  // namespace moonpool::bus

// LlamaServerTest: a LlamaServer that speaks to a scripted server.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bus/engine/llama_server.h"
#include "support/fake_llama_server.h"
#include "support/temp_dir.h"

namespace moonpool::bus {

// Only a limit for a hang; no test waits for it to pass.
inline constexpr Duration kLong = std::chrono::minutes(3);
// Real time that a call is given when its answer is held back.
inline constexpr Duration kBrief = std::chrono::milliseconds(50);

class LlamaServerTest : public ::testing::Test {
 protected:
  void Serve(testing::FakeLlamaOptions options = {}) {
    options.slot_directory = directory_.path();
    fake_ = std::make_unique<testing::FakeLlamaServer>(std::move(options));
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
  testing::TempDir directory_;
  std::unique_ptr<testing::FakeLlamaServer> fake_;
  std::unique_ptr<LlamaServer> engine_;
};

}  // namespace moonpool::bus

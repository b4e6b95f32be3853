// LlamaServer against the scripted server: what every failure means, for every call, and what stays in doubt.
#include <gtest/gtest.h>

#include "bus/engine/llama_server_fixture.h"
#include "support/raw_socket.h"

namespace moonpool::bus {
namespace {

using testing::FakeFault;
using testing::FakeLlamaOptions;
using testing::FakeLlamaServer;
using LlamaServerFailuresTest = LlamaServerTest;

TEST_F(LlamaServerFailuresTest, EveryStatusMeansTheSameForEveryCall) {
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

TEST_F(LlamaServerFailuresTest, AResetIsUnavailabilityForEveryCall) {
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

TEST_F(LlamaServerFailuresTest, AnAnswerThatBreaksOffIsUnavailabilityForEveryCall) {
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

TEST_F(LlamaServerFailuresTest, AnAnswerThatMakesNoSenseIsInternalForEveryCall) {
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

TEST_F(LlamaServerFailuresTest, AHugeAnswerIsInternalAndNotKept) {
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

TEST_F(LlamaServerFailuresTest, FailuresInsideAStreamedCompletionAreErrors) {
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

TEST_F(LlamaServerFailuresTest, EveryCallEndsByItsDeadline) {
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

TEST_F(LlamaServerFailuresTest, AServerThatIsNotThereIsUnavailable) {
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

TEST_F(LlamaServerFailuresTest, TheApiKeyIsSentAndItsLackIsAPermissionError) {
  Serve({.api_key = "secret"});
  EXPECT_TRUE(engine_->Health(Soon())) << "the one call that needs no key";
  EXPECT_EQ(engine_->Props(Soon()).error().code, ErrorCode::kPermission);
  EXPECT_EQ(engine_->SaveSlot(0, "a.bin", Soon()).error().code, ErrorCode::kPermission);
  Connect({.api_key = "wrong"});
  EXPECT_EQ(engine_->Slots(Soon()).error().code, ErrorCode::kPermission);
  Connect({.api_key = "secret"});
  for (const EngineCall& call : EveryCall()) EXPECT_FALSE(call.run(Soon())) << call.name;
}

TEST_F(LlamaServerFailuresTest, WithoutASlotDirectoryActionsAreUnsupported) {
  fake_ = std::make_unique<FakeLlamaServer>(FakeLlamaOptions{});
  Connect({});
  EXPECT_EQ(engine_->SaveSlot(0, "a.bin", Soon()).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(engine_->RestoreSlot(0, "a.bin", Soon()).error().code, ErrorCode::kUnsupported);
}

TEST_F(LlamaServerFailuresTest, ATimedOutActionStaysInDoubtUntilAnEraseIsAnswered) {
  Serve();
  ASSERT_TRUE(engine_->Complete(Ask({1, 2, 3}), Soon()));
  ASSERT_TRUE(engine_->SaveSlot(0, "a.bin", Soon()));
  fake_->Hold("restore");
  // On a slow machine the time may be over before anything was sent; then there is no doubt either.
  do {
    EXPECT_EQ(engine_->RestoreSlot(1, "a.bin", Briefly()).error().code, ErrorCode::kDeadlineExceeded);
  } while (!engine_->ActionInDoubt(1));
  fake_->AwaitHeld("restore", 1);
  EXPECT_FALSE(engine_->ActionInDoubt(0));
  EXPECT_TRUE(fake_->SlotTokens(1).empty());
  fake_->Release("restore");
  fake_->AwaitDone("restore", 1);
  EXPECT_FALSE(fake_->SlotTokens(1).empty()) << "the server carried it out all the same";
  EXPECT_TRUE(engine_->ActionInDoubt(1));
  EXPECT_EQ(*engine_->EraseSlot(1, Soon()), 5u);
  EXPECT_FALSE(engine_->ActionInDoubt(1));
}

TEST_F(LlamaServerFailuresTest, AResetLeavesAnActionInDoubtUntilTheServerIsAnother) {
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

TEST_F(LlamaServerFailuresTest, SlotActionsAreNeverRepeated) {
  Serve();
  ASSERT_TRUE(engine_->Props(Soon()));
  for (const char* name : {"save", "restore", "erase", "POST /completion"}) fake_->Fail(name, FakeFault::Reset());
  (void)engine_->SaveSlot(0, "a.bin", Soon());
  (void)engine_->RestoreSlot(0, "a.bin", Soon());
  (void)engine_->EraseSlot(0, Soon());
  (void)engine_->Complete(Ask({1}), Soon());
  for (const char* name : {"save", "restore", "erase", "POST /completion"}) EXPECT_EQ(fake_->CountOf(name), 1u) << name;
}

}  // namespace
}  // namespace moonpool::bus

// What the bus is for: one engine's prefill serves another. And where a prefix may be cut (field reports C3).
#include <gtest/gtest.h>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BusWorld;
using testing::Concat;
using testing::FakeServer;
using testing::kWorldBlock;
using testing::Tokens;

class Reuse : public ::testing::Test {
 protected:
  void AddTwo() {
    a = world.AddServer("a");
    b = world.AddServer("b");
    world.Settle();
    ASSERT_EQ(world.StateOf("a"), "ready");
    ASSERT_EQ(world.StateOf("b"), "ready");
    ASSERT_EQ(world.FingerprintOf("a"), world.FingerprintOf("b"));
  }
  BusWorld world;
  std::shared_ptr<FakeServer> a, b;
};

TEST_F(Reuse, TheSecondEngineRestoresWhatTheFirstComputed) {
  AddTwo();
  const auto context = Tokens(100, 1);
  const auto first = world.Run("a", Concat(context, Tokens(5, 2)));
  EXPECT_EQ(first.prepared.decision, Decision::kLead);
  EXPECT_EQ(first.prepared.reason, "no_prefix");
  EXPECT_EQ(first.committed.status, CommitStatus::kPublished) << first.committed.detail;
  EXPECT_EQ(world.bus->Counts().prefill_tokens_saved_total, 0u);

  const auto second = world.Run("b", Concat(context, Tokens(5, 3)));
  EXPECT_EQ(second.prepared.decision, Decision::kRestore) << second.prepared.reason;
  EXPECT_EQ(second.prepared.restored_tokens, 96u) << "whole blocks";
  EXPECT_EQ(second.completion.timings.prompt_tokens_cached, 100u) << "the server trims to the real common prefix";
  EXPECT_EQ(world.bus->Counts().prefill_tokens_saved_total, 100u) << "counted from the completion";
  EXPECT_EQ(world.SlotFiles("a") + world.SlotFiles("b"), 0u);
}

TEST_F(Reuse, SurvivesARestartOfTheBusAndOfTheServers) {
  AddTwo();
  const auto prompt = Tokens(100, 1);
  world.Run("a", prompt);
  a->Restart();
  b->Restart();
  world.RestartBus();
  EXPECT_EQ(world.Run("b", prompt).prepared.decision, Decision::kRestore);
}

// Field report B11: a longer object serves each of its own prefixes, and nothing else.
TEST_F(Reuse, AnObjectServesEveryPrefixOfItsTokensAndNoOther) {
  AddTwo();
  const auto stored = Tokens(10 * kWorldBlock, 1);
  world.Run("a", stored);
  for (const size_t shared : {1u, 6u, 9u}) {
    const auto prompt = Concat({stored.begin(), stored.begin() + static_cast<long>(shared * kWorldBlock)},
                               Tokens(4 * kWorldBlock, 50 + static_cast<int>(shared)));
    const auto looked = world.bus->Lookup(world.Ask("b", prompt)).value();
    EXPECT_EQ(looked.stored_tokens, shared * kWorldBlock);
  }
  auto first_differs = stored;
  first_differs[0] += 1;
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", first_differs)).value().stored_tokens, 0u);
}

// Field report B12: at least one token is always left to evaluate.
TEST_F(Reuse, PromisesNoMoreThanAllButOneToken) {
  AddTwo();
  constexpr size_t kB = kWorldBlock;
  int seed = 100;
  for (const size_t length : {size_t{1}, kB - 1, kB, kB + 1, 3 * kB - 1, 3 * kB, 3 * kB + 1}) {
    const auto prompt = Tokens(length, ++seed);
    const auto first = world.Run("a", prompt, "", 1);
    world.EraseSlots("b");
    const auto second = world.Run("b", prompt, "", 1);
    const uint64_t aligned = length / kB * kB;
    EXPECT_EQ(second.prepared.restored_tokens, std::min<uint64_t>(aligned, length - 1)) << "length " << length;
    EXPECT_GE(second.completion.timings.prompt_tokens_evaluated, 1u);
    EXPECT_EQ(second.completion.tokens, first.completion.tokens) << "length " << length;
  }
}

TEST_F(Reuse, AnEmptyPromptIsRefusedByName) {
  AddTwo();
  EXPECT_EQ(world.bus->Prepare(world.Ask("a", {})).error().code, ErrorCode::kInvalidArgument);
  auto both = world.Ask("a", Tokens(5, 1));
  both.text = "x";
  EXPECT_EQ(world.bus->Prepare(both).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(world.bus->Prepare(world.Ask("nobody", Tokens(5, 1))).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(world.bus->Prepare(world.Ask("a", {1, -2})).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(world.bus->Prepare(world.Ask("a", {1, 20'000})).error().code, ErrorCode::kInvalidArgument)
      << "the vocabulary has 20,000 tokens";
  auto slot = world.Ask("a", Tokens(5, 1));
  for (const int64_t bad : {int64_t{-1}, int64_t{1}, int64_t{1} << 31}) {  // field report B32
    slot.slot = bad;
    EXPECT_EQ(world.bus->Prepare(slot).error().code, ErrorCode::kInvalidArgument) << bad;
  }
}

// Field report B13: keys come from what the slot holds; text is tokenized as the server does it.
TEST_F(Reuse, TextIsTokenizedLikeTheServerDoesIt) {
  AddTwo();
  const std::string text(64, 'q');
  auto request = world.Ask("a", {});
  request.text = text;
  const auto prepared = world.bus->Prepare(request).value();
  ASSERT_EQ(prepared.tokens.size(), 65u) << "with the BOS in front";
  world.Commit(prepared, world.Complete("a", prepared, prepared.tokens));
  const std::vector<TokenId> without_bos(prepared.tokens.begin() + 1, prepared.tokens.end());
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", without_bos)).value().stored_tokens, 0u);
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", prepared.tokens)).value().stored_tokens, 64u);
}

TEST_F(Reuse, GeneratedTokensAreStoredSoThatTheNextTurnFindsThem) {
  AddTwo();
  const auto prompt = Tokens(30, 1);
  const auto turn = world.Run("a", prompt, "", 20);
  ASSERT_EQ(turn.committed.status, CommitStatus::kPublished) << turn.committed.reason;
  const auto next = Concat(Concat(prompt, turn.completion.tokens), Tokens(4, 9));
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", next)).value().stored_tokens, 48u) << "49 tokens have KV";
  auto other = next;
  other[31] = 7;  // the reply, tokenized in another way
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", other)).value().stored_tokens, 16u);
}

// Servers with another -np read a rewritten file.
TEST_F(Reuse, ServersWithAnotherSlotCountShare) {
  FakeServer::Options two;
  two.slots = 2;
  two.state.streams = 2;
  a = world.AddServer("a");
  b = world.AddServer("b", two);
  world.Settle();
  ASSERT_EQ(world.FingerprintOf("a"), world.FingerprintOf("b"));
  const auto prompt = Tokens(100, 1);
  const auto first = world.Run("a", prompt);
  const auto second = world.Run("b", prompt);
  EXPECT_EQ(second.prepared.decision, Decision::kRestore) << second.prepared.detail;
  EXPECT_EQ(second.completion.tokens, first.completion.tokens);
  world.Run("b", Tokens(100, 2));
  EXPECT_EQ(world.Run("a", Tokens(100, 2)).prepared.decision, Decision::kRestore);
}

TEST_F(Reuse, AFileLongerThanTheSlotIsCutToWhatThePromptCanUse) {
  FakeServer::Options small;
  small.context_tokens = 64;
  a = world.AddServer("a");
  b = world.AddServer("b", small);
  world.Settle();
  const auto longer = Tokens(200, 1);
  world.Run("a", longer);
  const std::vector<TokenId> prompt(longer.begin(), longer.begin() + 50);
  const auto turn = world.Run("b", prompt);
  EXPECT_EQ(turn.prepared.decision, Decision::kRestore) << turn.prepared.detail;
  EXPECT_EQ(turn.prepared.restored_tokens, 48u);
  EXPECT_EQ(world.Prepare("b", Tokens(65, 3)).reason, "exceeds_context") << "the server will refuse it by itself";
}

TEST_F(Reuse, WhatTheSlotHoldsAlreadyIsNotFetched) {
  AddTwo();
  const auto prompt = Tokens(100, 1);
  const auto first = world.Run("a", prompt, "", 3);
  const auto next = Concat(Concat(prompt, first.completion.tokens), Tokens(10, 5));
  const auto second = world.Run("a", next);
  EXPECT_EQ(second.prepared.decision, Decision::kRestore);
  EXPECT_EQ(second.prepared.reason, "resident");
  EXPECT_GE(second.prepared.restored_tokens, 100u);
  EXPECT_EQ(a->Calls("restore"), 0);
  const auto counts = world.bus->Counts();
  EXPECT_EQ(counts.prefill_tokens_saved_total, 0u) << "the server would have saved these by itself";
  EXPECT_GT(counts.prefill_tokens_resident_total, 0u);

  world.EraseSlots("a");
  EXPECT_EQ(world.Run("a", next).prepared.reason, "hit") << "and an erased slot is noticed";
}

TEST_F(Reuse, ASlotWithSomebodysConversationIsTheLastChoice) {
  FakeServer::Options two;
  two.slots = 2;
  a = world.AddServer("a", two);
  world.Settle();
  a->Overwrite(0, Tokens(50, 77));
  const auto prepared = world.Prepare("a", Tokens(40, 1));
  EXPECT_EQ(prepared.slot, 1u);
}

// Sliding-window and recurrent memory cannot be rolled back: only exact continuations are restored.
TEST(ReuseOfOtherMemory, OnlyAnExactContinuationIsRestored) {
  for (const MemoryClass memory : {MemoryClass::kSlidingWindow, MemoryClass::kRecurrent}) {
    SCOPED_TRACE(static_cast<int>(memory));
    BusWorld::Options options;
    options.memory = memory;
    BusWorld world(options);
    const auto a = world.AddServer("a");
    const auto b = world.AddServer("b");
    world.Settle();
    ASSERT_EQ(world.StateOf("b"), "ready") << world.bus->Engines().at(1).reason;
    const auto prompt = Tokens(64, 1);
    ASSERT_EQ(world.Run("a", prompt, "", 1).committed.status, CommitStatus::kPublished);
    EXPECT_EQ(world.Prepare("b", prompt).reason, "not_exact_continuation") << "nothing would be left to evaluate";
    world.bus->Release(world.Prepare("b", prompt).ticket);
    world.clock.Advance(std::chrono::minutes(11));
    world.Tick();
    const auto turn = world.Run("b", Concat(prompt, Tokens(20, 2)));
    EXPECT_EQ(turn.prepared.decision, Decision::kRestore) << turn.prepared.detail;
    EXPECT_EQ(turn.prepared.restored_tokens, 64u);
  }
}

// Decision 7: a conversation that grows by turns takes over what it begins with, and does not cost a square.
TEST_F(Reuse, AGrowingConversationKeepsOneObject) {
  AddTwo();
  std::vector<TokenId> conversation = Tokens(20, 1);
  for (int turn = 0; turn < 20; ++turn) {
    const auto done = world.Run("a", conversation, "", 5);
    conversation = Concat(Concat(conversation, done.completion.tokens), Tokens(15, 200 + turn));
  }
  EXPECT_EQ(world.store->Stats()->objects, 1u);
  EXPECT_GE(world.bus->Lookup(world.Ask("b", conversation)).value().stored_tokens, 380u);
}

}  // namespace
}  // namespace moonpool::bus

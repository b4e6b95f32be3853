// Namespaces against each other: what one stores, asks and removes is without effect on another (field reports B09 and
// B62). Both halves are asserted everywhere: sharing within, nothing across.
#include <gtest/gtest.h>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BusWorld;
using testing::Concat;
using testing::FakeServer;
using testing::Tokens;

class Tenants : public ::testing::Test {
 protected:
  Tenants() {
    a = world.AddServer("a");
    b = world.AddServer("b");
    world.Settle();
  }
  uint64_t Stored(const std::vector<TokenId>& tokens, const std::string& name_space) {
    return world.bus->Lookup(world.Ask("b", tokens, name_space)).value().stored_tokens;
  }
  BusWorld world;
  std::shared_ptr<FakeServer> a, b;
};

TEST_F(Tenants, EveryVerbOfTheBusAgreesForEveryNamespace) {  // B09
  const auto prompt = Tokens(64, 1);
  const std::vector<std::string> spaces = {"", "t1", "t1/t2", "t1/", "/t1", "T1", std::string("t1\0", 3)};
  size_t objects = 0;
  std::map<std::string, std::string> ids;
  for (const std::string& space : spaces) {
    SCOPED_TRACE(space);
    world.EraseSlots("a");
    EXPECT_EQ(Stored(prompt, space), 0u);
    const auto turn = world.Run("a", prompt, space);
    ASSERT_EQ(turn.committed.status, CommitStatus::kPublished);
    ids[space] = turn.committed.object;
    EXPECT_EQ(world.store->Stats()->objects, ++objects) << "one object, under one name";
    EXPECT_EQ(Stored(prompt, space), 64u);
    world.EraseSlots("b");
    const auto again = world.Run("b", prompt, space, 1);
    EXPECT_EQ(again.prepared.reason, "hit");
    EXPECT_EQ(again.committed.reason, "exists") << "Commit looks where Prepare looked";
  }
  // Removing one is without effect on the others (B62 d).
  for (const std::string& space : spaces) {
    ASSERT_TRUE(world.store->Remove(ids[space]));
    ids.erase(space);
    for (const std::string& other : spaces) EXPECT_EQ(Stored(prompt, other), ids.contains(other) ? 64u : 0u);
  }
}

// B62 b: whatever can be asked about another tenant's prompt is answered like a prompt that nobody ever had, by the
// same work: the same calls to the server and to the file system, in the same order.
TEST_F(Tenants, AnothersPromptIsAnsweredLikeNobodysAndByTheSameWork) {
  const auto known = Tokens(100, 1);
  world.Run("a", known, "t1");
  ASSERT_EQ(Stored(known, "t1"), 96u) << "the control";
  std::vector<std::string> work;
  world.on_file_call = [&](std::string_view call, const Path&) { work.emplace_back(call); };
  const auto ask = [&](const std::vector<TokenId>& tokens) {
    work.clear();
    const auto looked = world.bus->Lookup(world.Ask("b", tokens, "t2")).value();
    work.emplace_back("then");
    const int slots = b->Calls("slots"), erases = b->Calls("erase");
    const auto prepared = world.Prepare("b", tokens, "t2");
    world.bus->Release(prepared.ticket);
    work.push_back(std::to_string(b->Calls("slots") - slots) + " " + std::to_string(b->Calls("erase") - erases));
    return std::tuple(looked.decision, looked.reason, looked.detail, looked.stored_tokens, looked.restorable_tokens,
                      looked.object, prepared.decision, prepared.reason, prepared.detail, prepared.restored_tokens);
  };
  for (int i = 0; i < 100; ++i) {
    const auto of_another = ask(known);
    const auto work_for_another = work;
    const auto of_nobody = ask(Tokens(100, 1000 + i));
    ASSERT_EQ(of_another, of_nobody) << i;
    ASSERT_EQ(work_for_another, work) << i;
  }
  world.on_file_call = {};
}

// The same where the other tenant's tokens are still in the slot: neither said nor left for the server to find.
TEST_F(Tenants, WhatASlotHoldsOfAnotherTenantIsNotServed) {  // B62 b
  const auto prompt = Tokens(100, 1);
  const auto first = world.Run("a", prompt, "t1", 1);
  const auto next = Concat(prompt, Tokens(5, 2));
  const auto stranger = world.Prepare("a", next, "t2");
  EXPECT_NE(stranger.decision, Decision::kRestore) << stranger.reason;
  EXPECT_EQ(stranger.reason, "no_prefix");
  EXPECT_EQ(stranger.restored_tokens, 0u);
  EXPECT_EQ(world.Complete("a", stranger, next).timings.prompt_tokens_cached, 0u) << "the time would tell";
  world.bus->Release(stranger.ticket);

  world.EraseSlots("a");
  world.Run("a", prompt, "t1", 1);
  EXPECT_EQ(world.Prepare("a", next, "t1").reason, "resident") << "its own";
}

}  // namespace
}  // namespace moonpool::bus

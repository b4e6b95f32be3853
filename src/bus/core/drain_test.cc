// The end of a bus with work in hand: commits finish or are rolled back within the time allowed (field report B63 e).
#include <gtest/gtest.h>

#include <thread>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using std::chrono::seconds;
using testing::BusWorld;
using testing::FakeServer;
using testing::Tokens;

class Drains : public ::testing::Test {
 protected:
  Drains() {
    server = world.AddServer("a");
    world.Settle();
    const auto prepared = world.Prepare("a", prompt);
    CommitRequest request;
    request.ticket = prepared.ticket;
    request.timings = BusWorld::Timings(world.Complete("a", prepared, prompt));
    EXPECT_EQ(world.bus->Commit(request).value().status, CommitStatus::kAccepted);
  }
  const std::vector<TokenId> prompt = Tokens(64, 1);
  BusWorld world;
  std::shared_ptr<FakeServer> server;
};

TEST_F(Drains, WaitForTheCommitsThatWereAccepted) {
  bool drained = false;
  std::thread drain([&] { drained = world.bus->Drain(Deadline(world.clock, seconds(10))); });
  world.clock.AwaitWaiters(1);
  EXPECT_EQ(world.Prepare("a", Tokens(64, 2)).reason, "draining") << "nothing new is begun";
  world.executor.RunAll();
  drain.join();
  EXPECT_TRUE(drained);
  EXPECT_EQ(world.store->Stats()->objects, 1u);
  EXPECT_EQ(world.SlotFiles("a"), 0u);
}

TEST_F(Drains, EndByTheirLimitAndALateFailureIsRolledBack) {
  bool drained = true;
  std::thread drain([&] { drained = world.bus->Drain(Deadline(world.clock, seconds(10))); });
  world.clock.AwaitWaiters(1);
  world.clock.Advance(seconds(11));
  drain.join();
  EXPECT_FALSE(drained);
  server->SetDown(true);
  world.executor.RunAll();
  EXPECT_EQ(world.store->Stats()->objects, 0u);
  EXPECT_EQ(world.store->Stats()->reserved_bytes, 0u);
  EXPECT_EQ(world.SlotFiles("a"), 0u);
}

}  // namespace
}  // namespace moonpool::bus

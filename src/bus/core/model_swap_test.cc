// A model file that is replaced or written over while a server runs (field report B02): what the server computes is
// never stored under the new file's digest, and what the new file's servers compute never under the old one's.
#include <gtest/gtest.h>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BusWorld;
using testing::FakeServer;
using testing::Tokens;

class ModelSwap : public ::testing::TestWithParam<const char*> {
 protected:
  ModelSwap() {
    server = world.AddServer("a");
    world.Settle();
    fingerprint = world.FingerprintOf("a");
  }
  // Another model of the same size and, as `touch -r` does it, of the same age.
  void Swap() {
    const FileInfo before = world.disk.Info(model).value();
    FileInfo after = before;
    while (after.changed_ns == before.changed_ns) {  // the kernel stamps changes by its tick
      if (GetParam() == std::string("renamed over")) {
        world.WriteModel(world.dir / "new.gguf", 2);
        std::filesystem::rename(world.dir / "new.gguf", model);
      } else {
        world.WriteModel(model, 2);
      }
      ASSERT_TRUE(world.disk.SetModified(model, before.modified_ns));
      after = world.disk.Info(model).value();
    }
    ASSERT_EQ(after.size_bytes, before.size_bytes);
    ASSERT_EQ(after.modified_ns, before.modified_ns);
  }
  BusWorld world;
  const Path model = world.dir / "model.gguf";
  std::shared_ptr<FakeServer> server;
  std::string fingerprint;
};

TEST_P(ModelSwap, IsRefusedUntilTheServerWasStartedAnew) {  // B02 a
  const auto prompt = Tokens(64, 1);
  ASSERT_EQ(world.Run("a", prompt).committed.status, CommitStatus::kPublished);
  Swap();
  const auto looked = world.bus->Lookup(world.Ask("a", prompt)).value();
  EXPECT_EQ(looked.decision, Decision::kBypass);
  EXPECT_EQ(looked.reason, "model_changed");
  EXPECT_EQ(looked.stored_tokens, 0u);
  world.EraseSlots("a");  // nothing keeps it from being probed
  for (int i = 0; i < 60; ++i) {
    world.Tick();
    const auto prepared = world.Prepare("a", prompt);
    ASSERT_EQ(prepared.decision, Decision::kBypass) << i;
    ASSERT_EQ(prepared.reason, "model_changed") << i;
  }
  EXPECT_FALSE(world.bus->Probe("a", 0)) << "nor by hand";

  server->Restart();
  server->SetSeed(99);
  world.Settle();
  EXPECT_EQ(world.StateOf("a"), "ready");
  EXPECT_NE(world.FingerprintOf("a"), fingerprint);
  EXPECT_EQ(world.bus->Lookup(world.Ask("a", prompt)).value().stored_tokens, 0u);
}

TEST_P(ModelSwap, LeavesNothingToCommit) {  // B02 b
  for (const bool noticed : {false, true}) {
    SCOPED_TRACE(noticed);
    const auto prompt = Tokens(64, 1);
    const auto prepared = world.Prepare("a", prompt);
    ASSERT_FALSE(prepared.ticket.empty()) << prepared.reason;
    const auto completion = world.Complete("a", prepared, prompt);
    Swap();
    if (noticed) (void)world.bus->Lookup(world.Ask("a", prompt));
    EXPECT_EQ(world.Commit(prepared, completion).status, CommitStatus::kSkipped);
    EXPECT_EQ(world.store->Stats()->objects, 0u);
    server->Restart();
    world.Settle();
  }
}

// The control: a file that was only touched is the same model, and its objects are found again.
TEST_P(ModelSwap, IsNotSeenInAFileThatOnlyLooksNew) {
  const auto prompt = Tokens(64, 1);
  world.Run("a", prompt);
  world.EraseSlots("a");
  const FileInfo before = world.disk.Info(model).value();
  while (world.disk.Info(model)->changed_ns == before.changed_ns) world.WriteModel(model, 1);
  EXPECT_EQ(world.bus->Lookup(world.Ask("a", prompt)).value().reason, "model_changed") << "until it was hashed again";
  world.Settle();
  EXPECT_EQ(world.FingerprintOf("a"), fingerprint);
  EXPECT_EQ(world.Run("a", prompt).prepared.reason, "hit");
}

INSTANTIATE_TEST_SUITE_P(InEveryWay, ModelSwap, ::testing::Values("written over", "renamed over"),
                         [](const auto& way) { return way.index == 0 ? "WrittenOver" : "RenamedOver"; });

}  // namespace
}  // namespace moonpool::bus

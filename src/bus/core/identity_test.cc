// Who may share with whom: fingerprints, canary families, namespaces (field reports C1, C15).
#include <gtest/gtest.h>

#include "support/bus_world.h"

namespace moonpool::bus {
namespace {

using testing::BuiltType;
using testing::BusWorld;
using testing::FakeServer;
using testing::Tokens;

TEST(Identity, ServersThatDifferInWhatChangesKvDoNotShare) {  // field report B04
  BusWorld world;
  std::vector<FakeServer::Options> variants(5);
  variants[1].state.type = BuiltType::kQ8_0;
  variants[2].state.v_transposed = true;
  variants[3].state.version = 3;
  variants[4].state.seed = 99;  // other rows: what another RoPE base or other weights make
  std::vector<std::string> names;
  for (size_t i = 0; i < variants.size(); ++i) {
    names.push_back("e" + std::to_string(i));
    world.AddServer(names.back(), variants[i]);
  }
  for (int i = 0; i < 3; ++i) world.Settle();
  const auto prompt = Tokens(64, 1);
  ASSERT_EQ(world.Run(names[0], prompt).committed.status, CommitStatus::kPublished);
  for (size_t i = 1; i < names.size(); ++i) {
    ASSERT_EQ(world.StateOf(names[i]), "ready") << names[i];
    EXPECT_NE(world.FingerprintOf(names[i]), world.FingerprintOf(names[0])) << names[i];
    EXPECT_EQ(world.bus->Lookup(world.Ask(names[i], prompt)).value().stored_tokens, 0u) << names[i];
  }
}

TEST(Identity, OneChangedByteOfTheModelPartsTheServers) {  // field report B01
  BusWorld world;
  world.WriteModel(world.dir / "altered.gguf", 2);
  world.AddServer("a");
  FakeServer::Options altered;
  altered.model_path = (world.dir / "altered.gguf").string();
  world.AddServer("b", altered);
  world.AddServer("c");
  world.Settle();
  const auto prompt = Tokens(64, 1);
  world.Run("a", prompt);
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", prompt)).value().stored_tokens, 0u);
  EXPECT_EQ(world.bus->Lookup(world.Ask("c", prompt)).value().stored_tokens, 64u) << "the control";
}

TEST(Identity, AServerThatLoadedOtherWeightsThanTheFileNowHoldsDoesNotMix) {  // field report B02 b
  BusWorld world;
  FakeServer::Options old_weights;
  old_weights.state.seed = 7;  // computes with what the file held before
  world.AddServer("a", old_weights);
  world.AddServer("b");
  world.Settle();
  EXPECT_NE(world.FingerprintOf("a"), world.FingerprintOf("b"));
}

TEST(Identity, ChangedAdapterScalesAreNoticedAtTheNextPrepare) {
  BusWorld world;
  std::ofstream(world.dir / "lora.gguf") << "adapter";
  const auto server = world.AddServer("a");
  server->SetAdapters({{.path = (world.dir / "lora.gguf").string(), .scale = 1}});
  world.Settle();
  const std::string before = world.FingerprintOf("a");
  server->SetAdapters({{.path = (world.dir / "lora.gguf").string(), .scale = 0.5}});
  EXPECT_EQ(world.Prepare("a", Tokens(40, 1)).decision, Decision::kBypass);
  world.Settle();
  EXPECT_NE(world.FingerprintOf("a"), before);
}

TEST(Identity, NoSlotIsProbedThatHoldsSomebodysConversation) {
  BusWorld world;
  const auto server = world.AddServer("a");
  server->Overwrite(0, Tokens(50, 5));
  world.Settle();
  EXPECT_EQ(server->Tokens(0), Tokens(50, 5));
  EXPECT_NE(world.StateOf("a"), "ready");
  EXPECT_EQ(world.Prepare("a", Tokens(40, 1)).reason, "not_probed");
  EXPECT_FALSE(world.bus->Ready()) << world.StateOf("a");
  EXPECT_TRUE(world.bus->Probe("a", 0)) << "unless its owner gives it up";
  EXPECT_EQ(world.StateOf("a"), "ready");
  EXPECT_TRUE(server->Tokens(0).empty()) << "the canary is erased";
}

// Field report B54: the bus is started again, the servers went on and their slots are full of conversations.
TEST(Identity, AServerThatWentOnRunningIsRecognizedWithoutAnotherProbe) {
  BusWorld world;
  const auto server = world.AddServer("a");
  world.Settle();
  const std::string fingerprint = world.FingerprintOf("a");
  const auto prompt = Tokens(64, 1);
  world.Run("a", prompt);
  server->Overwrite(0, Tokens(50, 5));
  world.RestartBus();
  EXPECT_EQ(world.StateOf("a"), "ready");
  EXPECT_EQ(world.FingerprintOf("a"), fingerprint);
  EXPECT_EQ(server->Tokens(0), Tokens(50, 5)) << "nobody's conversation was given up";
  EXPECT_EQ(world.Prepare("a", prompt).decision, Decision::kRestore);

  server->Restart();
  server->Overwrite(0, Tokens(50, 5));
  world.RestartBus();
  EXPECT_NE(world.StateOf("a"), "ready") << "another process may be anything";
  std::ofstream(world.dir / "engine_notes") << "{\"http://fake/a\": {\"incarnation\": 7}}";
  world.RestartBus();
  EXPECT_NE(world.StateOf("a"), "ready") << "a damaged note is no note";
}

TEST(Identity, AnEngineThatCannotBeProbedIsGivenUpAndReadyIsReached) {
  BusWorld world;
  const auto server = world.AddServer("a");
  server->FailAlways("save", Error{ErrorCode::kUnsupported, "501: the server has no --slot-save-path"});
  for (int i = 0; i < 100; ++i) world.Tick();
  EXPECT_EQ(world.StateOf("a"), "given_up");
  EXPECT_TRUE(world.bus->Ready());
  EXPECT_EQ(world.Prepare("a", Tokens(40, 1)).reason, "unsupported");
  server->FailAlways("save", std::nullopt);
  for (int i = 0; i < 40; ++i) world.Tick();
  EXPECT_EQ(world.StateOf("a"), "ready") << "it is tried again, slowly";
}

TEST(Identity, AModelThatTheServerNamesByARelativePathIsNotGuessed) {  // field report B01
  BusWorld world;
  FakeServer::Options relative;
  relative.model_path = "model.gguf";
  world.AddServer("a", relative);
  world.Settle();
  EXPECT_EQ(world.Prepare("a", Tokens(40, 1)).reason, "unsupported");
}

TEST(Identity, AServerWithStrangeAnswersIsNamedAsSuch) {
  BusWorld world;
  const auto server = world.AddServer("a");
  server->FailAlways("props", Error{ErrorCode::kInternal, "/props: total_slots is missing"});
  world.Settle();
  EXPECT_EQ(world.Prepare("a", Tokens(40, 1)).reason, "bad_answers");
  server->FailAlways("props", std::nullopt);
  for (int i = 0; i < 40; ++i) world.Tick();
  EXPECT_EQ(world.StateOf("a"), "ready");
}

TEST(Identity, EightFamiliesAreTheMost) {
  BusWorld world;
  for (int i = 0; i < 9; ++i) {
    FakeServer::Options options;
    options.state.seed = static_cast<uint64_t>(100 + i);
    world.AddServer("e" + std::to_string(i), options);
  }
  for (int i = 0; i < 30; ++i) world.Tick();
  std::set<std::string> fingerprints;
  int full = 0;
  for (const EngineStatus& engine : world.bus->Engines()) {
    if (engine.state == "ready") fingerprints.insert(engine.fingerprint);
    full += engine.reason.starts_with("canary_families_full");
  }
  EXPECT_EQ(fingerprints.size(), 8u);
  EXPECT_EQ(full, 1);
}

// Field report B10: a key that leads to another prompt's object, as a hash collision or a lying alias would make it.
TEST(Identity, AKeyThatLeadsToAnotherPromptIsACleanMiss) {
  BusWorld world;
  world.AddServer("a");
  world.AddServer("b");
  world.Settle();
  const auto honest = Tokens(64, 1);
  const auto victim = Tokens(64, 2);
  const std::string wrong = world.Run("a", honest).committed.object;
  const std::string right = world.Run("a", victim).committed.object;
  int redirected = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(world.dir / "store/aliases")) {
    if (!entry.is_symlink()) continue;
    std::string text = std::filesystem::read_symlink(entry.path()).string();
    if (!text.starts_with(right)) continue;
    std::filesystem::remove(entry.path());
    std::filesystem::create_symlink(wrong + text.substr(right.size()), entry.path());
    ++redirected;
  }
  ASSERT_EQ(redirected, 4);
  const auto looked = world.bus->Lookup(world.Ask("b", victim)).value();
  EXPECT_EQ(looked.reason, "identity");
  EXPECT_EQ(looked.restorable_tokens, 0u);
  const auto missed = world.Run("b", victim);
  EXPECT_NE(missed.prepared.decision, Decision::kRestore);
  EXPECT_EQ(missed.completion.timings.prompt_tokens_cached, 0u);
}

// Field report B62 a: the pair, both asserted.
TEST(Namespaces, ShareWithinAndNeverAcross) {
  BusWorld world;
  world.AddServer("a");
  world.AddServer("b");
  world.Settle();
  const auto prompt = Tokens(64, 1);
  world.Run("a", prompt, "t1");
  EXPECT_EQ(world.bus->Lookup(world.Ask("b", prompt, "t1")).value().stored_tokens, 64u);
  const auto miss = world.bus->Lookup(world.Ask("b", Tokens(64, 9), "t2")).value();
  for (const char* other : {"", "t2", "t1/t2", "T1"}) {  // field report B09
    const auto looked = world.bus->Lookup(world.Ask("b", prompt, other)).value();
    EXPECT_EQ(looked.stored_tokens, 0u) << other;
    EXPECT_EQ(looked.reason, miss.reason) << "a real miss and another tenant's prompt are answered alike";
    EXPECT_EQ(looked.decision, miss.decision);
    EXPECT_EQ(looked.object, "");
  }
}

TEST(Engines, AppearVanishAndReturnWhileTheBusRuns) {
  BusWorld world;
  world.AddServer("a");
  world.Settle();
  const auto prompt = Tokens(64, 1);
  const auto held = world.Prepare("a", prompt);
  world.RemoveServer("a");
  EXPECT_EQ(world.bus->Prepare(world.Ask("a", prompt)).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(world.bus->Release(held.ticket).released) << "its tickets went with it";
  world.AddServer("b");
  world.Settle();
  EXPECT_EQ(world.Prepare("b", prompt).decision, Decision::kLead);
}

}  // namespace
}  // namespace moonpool::bus

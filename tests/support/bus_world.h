// BusWorld: a whole bus in one process for tests: the real core and the real directory store in a temporary
// directory, fake servers (support/fake_engine.h), a fake clock, and commits that run when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bus/blobs/directory_store.h"
#include "bus/core/kv_cache_bus.h"
#include "support/fake_clock.h"
#include "support/fake_engine.h"
#include "support/gguf_writer.h"
#include "support/hooked_file_system.h"
#include "support/manual_executor.h"
#include "support/temp_dir.h"

namespace moonpool::testing {

// Long random tests are shortened where every step costs ten times as much.
#if defined(MOONPOOL_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline constexpr uint32_t kWorldBlock = 16;  // tokens; small, so that prompts are short
inline constexpr uint32_t kWorldVocabulary = 20'000;

// Tokens seed, seed+1, ... within the vocabulary: prompts of different seeds share nothing.
inline std::vector<TokenId> Tokens(size_t count, int seed) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<TokenId>((static_cast<uint64_t>(seed) * 1009 + i * 7 + 3) % kWorldVocabulary);
  }
  return tokens;
}
inline std::vector<TokenId> Concat(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

class BusWorld {
 public:
  struct Options {
    bus::BusConfig config = [] {
      bus::BusConfig config;
      config.block_tokens = kWorldBlock;
      return config;
    }();
    uint64_t quota_bytes = 1ull << 30;
    bus::MemoryClass memory = bus::MemoryClass::kPlain;
  };

  BusWorld() : BusWorld(Options{}) {}
  explicit BusWorld(Options options) : options_(std::move(options)) {
    WriteModel(dir / "model.gguf");
    OpenStore();
    OpenBus();
  }
  ~BusWorld() { CloseBus(); }

  void WriteModel(const Path& path, char fill = 1) {
    const bool window = options_.memory == bus::MemoryClass::kSlidingWindow;
    const bool recurrent = options_.memory == bus::MemoryClass::kRecurrent;
    const std::string architecture = window ? "gemma3" : recurrent ? "mamba" : "llama";
    GgufWriter gguf;
    gguf.Str("general.architecture", architecture)
        .Str("general.name", "tiny")
        .U32(architecture + ".block_count", 2)
        .U32(architecture + ".embedding_length", 64)
        .Str("tokenizer.ggml.model", "gpt2")
        .Array<std::string>("tokenizer.ggml.tokens", GgufWriter::kString,
                            std::vector<std::string>(kWorldVocabulary, "x"));
    if (!recurrent) gguf.U32(architecture + ".attention.head_count", 4);
    if (window) gguf.U32("gemma3.attention.sliding_window", 4);
    if (recurrent) gguf.U32("mamba.ssm.state_size", 16).U32("mamba.ssm.conv_kernel", 4).U32("mamba.ssm.inner_size", 64);
    gguf.Tensor("token_embd.weight", {64, 4}, 1, std::string(512, fill));
    std::ofstream(path, std::ios::binary) << gguf.File();
  }

  void OpenStore() {
    bus::DirectoryStore::Options store_options;
    store_options.root = dir / "store";
    store_options.quota_bytes = options_.quota_bytes;
    auto opened = bus::DirectoryStore::Open(files, clock, rng, store_options);
    ASSERT_TRUE(opened) << opened.error().ToString();
    store = std::move(*opened);
  }
  void OpenBus() {
    options_.config.engine_notes = dir / "engine_notes";
    digests = std::make_unique<bus::ModelDigests>(files, clock, rng, dir / "digests");
    bus = std::make_unique<bus::KvCacheBus>(
        options_.config, bus::KvCacheBus::Seams{files, clock, rng, executor, *store, *digests,
                                                [this](const bus::EngineConfig& config) { return Connect(config); }});
  }
  void CloseBus() {
    executor.RunAll();
    bus.reset();
  }
  // The bus process ends and starts again; servers and store stay.
  void RestartBus() {
    CloseBus();
    store.reset();
    OpenStore();
    OpenBus();
    ASSERT_TRUE(bus->Configure(engines_));
    Settle();
  }

  // A server and the engine of that name. Call Settle() to have it probed.
  std::shared_ptr<FakeServer> AddServer(const std::string& name, FakeServer::Options server_options = {}) {
    server_options.slot_dir = dir / ("slots_" + name);
    std::filesystem::create_directory(server_options.slot_dir);
    server_options.state.memory = options_.memory;
    if (server_options.model_path.empty()) server_options.model_path = (dir / "model.gguf").string();
    auto server = std::make_shared<FakeServer>(server_options);
    servers_[name] = server;
    bus::EngineConfig config;
    config.name = name;
    config.url = "http://fake/" + name;
    config.slot_dir = server_options.slot_dir;
    engines_.push_back(config);
    EXPECT_TRUE(bus->Configure(engines_));
    return server;
  }
  void RemoveServer(const std::string& name) {
    std::erase_if(engines_, [&](const bus::EngineConfig& config) { return config.name == name; });
    EXPECT_TRUE(bus->Configure(engines_));
  }
  // Lets time pass until every engine is probed.
  void Settle() {
    for (int i = 0; i < 5; ++i) Tick();
  }
  void Tick(Duration by = std::chrono::seconds(1)) {
    clock.Advance(by);
    bus->Tick();
    executor.RunAll();
  }

  bus::PromptRequest Ask(const std::string& engine, std::vector<TokenId> tokens,
                         const std::string& name_space = "") const {
    bus::PromptRequest request;
    request.engine = engine;
    request.tokens = std::move(tokens);
    request.name_space = name_space;
    request.wait_ms = 0;
    return request;
  }
  bus::PrepareReply Prepare(const std::string& engine, std::vector<TokenId> tokens,
                            const std::string& name_space = "") {
    auto reply = bus->Prepare(Ask(engine, std::move(tokens), name_space));
    EXPECT_TRUE(reply) << reply.error().ToString();
    return reply ? *reply : bus::PrepareReply{};
  }
  // What an agent does after Prepare: the completion on the slot it was given.
  bus::Completion Complete(const std::string& engine, const bus::PrepareReply& prepared, std::vector<TokenId> tokens,
                           uint32_t predict = 4) {
    bus::CompletionRequest request;
    request.prompt = std::move(tokens);
    request.slot = prepared.slot.value_or(0);
    request.predict_max = predict;
    FakeEngine client(servers_.at(engine));
    return client.Complete(request, Deadline(clock, std::chrono::seconds(10))).value();
  }
  static bus::ObservedTimings Timings(const bus::Completion& completion) {
    return {.prompt_n = completion.timings.prompt_tokens_evaluated,
            .cache_n = completion.timings.prompt_tokens_cached,
            .prompt_ms = completion.timings.prompt_ms,
            .predicted_n = completion.timings.predicted_tokens};
  }
  bus::CommitReply Commit(const bus::PrepareReply& prepared, const bus::Completion& completion,
                          bus::CommitWait wait = bus::CommitWait::kPublished) {
    bus::CommitRequest request;
    request.ticket = prepared.ticket;
    request.timings = Timings(completion);
    request.wait = wait;
    auto reply = bus->Commit(request);
    EXPECT_TRUE(reply) << reply.error().ToString();
    executor.RunAll();
    return reply ? *reply : bus::CommitReply{};
  }
  struct Turn {
    bus::PrepareReply prepared;
    bus::Completion completion;
    bus::CommitReply committed;
  };
  // One whole request of an agent through the bus.
  Turn Run(const std::string& engine, const std::vector<TokenId>& tokens, const std::string& name_space = "",
           uint32_t predict = 4) {
    Turn turn;
    turn.prepared = Prepare(engine, tokens, name_space);
    turn.completion = Complete(engine, turn.prepared, tokens, predict);
    if (!turn.prepared.ticket.empty()) turn.committed = Commit(turn.prepared, turn.completion);
    return turn;
  }
  void EraseSlots(const std::string& engine, uint32_t slots = 1) {
    FakeEngine client(servers_.at(engine));
    for (uint32_t i = 0; i < slots; ++i) {
      EXPECT_TRUE(client.EraseSlot(i, Deadline(clock, std::chrono::seconds(1))));
    }
  }
  // Files in an engine's slot directory: none may be left behind.
  size_t SlotFiles(const std::string& engine) const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir / ("slots_" + engine))) count += entry.exists();
    return count;
  }
  std::string StateOf(const std::string& engine) const {
    for (const bus::EngineStatus& status : bus->Engines()) {
      if (status.name == engine) return status.state;
    }
    return "absent";
  }
  std::string FingerprintOf(const std::string& engine) const {
    for (const bus::EngineStatus& status : bus->Engines()) {
      if (status.name == engine) return status.fingerprint;
    }
    return "";
  }

  TempDir dir;
  // Told of every call of the bus and its store to the file system, just before it is carried out.
  HookedFileSystem::Hook on_file_call;
  PosixFileSystem disk;
  HookedFileSystem files{disk, [this](std::string_view call, const Path& path) {
                           if (on_file_call) on_file_call(call, path);
                         }};
  FakeClock clock;
  SeededRng rng{20261130};
  ManualExecutor executor;
  std::unique_ptr<bus::DirectoryStore> store;
  std::unique_ptr<bus::ModelDigests> digests;
  std::unique_ptr<bus::KvCacheBus> bus;

 private:
  Result<std::unique_ptr<bus::InferenceEngine>> Connect(const bus::EngineConfig& config) {
    return std::make_unique<FakeEngine>(servers_.at(config.name));
  }

  Options options_;
  std::map<std::string, std::shared_ptr<FakeServer>> servers_;
  std::vector<bus::EngineConfig> engines_;
};

}  // namespace moonpool::testing

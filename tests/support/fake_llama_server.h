// FakeLlamaServer: a scripted llama-server on a loopback port, for tests of what speaks to one. It keeps token lists
// in its slots, counts cached and evaluated prompt tokens as the real one does, writes and reads slot files, and has
// the real one's traps: slot ids are taken modulo the slots, a refused restore empties the slot, an action that its
// caller gave up is carried out all the same.
//
// Calls are named "METHOD /path" ("POST /completion"), slot actions "save", "restore", "erase". Nothing here sleeps:
// a held call goes on when the test releases it. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/token_id.h"
#include "net/http_server.h"

namespace moonpool::testing {

struct FakeLlamaOptions {
  uint32_t slots = 2;
  uint32_t context_tokens = 4096;          // per slot
  std::filesystem::path slot_directory{};  // empty: slot actions are 501
  std::string api_key{};
  std::string model_path = "/models/fake.gguf";
  std::string router_model{};  // not empty: calls must name it
  uint16_t port = 0;
  // The bytes of a slot file; by default a file of version 4 with a token section and no body.
  std::function<std::string(const std::vector<TokenId>& tokens, uint32_t slot)> save_bytes{};
};

// What happens to a call in place of its answer.
struct FakeFault {
  enum class Kind { kStatus, kReset, kGarbage, kTruncated, kBody };
  Kind kind = Kind::kReset;
  int status = 500;
  std::string text;  // kStatus: the message; kBody: the whole body of a 200 answer

  static FakeFault Status(int status, std::string message) { return {Kind::kStatus, status, std::move(message)}; }
  static FakeFault Reset() { return {Kind::kReset, 0, {}}; }
  static FakeFault Garbage() { return {Kind::kGarbage, 200, {}}; }      // 200, but not JSON
  static FakeFault Truncated() { return {Kind::kTruncated, 200, {}}; }  // breaks off in the middle of the body
  static FakeFault Body(std::string body) { return {Kind::kBody, 200, std::move(body)}; }
};

class FakeLlamaServer final : private net::HttpHandler {
 public:
  static constexpr TokenId kBos = 1;
  static constexpr TokenId kSpecial = 2;  // the text "<|special|>", when special tokens are parsed
  static constexpr TokenId kFirstByte = 10;

  struct Call {
    std::string name;  // "POST /completion", "restore"
    std::optional<int64_t> slot;
    nlohmann::json body;
    std::string query;
    std::string authorization;
  };

  explicit FakeLlamaServer(FakeLlamaOptions options);
  ~FakeLlamaServer() override;

  std::string url() const;
  uint16_t port() const { return server_->port(); }

  // Every call that arrived, in order, also those that failed.
  std::vector<Call> Calls() const EXCLUDES(mutex_);
  size_t CountOf(const std::string& name) const EXCLUDES(mutex_);

  // The next `times` calls of that name fail so.
  void Fail(const std::string& name, FakeFault fault, int times = 1) EXCLUDES(mutex_);
  // Calls of that name stop before they have any effect, until released. "POST /completion#first" stops after the
  // headers of a streamed completion and before its first event.
  void Hold(const std::string& name) EXCLUDES(mutex_);
  void Release(const std::string& name) EXCLUDES(mutex_);
  void AwaitHeld(const std::string& name, int count) EXCLUDES(mutex_);
  // Until so many calls of that name have had their effect.
  void AwaitDone(const std::string& name, int count) EXCLUDES(mutex_);

  // Field report B16: restores answer as ever, but the next completion on the slot reuses nothing.
  void MakeRestoresIneffective(bool ineffective) EXCLUDES(mutex_);
  // As a new process at the same address: another media marker, empty slots, maybe another number of them.
  void Restart(std::optional<uint32_t> slots = {}) EXCLUDES(mutex_);
  void SetLoading(bool loading) EXCLUDES(mutex_);
  // Asleep it keeps its marker; waking it (any call but /health and /props) finds the slots empty.
  void SetSleeping(bool sleeping) EXCLUDES(mutex_);
  void SetProcessing(uint32_t slot, bool processing) EXCLUDES(mutex_);
  void SetSlotTokens(uint32_t slot, std::vector<TokenId> tokens) EXCLUDES(mutex_);
  std::vector<TokenId> SlotTokens(uint32_t slot) const EXCLUDES(mutex_);

  // As /tokenize does it.
  static std::vector<TokenId> TokenizeText(const std::string& text, bool add_special, bool parse_special);

 private:
  struct Slot {
    std::vector<TokenId> tokens;
    uint64_t task = 0;  // 0: has never run one, and then /slots does not show its tokens
    bool processing = false;
    bool restored_in_vain = false;
  };

  void Handle(net::HttpRequest request, net::HttpReply reply) override EXCLUDES(mutex_);
  net::HttpResponse Answer(const Call& call) EXCLUDES(mutex_);
  void WaitWhileHeld(const std::string& name) EXCLUDES(mutex_);
  std::optional<FakeFault> TakeFault(const std::string& name) EXCLUDES(mutex_);

  nlohmann::json Props() const REQUIRES(mutex_);
  nlohmann::json SlotList() const REQUIRES(mutex_);
  net::HttpResponse Save(const Call& call) REQUIRES(mutex_);
  net::HttpResponse Restore(const Call& call) REQUIRES(mutex_);
  net::HttpResponse Erase(const Call& call) REQUIRES(mutex_);
  struct Evaluation {
    int status = 200;
    nlohmann::json error;
    std::vector<TokenId> generated;
    nlohmann::json last_event;
  };
  Evaluation Evaluate(const nlohmann::json& body) EXCLUDES(mutex_);
  void Complete(const Call& call, const net::HttpReply& reply) EXCLUDES(mutex_);
  Slot& SlotOf(int64_t id) REQUIRES(mutex_);

  const FakeLlamaOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Call> calls_ GUARDED_BY(mutex_);
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  uint64_t next_task_ GUARDED_BY(mutex_) = 1;
  uint64_t incarnation_ GUARDED_BY(mutex_) = 1;
  bool loading_ GUARDED_BY(mutex_) = false;
  bool sleeping_ GUARDED_BY(mutex_) = false;
  bool restores_ineffective_ GUARDED_BY(mutex_) = false;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::map<std::string, std::vector<FakeFault>> faults_ GUARDED_BY(mutex_);
  std::map<std::string, bool> holds_ GUARDED_BY(mutex_);
  std::map<std::string, int> held_ GUARDED_BY(mutex_);
  std::map<std::string, int> done_ GUARDED_BY(mutex_);
  std::unique_ptr<net::HttpServer> server_;  // last: its threads use all of the above
};

}  // namespace moonpool::testing

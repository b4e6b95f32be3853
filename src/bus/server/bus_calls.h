// BusCalls: the verbs of the bus as both doors offer them: messages in, messages out, the caller's namespace enforced,
// every outcome counted. A door adds only its transport. Thread-safe; owned by BusServer.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

#include "bus/server/access_policy.h"
#include "bus/server/bus_front.h"
#include "moonpool/result.h"

// The messages, declared only: most of who includes this needs no generated code.
namespace moonpool::v1 {
class CommitReply;
class CommitRequest;
class EngineStatus;
class LookupReply;
class PrepareReply;
class ProbeRequest;
class PromptRequest;
class ReleaseReply;
class ReleaseRequest;
class StatsReply;
}  // namespace moonpool::v1

namespace moonpool::bus {

enum class Verb { kLookup, kPrepare, kCommit, kRelease, kProbe };
inline constexpr size_t kVerbs = 5;
std::string_view VerbName(Verb verb);  // "lookup"

// How calls ended, for /metrics: counters only, no decision reads them.
struct CallCounts {
  std::array<uint64_t, kVerbs> ok{};
  std::array<uint64_t, kVerbs> failed{};    // by their own fault or ours
  std::array<uint64_t, kVerbs> rejected{};  // the lane was full
};

class BusCalls {
 public:
  explicit BusCalls(BusFront& front) : front_(front) {}

  Result<v1::LookupReply> Lookup(const v1::PromptRequest& request, const Caller& caller);
  // `cancelled` may be empty.
  Result<v1::PrepareReply> Prepare(const v1::PromptRequest& request, const Caller& caller,
                                   const std::function<bool()>& cancelled);
  Result<v1::CommitReply> Commit(const v1::CommitRequest& request, const Caller& caller);
  Result<v1::ReleaseReply> Release(const v1::ReleaseRequest& request, const Caller& caller);
  // kPermission for callers bound to a namespace: giving up a slot harms the others.
  Result<v1::EngineStatus> Probe(const v1::ProbeRequest& request, const Caller& caller);
  v1::StatsReply Stats() const;

  BusFront& front() { return front_; }
  const BusFront& front() const { return front_; }

  // From now on Lookup and Prepare are refused with kUnavailable and waiting Prepares end; Commit and Release go on.
  void BeginDrain() { draining_ = true; }
  bool draining() const { return draining_; }
  void CountRejected(Verb verb) { ++rejected_[static_cast<size_t>(verb)]; }
  CallCounts Calls() const;

 private:
  template <class Reply>
  Result<Reply> Counted(Verb verb, Result<Reply> result);
  Result<PromptRequest> Admitted(const v1::PromptRequest& request, const Caller& caller) const;

  BusFront& front_;
  // Plain counts and a flag, each read alone: no order between them matters.
  std::atomic<bool> draining_{false};
  std::array<std::atomic<uint64_t>, kVerbs> ok_{};
  std::array<std::atomic<uint64_t>, kVerbs> failed_{};
  std::array<std::atomic<uint64_t>, kVerbs> rejected_{};
};

}  // namespace moonpool::bus

// Preparer: Lookup and Prepare. Finds what is stored of a prompt, decides, takes a slot, restores into it or lets
// the caller lead. After the decision to restore, every failure is a miss.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bus/core/bus_owners.h"
#include "bus/core/bus_types.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class Preparer {
 public:
  explicit Preparer(BusOwners& owners) : owners_(owners) {}

  Result<LookupReply> Lookup(const PromptRequest& request);
  Result<PrepareReply> Prepare(const PromptRequest& request, const std::function<bool()>& cancelled);

 private:
  // What both calls find out first.
  struct Question {
    SessionRef session;
    ProfileRef profile;  // null: bypass
    std::shared_ptr<TicketPrompt> prompt;
    std::string reason;  // of the bypass
    std::string detail;
  };
  struct Slot {
    uint32_t id = 0;
    uint64_t resident_tokens = 0;  // of the prompt, known to be there
    bool foreign = false;          // it holds what another namespace left
  };
  enum class Next { kDone, kAgain };
  // The caller of a Prepare: what it asks, and how long it waits.
  struct Call {
    const PromptRequest& request;
    TimePoint wait_until;
    const std::function<bool()>& cancelled;
    bool Cancelled() const { return cancelled && cancelled(); }
  };

  Result<Question> Ask(const PromptRequest& request, const Deadline& deadline);
  ArbiterQuestion Cost(const Question& question, const StoredPrefix& stored, bool server_busy) const;
  // One round: look up, wait for a leader if there is one, take a slot, fill it. kAgain after a wait that makes a
  // new round worth while.
  Result<Next> TryOnce(const Call& call, const Question& question, bool& may_wait, PrepareReply& reply);
  // What is stored; nothing, with the reason, if the store does not answer.
  StoredPrefix FindStored(const Question& question, bool& may_wait, PrepareReply& reply);
  // Restores into the ticket's slot if there is something and it pays; true if something worth publishing is missing.
  bool Fill(const Question& question, const StoredPrefix& stored, const Slot& slot, bool server_busy,
            const Deadline& deadline, PrepareReply& reply);
  // The ticket's holder leads, unless somebody does; then it waits, without its slot.
  Result<Next> LeadOrFollow(const Call& call, const Question& question, bool& may_wait, PrepareReply& reply);
  Result<Next> WaitFor(const SingleFlight::FlightRef& flight, const Call& call, bool& may_wait, PrepareReply& reply);
  Next WaitForSlot(const Call& call, const Deadline& deadline, PrepareReply& reply);
  // The slot to use, or nothing with the reason for a bypass in `reply`.
  std::optional<Slot> ChooseSlot(const PromptRequest& request, const Question& question, const Deadline& deadline,
                                 bool& server_busy, PrepareReply& reply);
  std::optional<std::string> TakeTicket(const Question& question, const Slot& slot);
  // A server reuses what its slot holds, and the time it takes tells what that is. False: the slot was given back.
  bool EraseForeign(const Question& question, const Slot& slot, const Deadline& deadline, PrepareReply& reply);
  // Fills in the reply, a hit or a miss; true if the object turned out to be lost.
  bool RestoreInto(const Question& question, const StoredPrefix& stored, const Slot& slot, const Deadline& deadline,
                   PrepareReply& reply);
  // The reply's ticket ends, and the caller is sent to no slot.
  void GiveBack(PrepareReply& reply);
  SingleFlight::LeaderSeen LookAtLeader(const FlightLeader& leader);
  void Finish(PrepareReply& reply);

  BusOwners& owners_;
};

}  // namespace moonpool::bus

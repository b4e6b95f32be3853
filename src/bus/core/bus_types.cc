#include "bus/core/bus_types.h"

namespace moonpool::bus {

std::string_view DecisionName(Decision decision) {
  switch (decision) {
    case Decision::kRestore: return "RESTORE";
    case Decision::kRecompute: return "RECOMPUTE";
    case Decision::kLead: return "LEAD";
    case Decision::kBypass: return "BYPASS";
  }
  return "BYPASS";
}

std::string_view CommitStatusName(CommitStatus status) {
  switch (status) {
    case CommitStatus::kAccepted: return "ACCEPTED";
    case CommitStatus::kSaved: return "SAVED";
    case CommitStatus::kPublished: return "PUBLISHED";
    case CommitStatus::kSkipped: return "SKIPPED";
    case CommitStatus::kFailed: return "FAILED";
  }
  return "FAILED";
}

}  // namespace moonpool::bus

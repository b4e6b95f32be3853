// EngineExamination: what `moonpool doctor` finds out about one llama.cpp server and says about it. Asks only what
// changes nothing, except that it may save an idle slot into the slot directory (and removes the file) to see that the
// server and the bus mean the same directory. If they do not, the file stays where the server put it, under a name that
// the next bus there sweeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/rng.h"
#include "bus/core/bus_config.h"
#include "bus/keys/gguf_model.h"

namespace moonpool::app {

enum class Severity {
  kGood,     // as it should be
  kNote,     // good to know
  kWarning,  // works, but less well than it could
  kProblem,  // the bus cannot use this engine
};
std::string_view SeverityName(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  std::string subject;  // one word: "server", "slots", "model", ...
  std::string detail;   // what is
  std::string advice;   // what to change; empty: nothing
};

struct EngineExamination {
  std::string name;
  std::string url;
  std::vector<Finding> findings;
  // For comparisons between engines; absent where it could not be learned.
  std::optional<uint32_t> total_slots;
  std::optional<uint32_t> context_tokens;
  std::string model_path;
  std::optional<bus::GgufModel> model;

  bool HasProblem() const;
};

// What the examination works with; outlives the call.
struct ExaminationTools {
  FileSystem& files;
  const Clock& clock;
  Rng& rng;
  Path store;  // where the bus would store
};

EngineExamination ExamineEngine(const ExaminationTools& tools, const bus::EngineConfig& engine);
// What only the set of engines shows: they differ in ways that keep them from sharing.
std::vector<Finding> CompareEngines(const std::vector<EngineExamination>& engines);

}  // namespace moonpool::app

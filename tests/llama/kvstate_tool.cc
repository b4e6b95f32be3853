// kvstate_tool: bus/kvstate on the command line, for tests that hold it against real servers.
//
//   kvstate_tool parse FILE CLASS
//   kvstate_tool rewrite IN OUT [--streams N] [--stream N] [--seq N] [--tokens N]
//   kvstate_tool compare A B CLASS
//
// CLASS is plain, sliding-window, recurrent or hybrid. Prints one JSON object; status 1 and {"error", "message"} if the
// library refused, 2 if the command line is wrong.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "bus/kvstate/sequence_state.h"

namespace moonpool::bus {
namespace {

using Json = nlohmann::json;

std::optional<MemoryClass> ClassOf(const std::string& name) {
  static const std::map<std::string, MemoryClass> kNames = {{"plain", MemoryClass::kPlain},
                                                            {"sliding-window", MemoryClass::kSlidingWindow},
                                                            {"recurrent", MemoryClass::kRecurrent},
                                                            {"hybrid", MemoryClass::kHybrid}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

// A state file that stays open for as long as its source is read.
struct OpenState {
  std::unique_ptr<File> file;
  FileSource source;
  SequenceState state;
};

Result<OpenState> OpenFile(const std::string& path, MemoryClass memory) {
  PosixFileSystem files;
  MP_ASSIGN_OR_RETURN(auto file, files.Open(path));
  MP_ASSIGN_OR_RETURN(const FileSource source, FileSource::Of(*file));
  MP_ASSIGN_OR_RETURN(SequenceState state, ParseSequenceState(source, memory));
  return OpenState{std::move(file), source, std::move(state)};
}

Result<Json> ParseCommand(const std::string& path, MemoryClass memory) {
  MP_ASSIGN_OR_RETURN(const OpenState open, OpenFile(path, memory));
  const SequenceState& state = open.state;
  Json answer = {{"version", state.version},           {"tokens", state.tokens},
                 {"packed", state.packed_tokens},      {"rewritable", state.Rewritable()},
                 {"layout", state.LayoutDescriptor()}, {"bytes_per_token", state.BytesPerToken()},
                 {"checkpoints", state.checkpoints},   {"attention", Json::array()}};
  for (const AttentionBody& body : state.attention) {
    answer["attention"].push_back({{"streams", body.streams},
                                   {"stream", body.stream},
                                   {"cells", body.cells},
                                   {"position_first", body.position_first},
                                   {"in_order", body.cell_of.empty()},
                                   {"cell_meta_bytes", body.cell_meta_bytes},
                                   {"sequence_id", body.sequence_id}});
  }
  return answer;
}

Result<Json> RewriteCommand(const std::string& from, const std::string& to, const RewriteTarget& target) {
  MP_ASSIGN_OR_RETURN(const OpenState open, OpenFile(from, MemoryClass::kPlain));
  PosixFileSystem files;
  MP_ASSIGN_OR_RETURN(const auto file, files.Create(to));
  MP_RETURN_IF_ERROR(RewriteSequenceState(open.source, open.state, target, *file));
  MP_RETURN_IF_ERROR(file->Close());
  return ParseCommand(to, MemoryClass::kPlain);
}

Result<Json> CompareCommand(const std::string& a, const std::string& b, MemoryClass memory) {
  MP_ASSIGN_OR_RETURN(const OpenState open_a, OpenFile(a, memory));
  MP_ASSIGN_OR_RETURN(const OpenState open_b, OpenFile(b, memory));
  MP_ASSIGN_OR_RETURN(const StateDistance distance,
                      CompareStates(open_a.source, open_a.state, open_b.source, open_b.state));
  return Json{{"first_layer_k", distance.first_layer_k}, {"worst_layer", distance.worst_layer}};
}

std::optional<Result<Json>> Run(std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  const std::string& command = arguments[0];
  if (command == "parse" && arguments.size() == 3) {
    if (const auto memory = ClassOf(arguments[2])) return ParseCommand(arguments[1], *memory);
  } else if (command == "compare" && arguments.size() == 4) {
    if (const auto memory = ClassOf(arguments[3])) return CompareCommand(arguments[1], arguments[2], *memory);
  } else if (command == "rewrite" && arguments.size() >= 3 && arguments.size() % 2 == 1) {
    RewriteTarget target;
    for (size_t i = 3; i < arguments.size(); i += 2) {
      const auto value = static_cast<uint32_t>(std::strtoul(arguments[i + 1].c_str(), nullptr, 10));
      if (arguments[i] == "--streams") {
        target.streams = value;
      } else if (arguments[i] == "--stream") {
        target.stream = value;
      } else if (arguments[i] == "--seq") {
        target.sequence_id = static_cast<int32_t>(value);
      } else if (arguments[i] == "--tokens") {
        target.tokens = value;
      } else {
        return std::nullopt;
      }
    }
    return RewriteCommand(arguments[1], arguments[2], target);
  }
  return std::nullopt;
}

}  // namespace
}  // namespace moonpool::bus

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto result = moonpool::bus::Run(arguments);
  if (!result) {
    std::cerr << "usage: kvstate_tool parse FILE CLASS | rewrite IN OUT [--streams N] [--stream N] [--seq N] "
                 "[--tokens N] | compare A B CLASS\n";
    return 2;
  }
  if (!*result) {
    const moonpool::Error& error = result->error();
    std::cout << nlohmann::json{{"error", moonpool::ErrorCodeName(error.code)}, {"message", error.message}} << '\n';
    return 1;
  }
  std::cout << **result << '\n';
  return 0;
}

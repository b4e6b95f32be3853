// ServerFiles: where the Python interpreter with a llama.cpp server inside and the model are. Both belong to the state
// root that `make setup` fills ($MOONPOOL_STATE, or .state of the checkout). A value.
#pragma once

#include <optional>
#include <string>

#include "base/file_system.h"
#include "moonpool/result.h"

namespace moonpool::app {

struct ServerFiles {
  Path python{};
  Path model{};
};

// What the command line says; empty: not said.
struct ServerFileFlags {
  std::string state{};
  std::string python{};
  std::string model{};
};

// `state_variable`: the value of MOONPOOL_STATE, if set. `start`: folders of this and upwards from it are searched for
// a .state if nobody says where it is. kNotFound names the missing file and the next step.
Result<ServerFiles> FindServerFiles(const ServerFileFlags& flags, const std::optional<std::string>& state_variable,
                                    const std::vector<Path>& starts);

// The same with this process's environment, executable and current folder.
Result<ServerFiles> FindServerFiles(const ServerFileFlags& flags);

// The path of the running binary.
Path OwnExecutable();

}  // namespace moonpool::app

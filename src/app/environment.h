// The environment of the process: the only place that asks for it (beside CLI11's own MOONPOOL_* variables). Reads
// only; call before threads start.
#pragma once

#include <optional>
#include <string>

#include "base/file_system.h"

namespace moonpool::app {

// Absent if not set or empty.
std::optional<std::string> EnvironmentValue(const char* name);

// Where state lives unless told otherwise: the service manager's STATE_DIRECTORY, else $XDG_STATE_HOME/moonpool, else
// ~/.local/state/moonpool, else /var/lib/moonpool.
Path DefaultStateRoot();

}  // namespace moonpool::app

// The ctl commands that look into a store directory, also beside a running bus: ls, inspect, verify, rm. Each prints
// to stdout and answers the exit status: 0, or 1 where something was damaged or not found.
#pragma once

#include <string>
#include <vector>

#include "app/object_filter.h"
#include "base/file_system.h"

namespace moonpool::app {

struct StoreCommand {
  Path store;
  bool json = false;
};

Result<int> ListObjects(const StoreCommand& command, const ObjectFilter& filter);
// Everything the header says but the tokens themselves, which are somebody's prompt; `show_tokens` adds them.
Result<int> InspectObjects(const StoreCommand& command, const ObjectFilter& filter, bool show_tokens);
// Reads every byte; damaged objects are quarantined, as the bus itself does.
Result<int> VerifyObjects(const StoreCommand& command, const ObjectFilter& filter);
Result<int> RemoveObjects(const StoreCommand& command, const ObjectFilter& filter, bool dry_run);

}  // namespace moonpool::app

// One --engine on the command line, as text. Two forms:
//   http://127.0.0.1:8081,/dev/shm/slots
//   name=gpu0,url=http://127.0.0.1:8081,slots=/dev/shm/slots0[,model=/path][,projector=/path]
//            [,api-key-file=/path][,router-model=NAME][,epoch=TEXT][,swa-full]
// Names default to HOST:PORT. Pure apart from reading the key file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "bus/core/bus_config.h"
#include "moonpool/result.h"

namespace moonpool::app {

// kInvalidArgument names the part that is wrong; kNotFound, kPermission: the key file.
Result<bus::EngineConfig> ParseEngine(FileSystem& files, std::string_view text);
// All of them; names must differ.
Result<std::vector<bus::EngineConfig>> ParseEngines(FileSystem& files, const std::vector<std::string>& texts);

}  // namespace moonpool::app

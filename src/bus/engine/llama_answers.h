// What llama-server's answers mean: bodies to the bus's types, status codes to its errors. Pure functions over
// untrusted input. Bodies without a field that is needed, or with a value that makes no sense, are kInternal and
// name the field.
#pragma once

#include <string_view>
#include <vector>

#include "bus/engine/inference_engine.h"

namespace moonpool::bus {

inline constexpr uint32_t kSlotsMax = 4096;             // more slots than that is no llama-server
inline constexpr uint64_t kTokensMax = 1ull << 31;      // of a slot or a prompt
inline constexpr uint64_t kStateBytesMax = 1ull << 48;  // of a slot file
inline constexpr double kMillisecondsMax = 1000.0 * 3600 * 24 * 365;

// `incarnation` is the media marker alone. kUnsupported if there is none (a server too old to be recognised after a
// restart).
Result<EngineProps> ParseProps(std::string_view body);
// In order of id; ids are unique.
Result<std::vector<SlotInfo>> ParseSlots(std::string_view body);
Result<std::vector<LoraAdapter>> ParseLoraAdapters(std::string_view body);
Result<std::vector<TokenId>> ParseTokens(std::string_view body);
// kInternal also if the answer speaks of another slot or file than was asked for. `wall` is left to the caller.
Result<SlotSave> ParseSave(std::string_view body, uint32_t slot, std::string_view file_name);
Result<SlotRestore> ParseRestore(std::string_view body, uint32_t slot, std::string_view file_name);
Result<uint64_t> ParseErase(std::string_view body, uint32_t slot);

// The error that an answer other than 200 stands for, with the server's own message if it sent one.
Error ErrorOfStatus(int status, std::string_view body);

}  // namespace moonpool::bus

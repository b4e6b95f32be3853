// Proto3 JSON for the bus's messages, as strict as decision 13c asks: lowerCamelCase is printed, both spellings are
// read, numeric strings too; unknown fields, null elements and duplicate keys are refused, and so is every number that
// does not fit its field. (protobuf's own reader is lenient about all of these.)
//
// Reading is one pass without recursion straight into the message, so 2,000,000 tokens cost their own memory and
// 100,000 brackets cost nothing. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "moonpool/result.h"

namespace google::protobuf {
class Message;
}

namespace moonpool::bus {

struct JsonLimits {
  uint32_t depth_max = 16;  // objects and arrays inside each other
};

// Fills `message`, which must be empty. Understands the field types of proto/kvcache_bus.proto: int32, uint32, double,
// bool, string, enumerations, messages, and repetitions of those. kInvalidArgument names the field, and the index
// within a list ("tokens[17]: -1.5 is not a whole number"); it never repeats text of the request at length.
Result<void> ReadJson(std::string_view text, google::protobuf::Message& message, const JsonLimits& limits = {});

// All fields that have no presence are printed, also where they are zero.
std::string WriteJson(const google::protobuf::Message& message);

}  // namespace moonpool::bus

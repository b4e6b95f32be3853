// RpcCode: the one vocabulary in which both doors say how a call ended. The values are gRPC's; HTTP shows the name in
// its body and maps the code to a status. Pure functions, thread-safe.
#pragma once

#include <string_view>

#include "moonpool/error.h"

namespace moonpool::bus {

enum class RpcCode {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

RpcCode RpcCodeOf(ErrorCode code);
std::string_view RpcCodeName(RpcCode code);  // "INVALID_ARGUMENT"
int HttpStatusOf(RpcCode code);

}  // namespace moonpool::bus

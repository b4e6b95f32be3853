#include "bus/server/rpc_code.h"

namespace moonpool::bus {

RpcCode RpcCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return RpcCode::kInvalidArgument;
    case ErrorCode::kNotFound: return RpcCode::kNotFound;
    case ErrorCode::kAlreadyExists: return RpcCode::kAlreadyExists;
    case ErrorCode::kCorrupt: return RpcCode::kDataLoss;
    case ErrorCode::kUnsupported: return RpcCode::kUnimplemented;
    case ErrorCode::kNoSpace:
    case ErrorCode::kQuota:
    case ErrorCode::kBusy: return RpcCode::kResourceExhausted;
    case ErrorCode::kDeadlineExceeded: return RpcCode::kDeadlineExceeded;
    case ErrorCode::kUnavailable: return RpcCode::kUnavailable;
    case ErrorCode::kPermission: return RpcCode::kPermissionDenied;
    case ErrorCode::kFailedPrecondition: return RpcCode::kFailedPrecondition;
    case ErrorCode::kIo:
    case ErrorCode::kInternal: return RpcCode::kInternal;
  }
  return RpcCode::kInternal;
}

std::string_view RpcCodeName(RpcCode code) {
  switch (code) {
    case RpcCode::kOk: return "OK";
    case RpcCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case RpcCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case RpcCode::kNotFound: return "NOT_FOUND";
    case RpcCode::kAlreadyExists: return "ALREADY_EXISTS";
    case RpcCode::kPermissionDenied: return "PERMISSION_DENIED";
    case RpcCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case RpcCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case RpcCode::kUnimplemented: return "UNIMPLEMENTED";
    case RpcCode::kInternal: return "INTERNAL";
    case RpcCode::kUnavailable: return "UNAVAILABLE";
    case RpcCode::kDataLoss: return "DATA_LOSS";
    case RpcCode::kUnauthenticated: return "UNAUTHENTICATED";
  }
  return "INTERNAL";
}

int HttpStatusOf(RpcCode code) {
  switch (code) {
    case RpcCode::kOk: return 200;
    case RpcCode::kInvalidArgument: return 400;
    case RpcCode::kUnauthenticated: return 401;
    case RpcCode::kPermissionDenied: return 403;
    case RpcCode::kNotFound: return 404;
    case RpcCode::kAlreadyExists:
    case RpcCode::kFailedPrecondition: return 409;
    case RpcCode::kResourceExhausted: return 429;
    case RpcCode::kUnimplemented: return 501;
    case RpcCode::kUnavailable: return 503;
    case RpcCode::kDeadlineExceeded: return 504;
    case RpcCode::kInternal:
    case RpcCode::kDataLoss: return 500;
  }
  return 500;
}

}  // namespace moonpool::bus

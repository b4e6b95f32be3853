// Error: what every fallible operation of Moonpool returns instead of throwing.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace moonpool {

// A code exists only if some caller reacts to it differently; everything else is in the message.
enum class ErrorCode {
  kInvalidArgument,     // the caller's input is wrong; repeating it cannot help
  kNotFound,            // the named thing does not exist
  kAlreadyExists,       // somebody was faster, or the name is taken
  kCorrupt,             // bytes do not match their checksum, size or structure
  kUnsupported,         // well-formed, but of a kind this build or peer cannot handle
  kNoSpace,             // the file system is full
  kQuota,               // our own byte or entry budget is spent
  kIo,                  // the file system failed in another way
  kBusy,                // held by somebody else; may be tried again later
  kDeadlineExceeded,    // the time allowed is over
  kUnavailable,         // the peer does not answer or went away
  kPermission,          // not authenticated or not allowed
  kFailedPrecondition,  // the state of the peer or slot does not allow it
  kInternal,            // a bug or an injected fault
};

// Lower-case words, for logs and metric labels ("no_space").
std::string_view ErrorCodeName(ErrorCode code);

// A value: what went wrong and a sentence for a person, naming the thing and the next step.
struct Error {
  ErrorCode code;
  std::string message;

  std::string ToString() const;
};

// The same error, with the context in which it happened put in front of its message.
inline Error WithContext(Error error, std::string_view context) {
  error.message.insert(0, ": ").insert(0, context);
  return error;
}

}  // namespace moonpool

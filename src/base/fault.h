// Fault points: named places where a test makes an operation fail. Compiled out unless MOONPOOL_FAULTS.
//
//   MP_FAULT("blobs.publish.before_header");     // in a function that returns Result<...>
//
// Two drivers: FailNth() makes the n-th point reached fail (a test repeats with n = 1, 2, 3 ... until none
// fires), and the environment variable MOONPOOL_FAULT, read once by the binary's main, "NAME:exit" (the
// process ends at once with status 86, as after a kill) or "NAME:fail" (that point always fails).
// Process-wide by nature: a fault may hit any thread. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moonpool/result.h"

namespace moonpool::fault {

inline constexpr int kExitStatus = 86;

// The n-th point reached from now on (1 = the next) fails with `code`; 0 disarms.
void FailNth(uint64_t n, ErrorCode code = ErrorCode::kIo);
// Every pass of the point `name` fails with `code`.
void FailAt(std::string_view name, ErrorCode code = ErrorCode::kIo);
// The process ends at the point `name`, without running anything else.
void ExitAt(std::string_view name);
void Disarm();
// Whether an armed fault has fired since it was armed, and where.
std::optional<std::string> Fired();
// Names of all points passed since the last Disarm(), each once, in order of first pass.
std::vector<std::string> Passed();
// Applies "NAME:exit" or "NAME:fail"; an error for anything else.
Result<void> Apply(std::string_view specification);

// Used by the macro.
std::optional<Error> Reach(const char* name);

}  // namespace moonpool::fault

#if defined(MOONPOOL_FAULTS)
#define MP_FAULT(name)                                                                        \
  do {                                                                                        \
    if (auto mp_fault_ = ::moonpool::fault::Reach(name)) return ::moonpool::Fail(*mp_fault_); \
  } while (false)
#else
#define MP_FAULT(name) \
  do {                 \
  } while (false)
#endif

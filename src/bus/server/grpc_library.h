// The gRPC headers for tests. Included through here because they bring Abseil's thread-annotation macros, which have
// the names of ours and mean the same: base/mutex.h must come first, and then theirs, a system header, may redefine.
#pragma once

#include "base/mutex.h"
// clang-format off
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
// clang-format on

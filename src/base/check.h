// MP_CHECK: programmer mistakes end the process, in release builds too. Never used on input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define MP_CHECK(condition)                                                                   \
  do {                                                                                        \
    if (!(condition)) [[unlikely]] {                                                          \
      std::fprintf(stderr, "MP_CHECK failed: %s at %s:%d\n", #condition, __FILE__, __LINE__); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)

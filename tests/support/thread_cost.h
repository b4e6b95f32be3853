// ThreadCost: what a piece of work costs this thread: processor time (other processes do not count) and the growth
// of the process's resident memory. For bounds that a loaded machine must not break.
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

namespace moonpool::testing {

inline double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Highest resident memory since the last ResetPeakBytes(), in bytes; 0 if the kernel does not tell.
inline long PeakResidentBytes() {
  long kib = 0;
  if (FILE* status = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, status) != nullptr) {
      if (std::sscanf(line, "VmHWM: %ld kB", &kib) == 1) break;
    }
    std::fclose(status);
  }
  return kib * 1024;
}

inline void ResetPeakBytes() {
  malloc_trim(0);
  if (FILE* clear = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", clear);
    std::fclose(clear);
  }
}

struct Cost {
  double seconds = 0;
  long peak_growth_bytes = 0;
};

template <class Work>
Cost CostOf(Work&& work) {
  ResetPeakBytes();
  const long before_bytes = PeakResidentBytes();
  const double begin = ThreadSeconds();
  work();
  return {ThreadSeconds() - begin, PeakResidentBytes() - before_bytes};
}

// The median of `runs` measurements of thread processor time.
template <class Work>
double MedianSeconds(int runs, Work&& work) {
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    const double begin = ThreadSeconds();
    work();
    seconds.push_back(ThreadSeconds() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
  return seconds[static_cast<size_t>(runs / 2)];
}

}  // namespace moonpool::testing

#include "app/swarm/machine.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "app/swarm/embedded_files.h"

namespace moonpool::app {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

double LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace

Machine Machine::Here() {
  return {.cpu = CpuModel(),
          .cores = std::thread::hardware_concurrency(),
          .load_average = LoadAverage(),
          .commit = std::string(SourceCommit())};
}

void Machine::NoteEnd() { load_average_end = LoadAverage(); }

std::string Machine::Describe() const {
  return fmt::format("{}, {} cores, load average {:.2f} before and {:.2f} after, commit {}", cpu, cores, load_average,
                     load_average_end, commit);
}

}  // namespace moonpool::app

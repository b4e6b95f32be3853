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

}  // namespace

Machine Machine::Here() {
  Machine machine{.cpu = CpuModel(), .cores = std::thread::hardware_concurrency()};
  double load = 0;
  if (getloadavg(&load, 1) == 1) machine.load_average = load;
  machine.commit = SourceCommit();
  return machine;
}

std::string Machine::Describe() const {
  return fmt::format("{}, {} cores, load average {:.2f}, commit {}", cpu, cores, load_average, commit);
}

}  // namespace moonpool::app

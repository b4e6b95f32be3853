// BenchRow: one figure of a benchmark with what it is held against; BenchReport: all of them, as a table and as JSON.
// Values; pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/swarm/machine.h"

namespace moonpool::app {

struct BenchRow {
  std::string name{};    // "swarm.tokens.6"
  double value = 0;      // what was measured
  std::string unit{};    // of value and reference
  double reference = 0;  // what it is compared with
  double ratio = 0;      // the figure that the bar is for
  double bar = 0;
  bool pass = false;
  std::string note{};  // "too noisy", or what else a reader must know
};

// Rows whose ratio is value / reference.
BenchRow AtMost(std::string name, double value, std::string unit, double reference, double bar);
BenchRow AtLeast(std::string name, double value, std::string unit, double reference, double bar);
BenchRow Exactly(std::string name, double value, std::string unit, double reference);

// Spread of the ideal above which throughput figures say nothing.
inline constexpr double kIdealSpreadMax = 0.10;
// The throughput of a swarm against its ideal, from pairs that were measured alternately: the median of the paired
// ratios ideal / measured counts. `walls_ms` and `ideals_ms` have one element per pair. If the ideal itself spreads by
// more than kIdealSpreadMax the row says "too noisy" and is no pass.
BenchRow AgainstIdeal(std::string name, const std::vector<double>& walls_ms, const std::vector<double>& ideals_ms,
                      double bar);

struct BenchReport {
  std::string bench{};
  Machine machine{};
  std::vector<BenchRow> rows{};

  bool AllPass() const;
  std::string Table() const;
  // {bench, commit, machine {cpu, cores, load_average, load_average_end}, rows [{name, value, unit, reference, ratio,
  // bar, pass}]}; a row with a note has that too.
  nlohmann::ordered_json Json() const;
};

}  // namespace moonpool::app

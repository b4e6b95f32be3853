// prepare.added: what a Prepare that hits costs beyond the server's own restore. Function without state.
#pragma once

#include <vector>

#include "app/bench_row.h"
#include "app/bench_scene.h"
#include "bus/core/bus_types.h"

namespace moonpool::app {

// What one Prepare may add to a bare restore: one pass of reading and XXH3 over the same file, and this.
inline constexpr double kPrepareSlackMs = 10;

// Each repeat measures, on one server and right after each other, a bare restore of a state file, one pass of reading
// and XXH3 over it, and a Prepare that restores the same tokens. The row's reference is what may be added. Uses servers
// 0 and 1.
Result<BenchRow> MeasurePrepare(const BenchOptions& options, BenchScene scene);

// One element per repeat, milliseconds; `phases` is what the bus says of its own time, for the row's note, or empty.
struct PrepareTimes {
  std::vector<double> prepares{};
  std::vector<double> restores{};
  std::vector<double> passes{};
  std::vector<bus::PhaseTimes> phases{};
};

// The pure part.
BenchRow PrepareRow(const PrepareTimes& times);

}  // namespace moonpool::app

// prepare.added: what a Prepare that hits costs beyond the server's own restore. Function without state.
#pragma once

#include "app/bench_row.h"
#include "app/bench_scene.h"

namespace moonpool::app {

// What one Prepare may add to a bare restore: one pass of reading and XXH3 over the same file, and this.
inline constexpr double kPrepareSlackMs = 10;

// Each repeat measures, on one server and right after each other, a bare restore of a state file, one pass of reading
// and XXH3 over it, and a Prepare that restores the same tokens. The row's reference is what may be added. Uses servers
// 0 and 1.
Result<BenchRow> MeasurePrepare(const BenchOptions& options, BenchScene scene);

// The pure part. One element per repeat, milliseconds.
BenchRow PrepareRow(const std::vector<double>& prepares, const std::vector<double>& restores,
                    const std::vector<double>& passes);

}  // namespace moonpool::app

#include "app/bench_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/swarm/figures.h"
#include "app/text_table.h"
#include "base/check.h"

namespace moonpool::app {
namespace {

BenchRow Compared(std::string name, double value, std::string unit, double reference, double bar) {
  return {.name = std::move(name),
          .value = value,
          .unit = std::move(unit),
          .reference = reference,
          .ratio = value / reference,
          .bar = bar};
}

// Counts without a point, everything else with three digits that mean something.
std::string Number(double value) {
  return value == static_cast<double>(static_cast<int64_t>(value)) ? fmt::format("{:.0f}", value)
                                                                   : fmt::format("{:.3f}", value);
}

}  // namespace

BenchRow AtMost(std::string name, double value, std::string unit, double reference, double bar) {
  BenchRow row = Compared(std::move(name), value, std::move(unit), reference, bar);
  row.pass = row.ratio <= bar;
  return row;
}

BenchRow AtLeast(std::string name, double value, std::string unit, double reference, double bar) {
  BenchRow row = Compared(std::move(name), value, std::move(unit), reference, bar);
  row.pass = row.ratio >= bar;
  return row;
}

BenchRow Exactly(std::string name, double value, std::string unit, double reference) {
  BenchRow row = Compared(std::move(name), value, std::move(unit), reference, 1);
  row.pass = value == reference;
  return row;
}

BenchRow AgainstIdeal(std::string name, const std::vector<double>& walls_ms, const std::vector<double>& ideals_ms,
                      double bar) {
  MP_CHECK(!walls_ms.empty() && walls_ms.size() == ideals_ms.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < walls_ms.size(); ++i) ratios.push_back(ideals_ms[i] / walls_ms[i]);
  BenchRow row{.name = std::move(name),
               .value = Median(walls_ms),
               .unit = "ms",
               .reference = Median(ideals_ms),
               .ratio = Median(ratios),
               .bar = bar};
  row.pass = row.ratio >= bar;
  if (const double spread = Spread(ideals_ms); spread > kIdealSpreadMax) {
    row.pass = false;
    row.note = fmt::format("too noisy: the ideal spreads by {:.0f} %", spread * 100);
  }
  return row;
}

bool BenchReport::AllPass() const {
  return std::ranges::all_of(rows, [](const BenchRow& row) { return row.pass; });
}

std::string BenchReport::Table() const {
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table(
      {{"row"}, {"value", kRight}, {"unit"}, {"reference", kRight}, {"ratio", kRight}, {"bar", kRight}, {""}, {""}});
  for (const BenchRow& row : rows) {
    table.Add({row.name, Number(row.value), row.unit, Number(row.reference), fmt::format("{:.4f}", row.ratio),
               Number(row.bar), row.pass ? "pass" : "MISS", row.note});
  }
  return table.Text();
}

nlohmann::ordered_json BenchReport::Json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    nlohmann::ordered_json entry = {
        {"name", row.name},   {"value", row.value}, {"unit", row.unit}, {"reference", row.reference},
        {"ratio", row.ratio}, {"bar", row.bar},     {"pass", row.pass}};
    if (!row.note.empty()) entry["note"] = row.note;
    list.push_back(std::move(entry));
  }
  return {{"bench", bench},
          {"commit", machine.commit},
          {"machine",
           {{"cpu", machine.cpu},
            {"cores", machine.cores},
            {"load_average", machine.load_average},
            {"load_average_end", machine.load_average_end}}},
          {"rows", std::move(list)}};
}

}  // namespace moonpool::app

#include "app/demo_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/swarm/figures.h"
#include "app/text_table.h"

namespace moonpool::app {
namespace {

std::string OutOf(uint64_t count, size_t all) { return fmt::format("{} of {}", count, all); }

uint64_t Equal(const DemoColumn& column) { return static_cast<uint64_t>(std::ranges::count(column.text_equal, true)); }

nlohmann::ordered_json ColumnJson(const DemoColumn& column) {
  return {{"prefill_tokens", column.round.EvaluatedTokens()},
          {"ttft_ms_mean", column.round.TtftMsMean()},
          {"ttft_ms_p95", column.round.TtftMsP95()},
          {"wall_ms", ToMs(column.round.wall)},
          {"hits", column.round.Hits()}};
}

}  // namespace

bool DemoReport::TextsEqual() const {
  return std::ranges::all_of(std::vector{&none, &own, &bus}, [](const DemoColumn* column) {
    return std::ranges::all_of(column->text_equal, [](bool equal) { return equal; });
  });
}

std::string DemoReport::Table() const {
  const size_t agents = bus.round.agents.size();
  std::string out = fmt::format(
      "{} agents share a context of {} tokens, each adds up to {} of its own; they alternate over {} servers.\n\n",
      agents, WithThousands(context_tokens), tail_tokens, servers);

  constexpr auto kRight = TextTable::Align::kRight;
  TextTable sums({{""}, {"none", kRight}, {"own", kRight}, {"bus", kRight}, {"ideal", kRight}});
  const auto row = [&](const char* name, const auto& figure, std::string ideal = "") {
    sums.Add({name, figure(none), figure(own), figure(bus), std::move(ideal)});
  };
  row("prefill tokens", [](const DemoColumn& c) { return WithThousands(c.round.EvaluatedTokens()); });
  row("TTFT, mean", [](const DemoColumn& c) { return WithTimeUnit(c.round.TtftMsMean()); });
  row("TTFT, p95", [](const DemoColumn& c) { return WithTimeUnit(c.round.TtftMsP95()); });
  row(
      "wall time", [](const DemoColumn& c) { return WithTimeUnit(ToMs(c.round.wall)); },
      WithTimeUnit(ToMs(ideal_wall)));
  row("hits", [&](const DemoColumn& c) { return OutOf(c.round.Hits(), agents); });
  row("texts equal", [&](const DemoColumn& c) { return OutOf(Equal(c), agents); });
  out += sums.Text();
  out += fmt::format(
      "\nnone: slots are erased before every agent    own: servers keep what they have\n"
      "bus: as none, but with moonpool bus          ideal: the context is evaluated once, then everybody has it\n"
      "texts equal: as the same server writes without restoring anything (docs/operations/benchmarks.md)\n"
      "The bus column may evaluate {} tokens: the context once, each tail, one per agent.\n\n",
      WithThousands(evaluation_bound));

  TextTable each({{"with the bus"},
                  {"server"},
                  {"decision"},
                  {"promised", kRight},
                  {"reused", kRight},
                  {"evaluated", kRight},
                  {"TTFT", kRight},
                  {"text"}});
  for (size_t agent = 0; agent < agents; ++agent) {
    const AgentRun& run = bus.round.agents[agent];
    each.Add({fmt::format("agent {}", agent + 1), std::string(1, static_cast<char>('a' + agent % servers)),
              run.decision, WithThousands(run.promised_tokens), WithThousands(run.cached_tokens),
              WithThousands(run.evaluated_tokens), WithTimeUnit(ToMs(run.first_token_after)),
              bus.text_equal[agent] ? "equal" : "DIFFERS"});
  }
  return out + each.Text();
}

nlohmann::ordered_json DemoReport::Json() const {
  return {{"agents", bus.round.agents.size()}, {"context_tokens", context_tokens}, {"tail_tokens", tail_tokens},
          {"without_bus", ColumnJson(none)},   {"own", ColumnJson(own)},           {"with_bus", ColumnJson(bus)},
          {"ideal_wall_ms", ToMs(ideal_wall)}, {"texts_equal", TextsEqual()}};
}

}  // namespace moonpool::app

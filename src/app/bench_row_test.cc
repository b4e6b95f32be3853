#include "app/bench_row.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/bench_flight.h"
#include "app/bench_prepare.h"

namespace moonpool::app {
namespace {

TEST(BenchRow, ABarIsMetUpToAndIncludingIt) {
  EXPECT_TRUE(AtMost("x", 100, "tokens", 100, 1).pass);
  EXPECT_FALSE(AtMost("x", 101, "tokens", 100, 1).pass);
  EXPECT_TRUE(AtLeast("x", 95, "ms", 100, 0.95).pass);
  EXPECT_FALSE(AtLeast("x", 94, "ms", 100, 0.95).pass);
  EXPECT_TRUE(Exactly("x", 1, "prefills", 1).pass);
  EXPECT_FALSE(Exactly("x", 0, "prefills", 1).pass);
  EXPECT_DOUBLE_EQ(AtMost("x", 50, "tokens", 100, 1).ratio, 0.5);
}

TEST(BenchRow, TheMedianOfPairedRatiosCounts) {
  // Median walls would say 1000 / 1000; the pairs say otherwise.
  const BenchRow row = AgainstIdeal("swarm.ideal.6", {1000, 1100, 900}, {990, 1000, 1010}, 0.95);
  EXPECT_DOUBLE_EQ(row.ratio, 0.99);
  EXPECT_DOUBLE_EQ(row.value, 1000);
  EXPECT_DOUBLE_EQ(row.reference, 1000);
  EXPECT_TRUE(row.pass);
  EXPECT_TRUE(row.note.empty());
}

TEST(BenchRow, AnIdealThatSpreadsIsTooNoisyAndNoPass) {
  const BenchRow noisy = AgainstIdeal("swarm.ideal.6", {1000, 1000, 1000}, {1000, 1111, 1000}, 0.95);
  EXPECT_GE(noisy.ratio, 0.95);
  EXPECT_FALSE(noisy.pass);
  EXPECT_TRUE(noisy.note.starts_with("too noisy")) << noisy.note;
  EXPECT_TRUE(AgainstIdeal("swarm.ideal.6", {1000, 1000, 1000}, {1000, 1100, 1000}, 0.95).pass);
}

TEST(BenchReport, JsonRowsHaveTheAgreedFields) {
  BenchReport report{.bench = "swarm",
                     .machine = {.cpu = "some cpu", .cores = 2, .load_average = 0.5, .commit = "abc"},
                     .rows = {AtMost("swarm.tokens.1", 10, "tokens", 20, 1), Exactly("flight.prefills", 2, "", 1)}};
  report.rows[1].note = "why";
  const nlohmann::json json = report.Json();
  EXPECT_EQ(json["commit"], "abc");
  EXPECT_EQ(json["machine"]["cores"], 2);
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0], nlohmann::json({{"name", "swarm.tokens.1"},
                                             {"value", 10.0},
                                             {"unit", "tokens"},
                                             {"reference", 20.0},
                                             {"ratio", 0.5},
                                             {"bar", 1.0},
                                             {"pass", true}}));
  EXPECT_EQ(json["rows"][1]["pass"], false);
  EXPECT_EQ(json["rows"][1]["note"], "why");
  EXPECT_FALSE(report.AllPass());
  report.rows.pop_back();
  EXPECT_TRUE(report.AllPass());
  EXPECT_NE(report.Table().find("swarm.tokens.1"), std::string::npos);
}

TEST(PrepareRow, AllowsOnePassAndTenMilliseconds) {
  PrepareTimes times{.prepares = {80, 85, 79}, .restores = {50, 50, 50}, .passes = {20, 20, 20}};
  const BenchRow good = PrepareRow(times);
  EXPECT_DOUBLE_EQ(good.value, 30);
  EXPECT_DOUBLE_EQ(good.reference, 30);
  EXPECT_DOUBLE_EQ(good.ratio, 1);
  EXPECT_TRUE(good.pass);
  times.prepares[0] = 81;
  EXPECT_FALSE(PrepareRow(times).pass);
}

TEST(PrepareRow, NamesTheBussOwnPhases) {
  const BenchRow row =
      PrepareRow({.prepares = {80}, .restores = {50}, .passes = {20}, .phases = {{.fetch_ms = 7.5, .restore_ms = 51}}});
  EXPECT_NE(row.note.find("fetch 7.5"), std::string::npos) << row.note;
  EXPECT_NE(row.note.find("restore 51.0"), std::string::npos) << row.note;
}

class FlightRowsTest : public ::testing::Test {
 protected:
  static AgentRun Agent(const char* decision, uint64_t evaluated, int ttft_ms) {
    AgentRun run;
    run.decision = decision;
    run.evaluated_tokens = evaluated;
    run.first_token_after = std::chrono::milliseconds(ttft_ms);
    return run;
  }
  static SwarmRound Round(std::vector<AgentRun> agents) { return {.agents = std::move(agents), .wall = {}}; }

  const SwarmPrompts prompts_{.context = std::vector<TokenId>(1000), .tails = {{1}, {1, 2}, {1, 2, 3}}};
};

TEST_F(FlightRowsTest, OneLeaderAndTwoThatRestore) {
  const auto rows =
      FlightRows({Round({Agent("RESTORE", 2, 1050), Agent("LEAD", 1003, 1000), Agent("RESTORE", 3, 1080)})}, prompts_);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "flight.prefills");
  EXPECT_DOUBLE_EQ(rows[0].value, 1);
  EXPECT_TRUE(rows[0].pass);
  EXPECT_EQ(rows[1].name, "flight.ttft");
  EXPECT_DOUBLE_EQ(rows[1].ratio, 1.08);
  EXPECT_TRUE(rows[1].pass);
}

TEST_F(FlightRowsTest, OneRepeatWithASecondPrefillIsEnoughToMiss) {
  const SwarmRound good = Round({Agent("LEAD", 1002, 1000), Agent("RESTORE", 3, 1080), Agent("RESTORE", 3, 1080)});
  const SwarmRound bad = Round({Agent("LEAD", 1002, 1000), Agent("RECOMPUTE", 300, 1300), Agent("RESTORE", 3, 1080)});
  const auto rows = FlightRows({good, bad, good}, prompts_);
  EXPECT_DOUBLE_EQ(rows[0].value, 2);
  EXPECT_FALSE(rows[0].pass);
  EXPECT_DOUBLE_EQ(rows[1].ratio, 1.08) << "times are medians";
}

TEST_F(FlightRowsTest, WithoutALeaderTheFastestIsTheFirst) {
  const auto rows = FlightRows(
      {Round({Agent("BYPASS", 1001, 2000), Agent("BYPASS", 1002, 1000), Agent("BYPASS", 1003, 3000)})}, prompts_);
  EXPECT_DOUBLE_EQ(rows[0].value, 3);
  EXPECT_DOUBLE_EQ(rows[1].ratio, 3);
  EXPECT_FALSE(rows[1].pass);
}

}  // namespace
}  // namespace moonpool::app

#include "app/demo_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace moonpool::app {
namespace {

DemoColumn Column(const char* decision, uint64_t evaluated, uint64_t cached, uint64_t promised) {
  DemoColumn column;
  for (int agent = 0; agent < 3; ++agent) {
    AgentRun run;
    run.decision = decision;
    run.evaluated_tokens = evaluated;
    run.cached_tokens = cached;
    run.promised_tokens = promised;
    run.first_token_after = std::chrono::milliseconds(100 * (agent + 1));
    run.wall = std::chrono::milliseconds(500);
    column.round.wall += run.wall;
    column.round.agents.push_back(run);
    column.text_equal.push_back(true);
  }
  return column;
}

DemoReport Report() {
  DemoReport report{.context_tokens = 2000, .tail_tokens = 14, .evaluation_bound = 2043, .servers = 2};
  report.none = Column("-", 2010, 0, 0);
  report.own = Column("-", 10, 2000, 0);
  report.bus = Column("RESTORE", 11, 2001, 1792);
  report.ideal_wall = std::chrono::milliseconds(1234);
  return report;
}

TEST(DemoReport, JsonHasExactlyTheAgreedFields) {
  const nlohmann::json json = Report().Json();
  const auto names = [](const nlohmann::json& object) {
    std::set<std::string> all;
    for (const auto& [name, value] : object.items()) all.insert(name);
    return all;
  };
  EXPECT_EQ(names(json), (std::set<std::string>{"agents", "context_tokens", "tail_tokens", "without_bus", "own",
                                                "with_bus", "ideal_wall_ms", "texts_equal"}));
  for (const char* column : {"without_bus", "own", "with_bus"}) {
    EXPECT_EQ(names(json[column]),
              (std::set<std::string>{"prefill_tokens", "ttft_ms_mean", "ttft_ms_p95", "wall_ms", "hits"}));
  }
  EXPECT_EQ(json["agents"], 3);
  EXPECT_EQ(json["context_tokens"], 2000);
  EXPECT_EQ(json["tail_tokens"], 14);
  EXPECT_EQ(json["without_bus"]["prefill_tokens"], 6030);
  EXPECT_EQ(json["without_bus"]["hits"], 0);
  EXPECT_EQ(json["own"]["hits"], 3);
  EXPECT_EQ(json["with_bus"]["hits"], 3);
  EXPECT_DOUBLE_EQ(json["with_bus"]["ttft_ms_mean"], 200);
  EXPECT_DOUBLE_EQ(json["with_bus"]["ttft_ms_p95"], 300);
  EXPECT_DOUBLE_EQ(json["with_bus"]["wall_ms"], 1500);
  EXPECT_DOUBLE_EQ(json["ideal_wall_ms"], 1234);
  EXPECT_EQ(json["texts_equal"], true);
}

TEST(DemoReport, OneTextThatDiffersInAnyColumnShows) {
  for (DemoColumn DemoReport::*column : {&DemoReport::none, &DemoReport::own, &DemoReport::bus}) {
    DemoReport report = Report();
    (report.*column).text_equal[1] = false;
    EXPECT_FALSE(report.TextsEqual());
    EXPECT_EQ(report.Json()["texts_equal"], false);
    EXPECT_NE(report.Table().find("2 of 3"), std::string::npos);
  }
}

TEST(DemoReport, TableShowsEveryColumnAndAgent) {
  const std::string table = Report().Table();
  for (const char* text :
       {"none", "own", "bus", "ideal", "6,030", "1.23 s", "3 of 3", "agent 3", "RESTORE", "1,792", "2,043 tokens"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << "\n" << table;
  }
  EXPECT_EQ(table.find("DIFFERS"), std::string::npos);
}

}  // namespace
}  // namespace moonpool::app

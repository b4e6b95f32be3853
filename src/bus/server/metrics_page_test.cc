// The metrics page under a strict parser (field reports B57 and B58).
#include "bus/server/metrics_page.h"

#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bus/server/door_fixture.h"

namespace moonpool::testing {
namespace {

using bus::MetricsInput;
using bus::RenderMetrics;

// The text format 0.0.4, to the letter: every family with HELP then TYPE, then its samples and nothing else's; names,
// labels and escapes as written down; no series twice; counters and histogram counts finite and never negative;
// buckets that grow up to +Inf, which equals the count.
class StrictPage {
 public:
  explicit StrictPage(const std::string& text) {
    EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line must end";
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      Line(text.substr(begin, end - begin));
      begin = end + 1;
    }
    EndFamily();
  }

  bool Has(const std::string& series) const { return samples_.contains(series); }
  // NaN if absent, which equals nothing.
  double Value(const std::string& series) const { return Has(series) ? samples_.at(series) : std::nan(""); }
  size_t size() const { return samples_.size(); }
  const std::map<std::string, double>& samples() const { return samples_; }
  const std::map<std::string, std::string>& types() const { return types_; }

 private:
  static bool IsName(const std::string& name, bool colon) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
    for (const char c : name) {
      const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      if (!fits && !(colon && c == ':')) return false;
    }
    return true;
  }

  void Line(const std::string& line) {
    ASSERT_FALSE(line.empty()) << "an empty line";
    if (line.starts_with("# HELP ")) {
      EndFamily();
      const size_t blank = line.find(' ', 7);
      family_ = line.substr(7, blank - 7);
      EXPECT_TRUE(IsName(family_, true)) << line;
      EXPECT_TRUE(blank != line.npos && blank + 1 < line.size()) << "no help: " << line;
      EXPECT_FALSE(types_.contains(family_)) << "a family twice: " << line;
      return;
    }
    if (line.starts_with("# TYPE ")) {
      const std::string rest = line.substr(7);
      ASSERT_TRUE(rest.starts_with(family_ + " ")) << line;
      const std::string type = rest.substr(family_.size() + 1);
      EXPECT_TRUE(type == "counter" || type == "gauge" || type == "histogram") << line;
      EXPECT_TRUE(types_.emplace(family_, type).second) << line;
      EXPECT_EQ(type == "counter", family_.ends_with("_total")) << family_;
      return;
    }
    ASSERT_FALSE(line.starts_with("#")) << line;
    Sample(line);
  }

  void Sample(const std::string& line) {
    size_t at = line.find_first_of("{ ");
    ASSERT_NE(at, line.npos) << line;
    const std::string name = line.substr(0, at);
    ASSERT_TRUE(types_.contains(family_)) << line;
    const std::string& type = types_[family_];
    const std::string suffix = name.starts_with(family_) ? name.substr(family_.size()) : "?";
    ASSERT_TRUE(type == "histogram" ? suffix == "_bucket" || suffix == "_sum" || suffix == "_count" : suffix.empty())
        << line;
    std::map<std::string, std::string> labels;
    if (line[at] == '{') {
      ASSERT_NO_FATAL_FAILURE(Labels(line, ++at, labels));
    }
    ASSERT_EQ(line[at], ' ') << line;
    const std::string number = line.substr(at + 1);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    ASSERT_TRUE(!number.empty() && *end == '\0') << line;
    EXPECT_TRUE(std::isfinite(value)) << line;
    EXPECT_GE(value, 0) << line;
    EXPECT_TRUE(samples_.emplace(line.substr(0, at), value).second) << "a series twice: " << line;
    if (type != "histogram") return;

    const std::string le = labels.contains("le") ? labels["le"] : "";
    EXPECT_EQ(!le.empty(), suffix == "_bucket") << line;
    labels.erase("le");
    std::string key;
    for (const auto& [label, text] : labels) key += label + "=" + text + ",";
    Histogram& histogram = histograms_[key];
    if (suffix == "_bucket") {
      const double bound = le == "+Inf" ? HUGE_VAL : std::strtod(le.c_str(), nullptr);
      EXPECT_GT(bound, histogram.bound) << line;
      EXPECT_GE(value, histogram.cumulative) << line;
      histogram.bound = bound;
      histogram.cumulative = value;
    } else if (suffix == "_count") {
      histogram.count = value;
    }
  }

  static void Labels(const std::string& line, size_t& at, std::map<std::string, std::string>& labels) {
    while (true) {
      const size_t equals = line.find('=', at);
      ASSERT_NE(equals, line.npos) << line;
      const std::string name = line.substr(at, equals - at);
      EXPECT_TRUE(IsName(name, false)) << line;
      at = equals + 1;
      ASSERT_EQ(line[at], '"') << line;
      std::string value;
      for (++at; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\') {
          ++at;
          ASSERT_TRUE(at < line.size() && (line[at] == '\\' || line[at] == '"' || line[at] == 'n')) << line;
        }
        value += line[at];
      }
      ASSERT_LT(at, line.size()) << line;
      // nlohmann checks UTF-8 strictly.
      EXPECT_NO_THROW(nlohmann::json(value).dump()) << "not UTF-8";
      EXPECT_TRUE(labels.emplace(name, value).second) << line;
      ++at;
      if (at < line.size() && line[at] == ',') {
        ++at;
        continue;
      }
      ASSERT_TRUE(at < line.size() && line[at] == '}') << line;
      ++at;
      return;
    }
  }

  void EndFamily() {
    for (const auto& [key, histogram] : histograms_) {
      EXPECT_EQ(histogram.bound, HUGE_VAL) << family_ << " " << key;
      EXPECT_EQ(histogram.cumulative, histogram.count) << family_ << " " << key;
    }
    histograms_.clear();
  }

  struct Histogram {
    double bound = -HUGE_VAL;
    double cumulative = 0;
    double count = -1;
  };
  std::string family_;
  std::map<std::string, Histogram> histograms_;  // of the family that is being read
  std::map<std::string, std::string> types_;
  std::map<std::string, double> samples_;
};

TEST(StrictPage, IsStrict) {
  const auto fails = [](const std::string& text) {
    ::testing::TestPartResultArray failures;
    {
      ::testing::ScopedFakeTestPartResultReporter intercept(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      StrictPage page(text);
    }
    return failures.size() > 0;
  };
  const std::string head = "# HELP a_total h\n# TYPE a_total counter\n";
  EXPECT_FALSE(fails(head + "a_total{x=\"\\\\\\\"\\n\"} 1\n"));
  for (const char* bad : {"a_total 1", "b_total 1\n", "a_total -1\n", "a_total NaN\n", "a_total\n",
                          "a_total{x=\"\\x\"} 1\n", "a_total{x=\"} 1\n", "a_total{x=\"\xff\"} 1\n",
                          "a_total{1x=\"\"} 1\n", "a_total 1\na_total 1\n", "a_total{x=\"a\nb\"} 1\n", "\n"}) {
    EXPECT_TRUE(fails(head + bad)) << bad;
  }
  EXPECT_TRUE(fails("a_total 1\n"));
}

bus::EngineStatus Engine(std::string name, std::string state) {
  bus::EngineStatus engine;
  engine.name = std::move(name);
  engine.state = std::move(state);
  engine.total_slots = 4;
  return engine;
}

TEST(MetricsPage, IsAllZerosAtTheStart) {
  MetricsInput input;
  input.store = bus::StoreStats{};
  const StrictPage page(RenderMetrics(input));
  EXPECT_EQ(page.Value("moonpool_prefill_tokens_saved_total"), 0);
  EXPECT_GT(page.size(), 100u);
  for (const auto& [series, value] : page.samples()) {
    EXPECT_EQ(value, series.starts_with("moonpool_build_info") ? 1 : 0) << series;
  }
}

TEST(MetricsPage, ShowsEveryCount) {
  MetricsInput input;
  input.counts.prefill_tokens_saved_total = 4096;
  input.counts.decisions[{"RESTORE", "hit"}] = 3;
  input.counts.commits[{"PUBLISHED", "published"}] = 2;
  input.counts.failures["corrupt"] = 1;
  bus::BusCounters counters;
  counters.Observed(bus::Phase::kRestore, 3);       // milliseconds
  counters.Observed(bus::Phase::kRestore, 70'000);  // above the last bucket
  input.counts.phases = counters.Snapshot().phases;
  input.engines = {Engine("gpu0", "ready"), Engine("gpu1", "suspect")};
  input.store = bus::StoreStats{.objects = 7, .bytes = 1ull << 40};
  input.ready = true;
  const StrictPage page(RenderMetrics(input));
  EXPECT_EQ(page.Value("moonpool_prefill_tokens_saved_total"), 4096);
  EXPECT_EQ(page.Value(R"(moonpool_decisions_total{decision="RESTORE",reason="hit"})"), 3);
  EXPECT_EQ(page.Value(R"(moonpool_commits_total{status="PUBLISHED",reason="published"})"), 2);
  EXPECT_EQ(page.Value(R"(moonpool_restore_failures_total{reason="corrupt"})"), 1);
  EXPECT_EQ(page.Value(R"(moonpool_phase_seconds_count{phase="restore"})"), 2);
  EXPECT_EQ(page.Value(R"(moonpool_phase_seconds_bucket{phase="restore",le="0.005"})"), 1);
  EXPECT_EQ(page.Value(R"(moonpool_phase_seconds_bucket{phase="restore",le="0.0025"})"), 0);
  EXPECT_NEAR(page.Value(R"(moonpool_phase_seconds_sum{phase="restore"})"), 70.003, 1e-9);
  EXPECT_EQ(page.Value(R"(moonpool_engine_state{engine="gpu0",state="ready"})"), 1);
  EXPECT_EQ(page.Value(R"(moonpool_engine_state{engine="gpu1",state="ready"})"), 0);
  EXPECT_EQ(page.Value(R"(moonpool_engine_state{engine="gpu1",state="suspect"})"), 1);
  EXPECT_EQ(page.Value(R"(moonpool_engine_slots{engine="gpu0"})"), 4);
  EXPECT_EQ(page.Value("moonpool_store_objects"), 7);
  EXPECT_EQ(page.Value("moonpool_store_bytes"), 1099511627776.0);
  EXPECT_EQ(page.Value("moonpool_ready"), 1);
}

TEST(MetricsPage, ShowsLargeCountsExactly) {
  MetricsInput input;
  input.counts.restored_bytes_total = 123'456'789'012;
  EXPECT_EQ(StrictPage(RenderMetrics(input)).Value("moonpool_restored_bytes_total"), 123456789012.0);
}

TEST(MetricsPage, StaysParsableWhateverTheLabels) {
  MetricsInput input;
  input.engines = {Engine("a\"b\\c\nd\xff\xc3", "ready")};
  input.counts.decisions[{"x\n", "\xed\xa0\x80\""}] = 1;
  input.counts.failures["\\"] = 1;
  const StrictPage page(RenderMetrics(input));
  EXPECT_EQ(page.Value("moonpool_engine_slots{engine=\"a\\\"b\\\\c\\nd??\"}"), 4);
}

TEST(MetricsPage, BoundsItsSeries) {
  MetricsInput input;
  for (int i = 0; i < 10'000; ++i) {
    input.counts.decisions[{"RESTORE", fmt::format("reason {}", i)}] = 1;
    input.counts.failures[fmt::format("reason {}", i)] = 1;
    input.engines.push_back(Engine(fmt::format("engine {}", i), "ready"));
  }
  const std::string text = RenderMetrics(input);
  EXPECT_LT(text.size(), 1u << 20);
  const StrictPage page(text);
  double decisions = 0;
  for (const auto& [series, value] : page.samples()) {
    if (series.starts_with("moonpool_decisions_total")) decisions += value;
  }
  EXPECT_EQ(decisions, 10'000) << "nothing is lost, the rest is added up";
  EXPECT_TRUE(page.Has(R"(moonpool_decisions_total{decision="other",reason="other"})"));
  EXPECT_EQ(page.Value("moonpool_engines"), 10'000);
}

// Field report B58: what callers say never becomes a label.
class MetricsOfDoors : public DoorFixture {};

TEST_F(MetricsOfDoors, DoNotGrowWithWhatCallersSay) {
  Open();
  const size_t before = StrictPage(Get("/metrics").body).size();
  for (int i = 0; i < 2'000; ++i) {
    const std::string body =
        fmt::format(R"({{"engine":"engine-{0}","namespace":"secret-{0}","tokens":[{0}],"slot":{0}}})", i);
    ASSERT_EQ(Post("/v1/lookup", body).status, 200);
    ASSERT_EQ(Get(fmt::format("/path-{}", i)).status, 404);
  }
  const std::string text = Get("/metrics").body;
  const StrictPage page(text);
  EXPECT_EQ(page.size(), before);
  EXPECT_EQ(page.Value(R"(moonpool_calls_total{verb="lookup",end="ok"})"), 2'000);
  for (const char* word : {"secret", "engine-1", "path-"}) EXPECT_EQ(text.find(word), std::string::npos) << word;
}

// Field report B57: nothing outlives the service.
TEST_F(MetricsOfDoors, StartAtZeroAgainWhenRebuilt) {
  Open();
  ASSERT_EQ(Post("/v1/lookup", R"({"engine":"e","tokens":[1]})").status, 200);
  ASSERT_EQ(Post("/v1/lookup", "{").status, 400);
  const std::string series = R"(moonpool_calls_total{verb="lookup",end="ok"})";
  EXPECT_EQ(StrictPage(Get("/metrics").body).Value(series), 1);
  server_.reset();
  Open();
  EXPECT_EQ(StrictPage(Get("/metrics").body).Value(series), 0);
}

}  // namespace
}  // namespace moonpool::testing

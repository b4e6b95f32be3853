#include "bus/server/metrics_page.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include "bus/server/utf8_text.h"

namespace moonpool::bus {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

constexpr std::array<std::string_view, 7> kEngineStates = {"unreachable", "loading", "probing", "ready",
                                                           "bypass",      "suspect", "given_up"};

// Builds one family after the other.
class Page {
 public:
  void Begin(std::string name, std::string help, MetricType type) {
    families_.push_back({.name = std::move(name), .help = std::move(help), .type = type, .metric = {}});
  }

  void Add(const Labels& labels, double value) {
    MetricFamily& family = families_.back();
    ClientMetric& metric = family.metric.emplace_back();
    for (const auto& [name, text] : labels) metric.label.push_back({std::string(name), Utf8Text(text)});
    if (family.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }

  // Counts by (first label, second label); those above the bound of a family are added up.
  template <class Counts>
  void AddAll(std::string_view first_name, std::string_view second_name, const Counts& counts) {
    double rest = 0;
    for (const auto& [key, count] : counts) {
      if (families_.back().metric.size() + 1 < kSeriesPerFamilyMax) {
        Add({{first_name, key.first}, {second_name, key.second}}, static_cast<double>(count));
      } else {
        rest += static_cast<double>(count);
      }
    }
    if (rest > 0) Add({{first_name, "other"}, {second_name, "other"}}, rest);
  }

  void AddHistogram(const Labels& labels, const PhaseHistogram& histogram) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [name, text] : labels) metric.label.push_back({std::string(name), Utf8Text(text)});
    uint64_t cumulative = 0;
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      cumulative += histogram.counts[i];
      const double bound = i < kPhaseBuckets.size() ? kPhaseBuckets[i] : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({cumulative, bound});
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = histogram.sum_seconds;
  }

  void Counter(std::string name, std::string help, uint64_t value) {
    Begin(std::move(name), std::move(help), MetricType::Counter);
    Add({}, static_cast<double>(value));
  }
  void Gauge(std::string name, std::string help, double value) {
    Begin(std::move(name), std::move(help), MetricType::Gauge);
    Add({}, value);
  }

  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<MetricFamily> families_;
};

void AddCounts(const BusCounts& counts, Page& page) {
  page.Counter("moonpool_prefill_tokens_saved_total",
               "Prompt tokens that servers reused because the bus had restored them, as their completions report",
               counts.prefill_tokens_saved_total);
  page.Counter("moonpool_prefill_tokens_resident_total",
               "Prompt tokens that servers reused because the slot held them already",
               counts.prefill_tokens_resident_total);
  page.Counter("moonpool_prefill_tokens_evaluated_total", "Prompt tokens that servers evaluated",
               counts.prefill_tokens_evaluated_total);
  page.Counter("moonpool_promised_tokens_total", "Tokens that restores promised", counts.promised_tokens_total);
  page.Counter("moonpool_kept_tokens_total", "Promised tokens that completions confirmed", counts.kept_tokens_total);
  page.Counter("moonpool_restores_ineffective_total", "Restores after which the server evaluated the prompt anyway",
               counts.restores_ineffective_total);
  page.Counter("moonpool_restored_bytes_total", "Bytes of restored state files", counts.restored_bytes_total);
  page.Counter("moonpool_published_bytes_total", "Bytes of published state files", counts.published_bytes_total);

  page.Begin("moonpool_decisions_total", "Answers of Prepare", MetricType::Counter);
  page.AddAll("decision", "reason", counts.decisions);
  page.Begin("moonpool_commits_total", "Ends of commits", MetricType::Counter);
  page.AddAll("status", "reason", counts.commits);

  page.Begin("moonpool_restore_failures_total", "Decisions to restore that ended as a miss", MetricType::Counter);
  double rest = 0;
  size_t series = 0;
  for (const auto& [reason, count] : counts.failures) {
    if (++series < kSeriesPerFamilyMax) {
      page.Add({{"reason", reason}}, static_cast<double>(count));
    } else {
      rest += static_cast<double>(count);
    }
  }
  if (rest > 0) page.Add({{"reason", "other"}}, rest);

  page.Begin("moonpool_phase_seconds", "Where the time of Prepare and Commit goes", MetricType::Histogram);
  for (size_t phase = 0; phase < kPhases; ++phase) {
    page.AddHistogram({{"phase", PhaseName(static_cast<Phase>(phase))}}, counts.phases[phase]);
  }
}

void AddEngines(const std::vector<EngineStatus>& all, Page& page) {
  // One series per engine and state; engines are as many as the operator configured.
  std::vector<EngineStatus> engines = all;
  if (engines.size() > kSeriesPerFamilyMax / kEngineStates.size()) {
    engines.resize(kSeriesPerFamilyMax / kEngineStates.size());
  }
  page.Gauge("moonpool_engines", "Engines of the configuration", static_cast<double>(all.size()));
  page.Begin("moonpool_engine_state", "1 for the state that the engine is in", MetricType::Gauge);
  for (const EngineStatus& engine : engines) {
    for (const std::string_view state : kEngineStates) {
      page.Add({{"engine", engine.name}, {"state", state}}, engine.state == state ? 1 : 0);
    }
  }
  const auto each = [&](std::string name, std::string help, MetricType type, auto value_of) {
    page.Begin(std::move(name), std::move(help), type);
    for (const EngineStatus& engine : engines) {
      page.Add({{"engine", engine.name}}, static_cast<double>(value_of(engine)));
    }
  };
  each("moonpool_engine_slots", "Slots of the server", MetricType::Gauge, [](const auto& e) { return e.total_slots; });
  each("moonpool_engine_tickets", "Slots that tickets own now", MetricType::Gauge,
       [](const auto& e) { return e.tickets; });
  each("moonpool_engine_restores_declined", "1 while nothing is restored because promises were not kept",
       MetricType::Gauge, [](const auto& e) { return e.restores_declined ? 1 : 0; });
  each("moonpool_engine_restarts_total", "Restarts of the server that the bus noticed", MetricType::Counter,
       [](const auto& e) { return e.restarts_seen; });
  each("moonpool_engine_promised_tokens_total", "Tokens promised on this engine", MetricType::Counter,
       [](const auto& e) { return e.promised_total; });
  each("moonpool_engine_kept_tokens_total", "Promised tokens that its completions confirmed", MetricType::Counter,
       [](const auto& e) { return e.kept_total; });
}

void AddStore(const StoreStats& store, Page& page) {
  page.Gauge("moonpool_store_objects", "Stored objects", static_cast<double>(store.objects));
  page.Gauge("moonpool_store_aliases", "Block boundaries that can be found", static_cast<double>(store.aliases));
  page.Gauge("moonpool_store_bytes", "Bytes on disk, headers and quarantine included",
             static_cast<double>(store.bytes));
  page.Gauge("moonpool_store_reserved_bytes", "Bytes announced by writers and not yet written",
             static_cast<double>(store.reserved_bytes));
  page.Gauge("moonpool_store_quota_bytes", "Bytes that the store may use", static_cast<double>(store.quota_bytes));
  page.Gauge("moonpool_store_quarantined", "Damaged objects taken out of service",
             static_cast<double>(store.quarantined));
  page.Counter("moonpool_store_evictions_total", "Objects removed to make room", store.evictions_total);
  page.Counter("moonpool_store_corrupt_total", "Objects found damaged", store.corrupt_total);
}

void AddCalls(const CallCounts& calls, Page& page) {
  page.Begin("moonpool_calls_total", "Calls over all doors, by how they ended", MetricType::Counter);
  for (size_t verb = 0; verb < kVerbs; ++verb) {
    const std::string_view name = VerbName(static_cast<Verb>(verb));
    page.Add({{"verb", name}, {"end", "ok"}}, static_cast<double>(calls.ok[verb]));
    page.Add({{"verb", name}, {"end", "failed"}}, static_cast<double>(calls.failed[verb]));
    page.Add({{"verb", name}, {"end", "rejected"}}, static_cast<double>(calls.rejected[verb]));
  }
}

}  // namespace

std::string RenderMetrics(const MetricsInput& input) {
  Page page;
  AddCounts(input.counts, page);
  AddCalls(input.calls, page);
  AddEngines(input.engines, page);
  if (input.store) AddStore(*input.store, page);
  page.Gauge("moonpool_ready", "1 when every engine is probed, given up or unreachable", input.ready ? 1 : 0);
  page.Begin("moonpool_build_info", "Always 1; the version is the label", MetricType::Gauge);
  page.Add({{"version", MOONPOOL_VERSION}}, 1);
  return page.Text();
}

}  // namespace moonpool::bus

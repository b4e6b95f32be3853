// moonpool doctor: asks each engine what it is and says what to change.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/engine_examination.h"
#include "app/engine_option.h"
#include "app/environment.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/rng.h"

namespace moonpool::app {
namespace {

using nlohmann::json;

struct DoctorOptions {
  std::vector<std::string> engines;
  std::string store = (DefaultStateRoot() / "store").string();
  bool json = false;
};

json ToJson(const std::vector<Finding>& findings) {
  json rows = json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"severity", SeverityName(finding.severity)},
                    {"subject", finding.subject},
                    {"detail", finding.detail},
                    {"advice", finding.advice}});
  }
  return rows;
}

void Print(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    fmt::print("  {:8} {:15} {}\n", SeverityName(finding.severity), finding.subject, finding.detail);
    if (!finding.advice.empty()) fmt::print("  {:8} {:15} -> {}\n", "", "", finding.advice);
  }
}

Result<int> Examine(const DoctorOptions& options) {
  PosixFileSystem files;
  const SystemClock clock;
  SystemRng rng;
  MP_ASSIGN_OR_RETURN(const auto configs, ParseEngines(files, options.engines));
  const ExaminationTools tools{.files = files, .clock = clock, .rng = rng, .store = options.store};
  std::vector<EngineExamination> engines;
  for (const bus::EngineConfig& config : configs) engines.push_back(ExamineEngine(tools, config));
  const std::vector<Finding> together = CompareEngines(engines);
  const bool usable = std::none_of(engines.begin(), engines.end(), [](const auto& e) { return e.HasProblem(); });

  if (options.json) {
    json rows = json::array();
    for (const EngineExamination& engine : engines) {
      rows.push_back({{"name", engine.name}, {"url", engine.url}, {"findings", ToJson(engine.findings)}});
    }
    const json report = {{"ok", usable}, {"engines", rows}, {"together", ToJson(together)}};
    fmt::print("{}\n", report.dump(2, ' ', false, json::error_handler_t::replace));
    return usable ? 0 : 1;
  }
  for (const EngineExamination& engine : engines) {
    fmt::print("{}  {}\n", engine.name, engine.url);
    Print(engine.findings);
    fmt::print("\n");
  }
  if (!together.empty()) {
    fmt::print("together\n");
    Print(together);
    fmt::print("\n");
  }
  fmt::print("{}\n",
             usable ? "The bus can use these engines." : "There are problems: the bus cannot use these engines.");
  return usable ? 0 : 1;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, int& exit_code) {
  CLI::App* doctor = app.add_subcommand("doctor", "ask llama.cpp servers what they are, and say what to change");
  // Shared by the callback, and ends with it.
  const auto options = std::make_shared<DoctorOptions>();
  doctor->add_option("--engine", options->engines, "as for the bus; repeatable")
      ->type_name("ENGINE")
      ->envname("MOONPOOL_ENGINE")
      ->take_all()
      ->required();
  doctor->add_option("--store", options->store, "where the bus would store")
      ->envname("MOONPOOL_STORE")
      ->capture_default_str();
  doctor->add_flag("--json", options->json, "print JSON");
  doctor->footer(
      "Examples:\n"
      "  moonpool doctor --engine http://127.0.0.1:8081,/dev/shm/slots\n"
      "  moonpool doctor --engine name=a,url=http://127.0.0.1:8081,slots=/dev/shm/a --json\n"
      "Exit status 1: there is a problem that keeps the bus from using an engine.");
  doctor->callback([options, &exit_code] {
    const Result<int> examined = Examine(*options);
    if (!examined) fmt::print(stderr, "moonpool doctor: {}\n", examined.error().message);
    exit_code = examined.value_or(2);
  });
}

}  // namespace moonpool::app

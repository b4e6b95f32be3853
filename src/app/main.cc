// moonpool: one binary, its roles are subcommands.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "app/commands.h"
#include "app/environment.h"
#include "base/fault.h"

namespace {

constexpr char kDescription[] =
    "moonpool - separate llama.cpp servers share the KV cache of common prompt prefixes\n"
    "\n"
    "The first server that meets a long prompt evaluates it; the bus keeps the result, and every other server\n"
    "restores it in milliseconds instead of computing it for seconds.";

constexpr char kExamples[] =
    "Examples:\n"
    "  moonpool doctor --engine http://127.0.0.1:8081,/dev/shm/slots      what is this server, what should change?\n"
    "  moonpool bus --engine http://127.0.0.1:8081,/dev/shm/slots         run the bus beside it\n"
    "  moonpool ctl stats                                                 what has it saved so far?\n"
    "Each command explains itself: moonpool COMMAND --help";

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  // A file-size limit is an error of the write that met it (EFBIG), not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
#if defined(MOONPOOL_FAULTS)
  if (const auto fault = moonpool::app::EnvironmentValue("MOONPOOL_FAULT")) {
    if (const auto applied = moonpool::fault::Apply(*fault); !applied) {
      std::fprintf(stderr, "moonpool: MOONPOOL_FAULT: %s\n", applied.error().message.c_str());
      return 2;
    }
  }
#endif
  CLI::App app(kDescription, "moonpool");
  app.footer(kExamples);
  app.set_version_flag("--version", "moonpool " MOONPOOL_VERSION, "print the version and exit");
  app.require_subcommand(1);

  // One line per command.
  moonpool::app::AddBusCommand(app, exit_code);
  moonpool::app::AddDoctorCommand(app, exit_code);
  moonpool::app::AddCtlCommand(app, exit_code);
  moonpool::app::AddDemoCommand(app, exit_code);
  moonpool::app::AddBenchCommand(app, exit_code);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return exit_code;
}

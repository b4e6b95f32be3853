// The subcommands of the one binary. Each function adds its command to `app`, with flags and help, and a callback
// that runs it and leaves the process's exit status in `exit_code` (which outlives the parse). A command lives in a
// file of its own, named after it (bus_command.cc, ...); main.cc only lists them.
#pragma once

namespace CLI {
class App;
}

namespace moonpool::app {

void AddBusCommand(CLI::App& app, int& exit_code);
void AddDoctorCommand(CLI::App& app, int& exit_code);
void AddCtlCommand(CLI::App& app, int& exit_code);
void AddDemoCommand(CLI::App& app, int& exit_code);
void AddBenchCommand(CLI::App& app, int& exit_code);

}  // namespace moonpool::app

// moonpool ctl: looks into a store directory, or asks a running bus.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>

#include "app/commands.h"
#include "app/ctl_bus.h"
#include "app/ctl_store.h"
#include "app/environment.h"
#include "app/quantity.h"

namespace moonpool::app {
namespace {

// What all ctl commands may be told; lives as long as the callbacks that use it.
struct CtlOptions {
  std::string store = (DefaultStateRoot() / "store").string();
  std::string token_file;
  BusAddress bus;
  bool json = false;
  std::string key;
  std::string model;
  std::string name_space;
  std::string older_than;
  bool all = false;
  bool dry_run = false;
  bool show_tokens = false;
  ExplainedPrompt prompt;
  std::string text;
  std::string text_file;
  std::string tokens_file;
  std::string engine;
  uint32_t slot = 0;
};

using Run = std::function<Result<int>()>;

void SetCallback(CLI::App& command, int& exit_code, Run run) {
  command.callback([&exit_code, run = std::move(run)] {
    const Result<int> ended = run();
    if (!ended) fmt::print(stderr, "moonpool ctl: {}\n", ended.error().message);
    exit_code = ended.value_or(1);
  });
}

class CtlCommands {
 public:
  CtlCommands(CLI::App& ctl, int& exit_code) : ctl_(ctl), exit_code_(exit_code) {}

  // `options` is shared by all callbacks and ends with them.
  void Add(const std::shared_ptr<CtlOptions>& options) {
    AddStoreCommands(options);
    AddBusCommands(options);
  }

 private:
  CLI::App* OfStore(const char* name, const char* help, const std::shared_ptr<CtlOptions>& o) {
    CLI::App* command = ctl_.add_subcommand(name, help);
    command->add_option("--store", o->store, "the store directory")->envname("MOONPOOL_STORE")->capture_default_str();
    command->add_flag("--json", o->json, "print JSON");
    return command;
  }
  CLI::App* OfBus(const char* name, const char* help, const std::shared_ptr<CtlOptions>& o) {
    CLI::App* command = ctl_.add_subcommand(name, help);
    command->add_option("--url", o->bus.url, "where the bus is: http://HOST:PORT or unix:/PATH")
        ->envname("MOONPOOL_URL")
        ->capture_default_str();
    command->add_option("--token-file", o->token_file, "show the first token of this file")
        ->envname("MOONPOOL_TOKEN_FILE");
    command->add_flag("--json", o->json, "print JSON");
    return command;
  }
  static void AddFilter(CLI::App& command, const std::shared_ptr<CtlOptions>& o) {
    command.add_option("--key", o->key, "an object's id, or the first digits of its last key");
    command.add_option("--model", o->model, "objects of this model, as `ls` names it");
    command.add_option("--namespace", o->name_space, "objects of this namespace ('-': the empty one)");
    command.add_option("--older-than", o->older_than, "not used for so long: 12h, 7d");
  }

  static Result<ObjectFilter> Filter(const CtlOptions& o) {
    ObjectFilter filter;
    if (!o.key.empty()) filter.key = o.key;
    if (!o.model.empty()) filter.model = o.model;
    if (!o.name_space.empty()) filter.name_space = o.name_space == "-" ? "" : o.name_space;
    if (!o.older_than.empty()) {
      MP_ASSIGN_OR_RETURN(filter.unused_for, ParseDuration(o.older_than));
    }
    return filter;
  }
  using StoreVerb = std::function<Result<int>(const StoreCommand&, const ObjectFilter&)>;
  void RunOnStore(CLI::App& command, const std::shared_ptr<CtlOptions>& o, StoreVerb verb) {
    SetCallback(command, exit_code_, [o, verb = std::move(verb)]() -> Result<int> {
      MP_ASSIGN_OR_RETURN(const ObjectFilter filter, Filter(*o));
      return verb({.store = o->store, .json = o->json}, filter);
    });
  }
  static BusAddress Bus(const CtlOptions& o) {
    BusAddress bus = o.bus;
    bus.token_file = o.token_file;
    bus.json = o.json;
    return bus;
  }

  void AddStoreCommands(const std::shared_ptr<CtlOptions>& o) {
    CLI::App* ls = OfStore("ls", "list stored objects", o);
    AddFilter(*ls, o);
    RunOnStore(*ls, o, ListObjects);

    CLI::App* inspect = OfStore("inspect", "show what an object's header says", o);
    inspect->add_option("object", o->key, "its id, or the first digits of its last key")->required();
    inspect->add_flag("--tokens", o->show_tokens, "the tokens too: they are somebody's prompt");
    RunOnStore(*inspect, o, [o](const StoreCommand& command, const ObjectFilter& filter) {
      return InspectObjects(command, filter, o->show_tokens);
    });

    CLI::App* verify = OfStore("verify", "read every byte; set damaged objects aside", o);
    AddFilter(*verify, o);
    RunOnStore(*verify, o, VerifyObjects);

    CLI::App* rm = OfStore("rm", "remove objects", o);
    AddFilter(*rm, o);
    rm->add_flag("--all", o->all, "every object");
    rm->add_flag("--dry-run", o->dry_run, "only say which");
    RunOnStore(*rm, o, [o](const StoreCommand& command, ObjectFilter filter) {
      filter.all = o->all;
      return RemoveObjects(command, filter, o->dry_run);
    });
  }

  void AddBusCommands(const std::shared_ptr<CtlOptions>& o) {
    CLI::App* stats = OfBus("stats", "what a running bus has done", o);
    SetCallback(*stats, exit_code_, [o] { return ShowStats(Bus(*o)); });

    CLI::App* explain = OfBus("explain", "what would be decided for a prompt, with every number", o);
    explain->add_option("--engine", o->prompt.engine, "name of the engine")->required();
    explain->add_option("--namespace", o->prompt.name_space, "namespace of the prompt");
    CLI::Option* text = explain->add_option("--text", o->text, "the prompt");
    explain->add_option("--text-file", o->text_file, "a file that holds it");
    explain->add_option("--tokens-file", o->tokens_file, "a file with a JSON array of its token ids");
    SetCallback(*explain, exit_code_, [o, text] {
      if (text->count() > 0) o->prompt.text = o->text;
      o->prompt.text_file = o->text_file;
      o->prompt.tokens_file = o->tokens_file;
      return ExplainPrompt(Bus(*o), o->prompt);
    });

    CLI::App* probe = OfBus("probe", "probe an engine now", o);
    probe->add_option("engine", o->engine, "name of the engine")->required();
    CLI::Option* slot = probe->add_option("--slot", o->slot, "give up what this slot holds");
    SetCallback(*probe, exit_code_, [o, slot] {
      return ProbeEngine(Bus(*o), o->engine, slot->count() > 0 ? std::optional(o->slot) : std::nullopt);
    });
  }

  CLI::App& ctl_;
  int& exit_code_;
};

}  // namespace

void AddCtlCommand(CLI::App& app, int& exit_code) {
  CLI::App* ctl = app.add_subcommand("ctl", "look into a store, or ask a running bus");
  ctl->require_subcommand(1);
  ctl->footer(
      "Examples:\n"
      "  moonpool ctl ls\n"
      "  moonpool ctl rm --older-than 7d --dry-run\n"
      "  moonpool ctl verify\n"
      "  moonpool ctl stats --url http://127.0.0.1:7878\n"
      "  moonpool ctl explain --engine gpu0 --text-file prompt.txt\n"
      "  moonpool ctl probe gpu0 --slot 0");
  CtlCommands(*ctl, exit_code).Add(std::make_shared<CtlOptions>());
}

}  // namespace moonpool::app

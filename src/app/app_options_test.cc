// Flags, defaults and documentation say the same (field report B63 d); engines and quantities as people write them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "app/bus_options.h"
#include "app/engine_option.h"
#include "app/object_filter.h"
#include "app/quantity.h"
#include "app/service_notice.h"
#include "app/slot_directory.h"
#include "app/text_table.h"
#include "support/temp_dir.h"

namespace moonpool::app {
namespace {

using moonpool::testing::TempDir;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Quantity, ReadsSizes) {
  EXPECT_EQ(ParseBytes("20GiB").value(), uint64_t{20} << 30);
  EXPECT_EQ(ParseBytes("1.5 MiB").value(), 3u << 19);
  EXPECT_EQ(ParseBytes("500MB").value(), 500'000'000u);
  EXPECT_EQ(ParseBytes("7").value(), 7u);
  EXPECT_EQ(ParseBytes("4K").value(), 4096u);
  for (const char* bad : {"", "GiB", "-1", "+1", "1e400", "nan", "inf", "1Gib", "20000000TiB", "1 2", "1GiBx", " 1"}) {
    EXPECT_FALSE(ParseBytes(bad)) << bad;
  }
}

TEST(Quantity, ReadsTimes) {
  EXPECT_EQ(ParseDuration("1500ms").value(), milliseconds(1500));
  EXPECT_EQ(ParseDuration("2m").value(), seconds(120));
  EXPECT_EQ(ParseDuration("0.5h").value(), seconds(1800));
  for (const char* bad : {"", "5", "s", "-1s", "1min", "300000d", "nans"}) EXPECT_FALSE(ParseDuration(bad)) << bad;
}

TEST(Quantity, WritesWhatItReads) {
  for (const uint64_t bytes : {0ull, 1ull, 1024ull, 1025ull, 20ull << 30, 1536ull << 20, 1ull << 40}) {
    EXPECT_EQ(ParseBytes(FormatBytes(bytes)).value(), bytes);
  }
  for (const Duration time :
       {Duration(0), Duration(milliseconds(250)), Duration(seconds(90)), Duration(seconds(600))}) {
    EXPECT_EQ(ParseDuration(FormatDuration(time)).value(), time);
  }
  EXPECT_EQ(FormatBytes(20ull << 30), "20GiB");
  EXPECT_EQ(FormatDuration(seconds(600)), "10m");
  EXPECT_EQ(ApproximateBytes(1.5 * 1024 * 1024), "1.5 MiB");
}

class EngineOption : public ::testing::Test {
 protected:
  bus::EngineConfig Read(const std::string& text) {
    const auto engine = ParseEngine(files_, text);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine.value_or(bus::EngineConfig{});
  }
  PosixFileSystem files_;
};

TEST_F(EngineOption, HasAShortForm) {
  const bus::EngineConfig engine = Read("http://127.0.0.1:8081,/dev/shm/slots");
  EXPECT_EQ(engine.url, "http://127.0.0.1:8081");
  EXPECT_EQ(engine.slot_dir, "/dev/shm/slots");
  EXPECT_EQ(engine.name, "127.0.0.1:8081");
  EXPECT_EQ(Read("http://127.0.0.1:8081,/s,name=gpu0,swa-full").name, "gpu0");
}

TEST_F(EngineOption, HasALongForm) {
  const TempDir directory;
  std::ofstream(directory / "key") << "secret\n";
  const bus::EngineConfig engine = Read(
      fmt::format("name=gpu0,url=http://[::1]:8081,slots=/s,model=/m.gguf,projector=/p.gguf,router-model=r,epoch=2,"
                  "swa-full,api-key-file={}",
                  (directory / "key").string()));
  EXPECT_EQ(engine.name, "gpu0");
  EXPECT_EQ(engine.model, "/m.gguf");
  EXPECT_EQ(engine.projector, "/p.gguf");
  EXPECT_EQ(engine.router_model, "r");
  EXPECT_EQ(engine.epoch, "2");
  EXPECT_EQ(engine.api_key, "secret");
  EXPECT_TRUE(engine.swa_full);
}

TEST_F(EngineOption, IsRefusedByName) {
  for (const char* bad : {"", ",", "name=a", "nonsense", "https://x:1,/s", "http://127.0.0.1:8081,/s,what=1",
                          "http://127.0.0.1:8081,/s,/t", "url=http://127.0.0.1:1,url=http://127.0.0.1:2",
                          "http://127.0.0.1:1,slots=", "name=a b,url=http://127.0.0.1:1",
                          "name=a\nb,url=http://127.0.0.1:1", "http://127.0.0.1:1,/s,api-key-file=/nonexistent"}) {
    EXPECT_FALSE(ParseEngine(files_, bad)) << bad;
  }
  EXPECT_FALSE(ParseEngines(files_, {"http://127.0.0.1:1,/s", "http://127.0.0.1:1,/t"})) << "one name twice";
}

// Every flag's default is the constant of the struct that it sets: parsing nothing changes nothing.
TEST(BusOptions, DefaultsAreTheConstants) {
  PosixFileSystem files;
  const ParsedBusOptions parsed = ParseBusOptions(files, {"--state", "/nonexistent/state"});
  ASSERT_TRUE(parsed.options);
  const BusOptions& options = *parsed.options;
  const BusOptions constants;
  const bus::BusConfig& bus = options.bus;
  const bus::BusConfig expected;
  EXPECT_EQ(bus.block_tokens, expected.block_tokens);
  EXPECT_EQ(bus.fold_context, expected.fold_context);
  EXPECT_EQ(bus.canary_exact, expected.canary_exact);
  EXPECT_EQ(bus.prompt_tokens_max, expected.prompt_tokens_max);
  EXPECT_EQ(bus.engine_call_timeout, expected.engine_call_timeout);
  EXPECT_EQ(bus.slot_action_timeout, expected.slot_action_timeout);
  EXPECT_EQ(bus.prepare_timeout, expected.prepare_timeout);
  EXPECT_EQ(bus.probe_timeout, expected.probe_timeout);
  EXPECT_EQ(bus.ticket_ttl, expected.ticket_ttl);
  EXPECT_EQ(bus.ticket_idle, expected.ticket_idle);
  EXPECT_EQ(bus.flight_wait_default, expected.flight_wait_default);
  EXPECT_EQ(bus.leader_idle, expected.leader_idle);
  EXPECT_EQ(bus.engine_backoff_min, expected.engine_backoff_min);
  EXPECT_EQ(bus.engine_backoff_max, expected.engine_backoff_max);
  EXPECT_EQ(bus.probe_attempts_max, expected.probe_attempts_max);
  EXPECT_EQ(bus.commits_max, expected.commits_max);
  EXPECT_EQ(bus.promises_broken_max, expected.promises_broken_max);
  EXPECT_EQ(bus.promise_probe_every, expected.promise_probe_every);
  EXPECT_EQ(options.quota_bytes, constants.quota_bytes);
  EXPECT_EQ(options.drain_timeout, constants.drain_timeout);
  EXPECT_EQ(options.server.lanes.prepare_threads, constants.server.lanes.prepare_threads);
  EXPECT_EQ(options.store, "/nonexistent/state/store");
  EXPECT_EQ(options.server.grpc.unix_socket_path, "/nonexistent/state/bus.sock");
  EXPECT_EQ(options.server.http.address, "127.0.0.1");
  EXPECT_EQ(options.server.http.port, 7878);
  EXPECT_TRUE(options.server.grpc.address.empty());
  EXPECT_FALSE(options.server.listen_any);
}

// ... and what --help prints as a default is that constant too.
TEST(BusOptions, HelpShowsTheConstants) {
  std::map<std::string, std::string> shown;
  for (const OptionRow& row : BusOptionRows()) shown[row.flag] = row.default_text;
  const bus::BusConfig bus;
  EXPECT_EQ(shown.at("--block"), std::to_string(bus.block_tokens));
  EXPECT_EQ(shown.at("--prompt-tokens-max"), std::to_string(bus.prompt_tokens_max));
  EXPECT_EQ(shown.at("--commits-max"), std::to_string(bus.commits_max));
  EXPECT_EQ(shown.at("--probe-attempts-max"), std::to_string(bus.probe_attempts_max));
  EXPECT_EQ(shown.at("--promises-broken-max"), std::to_string(bus.promises_broken_max));
  EXPECT_EQ(shown.at("--promise-probe-every"), std::to_string(bus.promise_probe_every));
  EXPECT_EQ(ParseBytes(shown.at("--quota")).value(), BusOptions().quota_bytes);
  const std::map<std::string, Duration> times = {{"--engine-call-timeout", bus.engine_call_timeout},
                                                 {"--slot-action-timeout", bus.slot_action_timeout},
                                                 {"--prepare-timeout", bus.prepare_timeout},
                                                 {"--probe-timeout", bus.probe_timeout},
                                                 {"--ticket-ttl", bus.ticket_ttl},
                                                 {"--ticket-idle", bus.ticket_idle},
                                                 {"--flight-wait", bus.flight_wait_default},
                                                 {"--leader-idle", bus.leader_idle},
                                                 {"--engine-backoff-min", bus.engine_backoff_min},
                                                 {"--engine-backoff-max", bus.engine_backoff_max},
                                                 {"--drain-timeout", BusOptions().drain_timeout}};
  for (const auto& [flag, time] : times) EXPECT_EQ(ParseDuration(shown.at(flag)).value(), time) << flag;
}

// docs/operations/running.md has one row per flag, with the default that the program has.
TEST(BusOptions, ManualHasTheSameTable) {
  std::ifstream manual(MOONPOOL_SOURCE_DIR "/docs/operations/running.md");
  ASSERT_TRUE(manual);
  std::map<std::string, std::string> documented;
  for (std::string line; std::getline(manual, line);) {
    constexpr std::string_view kRow = "| `--";
    if (!line.starts_with(kRow)) continue;
    std::istringstream cells(line);
    std::string skipped;
    std::string flag;
    std::string default_text;
    std::getline(cells, skipped, '|');
    std::getline(cells, flag, '|');
    std::getline(cells, default_text, '|');
    const auto bare = [](std::string text) {
      std::erase_if(text, [](char c) { return c == '`' || c == ' '; });
      return text;
    };
    documented[bare(flag)] = bare(default_text);
  }
  std::string table;
  for (const OptionRow& row : BusOptionRows()) {
    if (row.flag == "--help") continue;
    // The state root depends on who asks.
    const std::string expected = row.flag == "--state" ? "seebelow" : row.default_text;
    const auto found = documented.find(row.flag);
    EXPECT_TRUE(found != documented.end() && found->second == expected) << row.flag << " " << expected;
    table += fmt::format("| `{}` | {} | {} |\n", row.flag,
                         row.flag == "--state" ? "see below"
                         : expected.empty()    ? ""
                                               : "`" + expected + "`",
                         row.help);
    if (found != documented.end()) documented.erase(found);
  }
  for (const auto& [flag, text] : documented) ADD_FAILURE() << flag << " is documented, but does not exist";
  if (HasFailure()) std::printf("The table should be:\n%s", table.c_str());
}

TEST(BusOptions, ReadAddressesOfBothFamilies) {
  PosixFileSystem files;
  const auto parse = [&](const std::string& http) { return ParseBusOptions(files, {"--http", http}).options; };
  EXPECT_EQ(parse("[::1]:0")->server.http.address, "::1");
  EXPECT_EQ(parse("localhost:5")->server.http.address, "127.0.0.1");
  EXPECT_EQ(parse("none")->server.http.address, "");
  for (const char* bad : {"127.0.0.1", "[::1]", ":80", "127.0.0.1:x", "127.0.0.1:70000", "host.example:80"}) {
    EXPECT_FALSE(parse(bad)) << bad;
  }
}

TEST(SlotDirectory, BelongsToOneBus) {
  PosixFileSystem files;
  const TempDir directory;
  auto first = SlotDirectory::Acquire(files, directory / "slots");
  ASSERT_TRUE(first) << first.error().message;
  const auto second = SlotDirectory::Acquire(files, directory / "slots");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_NE(second.error().message.find("slots"), std::string::npos);
  first->reset();
  EXPECT_TRUE(SlotDirectory::Acquire(files, directory / "slots"));
}

TEST(SlotDirectory, SweepsWhatABusLeftAndNothingElse) {
  PosixFileSystem files;
  const TempDir directory;
  const Path slots = directory / "slots";
  ASSERT_TRUE(files.MakeDirectories(slots));
  for (const char* name : {"mp-1.bin", "other.bin", "xmp-1.bin"}) std::ofstream(slots / name) << "x";
  ASSERT_TRUE(files.WriteSymlink("/etc/passwd", slots / "mp-link"));
  ASSERT_TRUE(files.MakeDirectories(slots / "mp-directory"));
  ASSERT_TRUE(SlotDirectory::Acquire(files, slots));
  EXPECT_FALSE(std::filesystem::exists(slots / "mp-1.bin"));
  EXPECT_TRUE(std::filesystem::exists(slots / "other.bin"));
  EXPECT_TRUE(std::filesystem::exists(slots / "xmp-1.bin"));
  EXPECT_TRUE(std::filesystem::is_symlink(slots / "mp-link")) << "not a file that a bus makes";
  EXPECT_TRUE(std::filesystem::exists(slots / "mp-directory"));
}

TEST(ObjectFilter, NeedsAllItsConditions) {
  bus::ObjectSummary object;
  object.id = "0123456789abcdef-fedcba9876543210";
  object.last_key.bytes[0] = std::byte{0xab};
  object.model_name = "m";
  object.name_space = "n";
  object.created_wall_ms = 1'000;
  object.last_used_wall_ms = 500'000;
  const auto matches = [&](ObjectFilter filter) { return filter.Matches(object, 1'000'000); };
  EXPECT_TRUE(matches({}));
  EXPECT_TRUE(matches({.key = object.id}));
  EXPECT_TRUE(matches({.key = "ab0000"}));
  EXPECT_FALSE(matches({.key = "ac0000"}));
  EXPECT_TRUE(matches({.model = "m", .name_space = "n"}));
  EXPECT_FALSE(matches({.model = "m", .name_space = "other"}));
  EXPECT_TRUE(matches({.unused_for = seconds(500)}));
  EXPECT_FALSE(matches({.unused_for = seconds(501)}));
  EXPECT_FALSE(ObjectFilter{.key = "ab"}.Check()) << "so short a key would mean too much";
  EXPECT_FALSE(ObjectFilter{.key = "../../x"}.Check());
  EXPECT_TRUE(ObjectFilter{}.empty());
  EXPECT_FALSE(ObjectFilter{.all = true}.empty());
}

TEST(TextTable, AlignsAndHidesControlCharacters) {
  TextTable table({{"NAME"}, {"SIZE", TextTable::Align::kRight}});
  table.Add({"a", "10"});
  table.Add({"b\x1b[31m\n", "2"});
  EXPECT_EQ(table.Text(), "NAME     SIZE\na          10\nb?[31m?     2\n");
}

}  // namespace
}  // namespace moonpool::app

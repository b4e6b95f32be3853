#include "app/ctl_store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "app/quantity.h"
#include "app/text_table.h"
#include "base/clock.h"
#include "base/rng.h"
#include "bus/blobs/directory_store.h"

namespace moonpool::app {
namespace {

using nlohmann::json;
using Access = bus::DirectoryStore::Access;

// What a ctl command needs of a store, and the store itself.
struct OpenStore {
  PosixFileSystem files;
  SystemClock clock;
  SystemRng rng;
  std::unique_ptr<bus::DirectoryStore> store;

  Result<void> Open(const Path& root, Access access) {
    // Opening for writing would make it; a mistyped name should not.
    if (const auto info = files.Info(root); !info) return Fail(WithContext(info.error(), "there is no store"));
    bus::DirectoryStore::Options options;
    options.root = root;
    options.quota_bytes = uint64_t{1} << 62;  // nothing is published here, so nothing may be evicted either
    options.access = access;
    MP_ASSIGN_OR_RETURN(store, bus::DirectoryStore::Open(files, clock, rng, options));
    return {};
  }

  // Sorted: used last comes first.
  Result<std::vector<bus::ObjectSummary>> Matching(const ObjectFilter& filter) {
    MP_RETURN_IF_ERROR(filter.Check());
    MP_ASSIGN_OR_RETURN(std::vector<bus::ObjectSummary> objects, store->List());
    std::erase_if(objects, [&](const auto& object) { return !filter.Matches(object, clock.WallNowMs()); });
    std::sort(objects.begin(), objects.end(),
              [](const auto& a, const auto& b) { return a.last_used_wall_ms > b.last_used_wall_ms; });
    return objects;
  }
};

void Print(const json& value) { fmt::print("{}\n", value.dump(2, ' ', false, json::error_handler_t::replace)); }

std::string Time(int64_t wall_ms) {
  if (wall_ms <= 0) return "-";
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(wall_ms / 1000)));
}

std::string Age(int64_t now_ms, int64_t then_ms) {
  if (then_ms <= 0) return "-";
  const int64_t seconds = std::max<int64_t>(0, (now_ms - then_ms) / 1000);
  if (seconds < 120) return fmt::format("{}s", seconds);
  if (seconds < 120 * 60) return fmt::format("{}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / 86400);
}

json ToJson(const bus::ObjectSummary& object) {
  json value = {{"id", object.id},
                {"model", object.model_name},
                {"namespace", object.name_space},
                {"fingerprint", object.fingerprint.ToHex()},
                {"lastKey", object.last_key.ToHex()},
                {"tokens", object.tokens},
                {"bytes", object.payload_bytes},
                {"created", Time(object.created_wall_ms)},
                {"lastUsed", Time(object.last_used_wall_ms)},
                {"aliases", object.aliases}};
  if (object.problem) value["problem"] = *object.problem;
  return value;
}

json ToJson(const bus::ObjectHeader& header, bool show_tokens) {
  json value = {{"id", header.id},
                {"model", header.model_name},
                {"namespace", header.name_space},
                {"fingerprint", header.fingerprint.ToHex()},
                {"fingerprintText", header.fingerprint_text},
                {"layout", header.layout},
                {"blockTokens", header.block_tokens},
                {"firstToken", header.first_token},
                {"tokenCount", header.tokens.size()},
                {"payloadBytes", header.payload_bytes},
                {"chunkBytes", header.chunk_bytes},
                {"chunks", header.chunk_checksums.size()},
                {"created", Time(header.created_wall_ms)}};
  json keys = json::array();
  for (const Digest256& key : header.keys) keys.push_back(key.ToHex());
  value["keys"] = std::move(keys);
  if (header.parent) value["parent"] = *header.parent;
  if (show_tokens) value["tokens"] = header.tokens;
  return value;
}

}  // namespace

Result<int> ListObjects(const StoreCommand& command, const ObjectFilter& filter) {
  OpenStore open;
  MP_RETURN_IF_ERROR(open.Open(command.store, Access::kReadOnly));
  MP_ASSIGN_OR_RETURN(const auto objects, open.Matching(filter));
  if (command.json) {
    json rows = json::array();
    for (const auto& object : objects) rows.push_back(ToJson(object));
    Print(rows);
    return 0;
  }
  using Align = TextTable::Align;
  TextTable table({{"OBJECT"},
                   {"MODEL"},
                   {"NAMESPACE"},
                   {"TOKENS", Align::kRight},
                   {"SIZE", Align::kRight},
                   {"AGE", Align::kRight},
                   {"USED", Align::kRight},
                   {"ALIASES", Align::kRight},
                   {"PROBLEM"}});
  const int64_t now_ms = open.clock.WallNowMs();
  uint64_t bytes = 0;
  for (const auto& object : objects) {
    bytes += object.payload_bytes;
    table.Add({object.id, object.model_name, object.name_space.empty() ? "-" : object.name_space,
               std::to_string(object.tokens), ApproximateBytes(static_cast<double>(object.payload_bytes)),
               Age(now_ms, object.created_wall_ms), Age(now_ms, object.last_used_wall_ms),
               std::to_string(object.aliases), object.problem.value_or("")});
  }
  if (!table.empty()) fmt::print("{}", table.Text());
  fmt::print("{} objects, {}\n", objects.size(), ApproximateBytes(static_cast<double>(bytes)));
  return 0;
}

Result<int> InspectObjects(const StoreCommand& command, const ObjectFilter& filter, bool show_tokens) {
  OpenStore open;
  MP_RETURN_IF_ERROR(open.Open(command.store, Access::kReadOnly));
  MP_ASSIGN_OR_RETURN(const auto objects, open.Matching(filter));
  if (objects.empty()) return Fail(ErrorCode::kNotFound, "no such object");
  int exit_code = 0;
  json rows = json::array();
  for (const auto& object : objects) {
    const auto header = open.store->ReadHeader(object.id);
    if (header) {
      rows.push_back(ToJson(*header, show_tokens));
    } else {
      rows.push_back({{"id", object.id}, {"problem", header.error().message}});
      exit_code = 1;
    }
  }
  if (command.json) {
    Print(rows);
    return exit_code;
  }
  for (const json& row : rows) {
    for (const auto& [name, value] : row.items()) {
      if (name == "keys") {
        fmt::print("{:16} {}, last {}\n", name, value.size(), value.empty() ? "-" : value.back().get<std::string>());
      } else {
        fmt::print(
            "{:16} {}\n", name,
            value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace));
      }
    }
    fmt::print("\n");
  }
  return exit_code;
}

Result<int> VerifyObjects(const StoreCommand& command, const ObjectFilter& filter) {
  OpenStore open;
  MP_RETURN_IF_ERROR(open.Open(command.store, Access::kReadWrite));
  MP_ASSIGN_OR_RETURN(const auto objects, open.Matching(filter));
  if (objects.empty() && !filter.empty()) return Fail(ErrorCode::kNotFound, "no such object");
  int damaged = 0;
  json rows = json::array();
  for (const auto& object : objects) {
    const auto verified = open.store->Verify(object.id);
    // Evicted while we read the list: as if it had not been in it.
    if (!verified && verified.error().code == ErrorCode::kNotFound) continue;
    if (!verified) ++damaged;
    const std::string verdict = verified ? "good" : verified.error().message;
    rows.push_back({{"id", object.id}, {"good", verified.has_value()}, {"detail", verdict}});
    if (!command.json) fmt::print("{}  {}\n", object.id, verdict);
  }
  if (command.json) {
    Print(rows);
  } else {
    fmt::print("{} objects, {} damaged\n", rows.size(), damaged);
  }
  return damaged == 0 ? 0 : 1;
}

Result<int> RemoveObjects(const StoreCommand& command, const ObjectFilter& filter, bool dry_run) {
  if (filter.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "say which: --key, --model, --namespace, --older-than, or --all");
  }
  OpenStore open;
  MP_RETURN_IF_ERROR(open.Open(command.store, dry_run ? Access::kReadOnly : Access::kReadWrite));
  MP_ASSIGN_OR_RETURN(const auto objects, open.Matching(filter));
  int failed = 0;
  json rows = json::array();
  for (const auto& object : objects) {
    std::string what = dry_run ? "would be removed" : "removed";
    if (!dry_run) {
      const auto removed = open.store->Remove(object.id);
      if (!removed && removed.error().code != ErrorCode::kNotFound) {
        ++failed;
        what = removed.error().message;
      }
    }
    rows.push_back({{"id", object.id}, {"bytes", object.payload_bytes}, {"result", what}});
    if (!command.json)
      fmt::print("{}  {}  {}\n", object.id, ApproximateBytes(static_cast<double>(object.payload_bytes)), what);
  }
  if (command.json) {
    Print(rows);
  } else {
    fmt::print("{} objects {}\n", objects.size() - static_cast<size_t>(failed),
               dry_run ? "would be removed" : "removed");
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace moonpool::app

#include "bus/core/engine_notes.h"

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace moonpool::bus {
namespace {

constexpr uint64_t kFileBytesMax = 16u << 20;
constexpr size_t kNotesMax = 1024;

nlohmann::json ToJson(const EngineNote& note) {
  return {{"incarnation", note.incarnation},
          {"kv_types", note.kv_types},
          {"layout", note.layout},
          {"memory", static_cast<int>(note.memory)},
          {"streams", note.streams},
          {"rewritable", note.rewritable},
          {"bytes_per_token", note.bytes_per_token},
          {"canary_identity", note.canary.identity.ToHex()},
          {"canary_number", note.canary.number},
          {"family", note.family.ToHex()}};
}

// Throws nlohmann's exceptions on anything that ToJson would not have written.
EngineNote FromJson(const nlohmann::json& json) {
  EngineNote note;
  json.at("incarnation").get_to(note.incarnation);
  json.at("kv_types").get_to(note.kv_types);
  json.at("layout").get_to(note.layout);
  note.memory = static_cast<MemoryClass>(json.at("memory").get<int>());
  json.at("streams").get_to(note.streams);
  json.at("rewritable").get_to(note.rewritable);
  json.at("bytes_per_token").get_to(note.bytes_per_token);
  note.canary.identity = Digest256::FromHex(json.at("canary_identity").get<std::string>()).value();
  json.at("canary_number").get_to(note.canary.number);
  note.family = Digest256::FromHex(json.at("family").get<std::string>()).value();
  return note;
}

}  // namespace

EngineNotes::EngineNotes(FileSystem& files, Rng& rng, Path path) : files_(files), rng_(rng), path_(std::move(path)) {
  if (path_.empty()) return;
  const auto text = ReadWholeFile(files_, path_, kFileBytesMax);
  if (!text) return;
  std::map<std::string, EngineNote> notes;
  try {
    const nlohmann::json all = nlohmann::json::parse(*text);
    for (const auto& [url, json] : all.items()) notes[url] = FromJson(json);
  } catch (const std::exception& error) {
    log::Warn("engine_notes_ignored path={} error=\"{}\"", path_.string(), error.what());
    return;
  }
  MutexLock lock(mutex_);
  notes_ = std::move(notes);
}

std::optional<EngineNote> EngineNotes::Find(const std::string& url, const std::string& incarnation) const {
  MutexLock lock(mutex_);
  const auto found = notes_.find(url);
  if (found == notes_.end() || found->second.incarnation != incarnation) return std::nullopt;
  return found->second;
}

void EngineNotes::Keep(const std::string& url, const EngineNote& note) {
  if (path_.empty()) return;
  std::string text;
  {
    MutexLock lock(mutex_);
    if (notes_.size() >= kNotesMax && !notes_.contains(url)) notes_.erase(notes_.begin());
    notes_[url] = note;
    nlohmann::json all = nlohmann::json::object();
    for (const auto& [known_url, known] : notes_) all[known_url] = ToJson(known);
    text = all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  const auto written = WriteWholeFile(files_, path_, text, rng_.HexId(8));
  if (!written) log::Warn("engine_note_not_written error=\"{}\"", written.error().message);
}

}  // namespace moonpool::bus

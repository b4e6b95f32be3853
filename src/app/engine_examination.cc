#include "app/engine_examination.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "app/quantity.h"
#include "app/slot_directory.h"
#include "bus/core/slot_file.h"
#include "bus/engine/llama_server.h"
#include "net/http_client.h"

namespace moonpool::app {
namespace {

constexpr Duration kQuestionTimeout = std::chrono::seconds(5);
constexpr Duration kSaveTimeout = std::chrono::seconds(30);
constexpr uint64_t kFreeBytesMin = uint64_t{1} << 30;

class Examiner {
 public:
  Examiner(const ExaminationTools& tools, const bus::EngineConfig& engine) : tools_(tools), engine_(engine) {
    result_.name = engine.name;
    result_.url = engine.url;
  }

  EngineExamination Run() {
    auto made = bus::LlamaServer::Make({.url = engine_.url, .api_key = engine_.api_key, .model = engine_.router_model},
                                       tools_.clock);
    if (!made) {
      Add(Severity::kProblem, "url", made.error().message, "give http://HOST:PORT");
      return std::move(result_);
    }
    server_ = std::move(*made);
    if (!ExamineServer()) return std::move(result_);
    ExamineSlots();
    ExamineModel();
    ExamineAdapters();
    ExamineDirectories();
    Add(Severity::kNote, "prompt cache",
        "the server's own prompt cache (--cache-ram, 8192 MiB unless set) cannot be seen from outside",
        "with a unified KV cache (no -np given) its idle slots are emptied, restored ones too: start the server with "
        "-np N or --no-cache-idle-slots");
    return std::move(result_);
  }

 private:
  void Add(Severity severity, std::string subject, std::string detail, std::string advice = "") {
    result_.findings.push_back({severity, std::move(subject), std::move(detail), std::move(advice)});
  }
  Deadline Soon() const { return Deadline(tools_.clock, kQuestionTimeout); }

  // One question that LlamaServer does not know; the status and body, or nothing.
  std::optional<net::HttpResponse> Ask(const std::string& method, const std::string& target, std::string body = "") {
    const auto endpoint = net::HttpEndpoint::Parse(engine_.url);
    if (!endpoint) return std::nullopt;
    net::HttpClientOptions options;
    options.bearer_token = engine_.api_key;
    net::HttpClient client(*endpoint, options);
    net::HttpCall call;
    call.method = method;
    call.target = target;
    call.body = std::move(body);
    auto response = client.Send(call, Soon());
    if (!response) return std::nullopt;
    return std::move(*response);
  }

  bool ExamineServer() {
    const auto health = server_->Health(Soon());
    const auto root = Ask("GET", "/");
    if (root && root->body.find("Ollama is running") != std::string::npos) {
      Add(Severity::kProblem, "server", "this is Ollama, not a llama.cpp server",
          "Moonpool does not support Ollama yet; point it at a llama.cpp server (llama-server)");
      return false;
    }
    if (!health) {
      Add(Severity::kProblem, "server", health.error().message,
          health.error().code == ErrorCode::kFailedPrecondition ? "wait until the model is loaded"
                                                                : "start the server, or correct url=");
      return false;
    }
    const auto props = server_->Props(Soon());
    if (!props) {
      const bool key = props.error().code == ErrorCode::kPermission;
      Add(Severity::kProblem, key ? "api key" : "server", props.error().message,
          key ? "give api-key-file=FILE with the key of the server's --api-key"
              : "this does not answer like a llama.cpp server of 2026");
      return false;
    }
    result_.total_slots = props->total_slots;
    result_.context_tokens = props->context_tokens;
    result_.model_path = engine_.model.empty() ? props->model_path : engine_.model.string();
    has_media_ = props->has_vision || props->has_audio;
    Add(Severity::kGood, "server",
        fmt::format("llama.cpp {}, {} slots of {} tokens", props->build, props->total_slots, props->context_tokens));
    if (props->sleeping)
      Add(Severity::kNote, "server", "it is asleep (--sleep-idle-seconds): it wakes without its slots");
    if (has_media_) {
      Add(Severity::kNote, "media", "it takes images or audio; prompts with media are always bypassed",
          engine_.projector.empty() ? "give projector=FILE, the server's --mmproj" : "");
    }
    return true;
  }

  void ExamineSlots() {
    const auto slots = server_->Slots(Soon());
    if (!slots) {
      Add(Severity::kProblem, "slots", slots.error().message,
          slots.error().code == ErrorCode::kUnsupported ? "start the server without --no-slots" : "");
    } else {
      const bool empty = std::any_of(slots->begin(), slots->end(),
                                     [](const auto& slot) { return !slot.processing && slot.tokens_cached == 0; });
      if (!empty) {
        Add(Severity::kWarning, "slots", "no slot is idle and empty: the bus cannot probe the server",
            fmt::format("when one may be lost: moonpool ctl probe {} --slot N", engine_.name));
      }
    }
    // A name that no server accepts: one that has the feature says 400, one that has not says 501, neither writes.
    const auto save = Ask("POST", "/slots/0?action=save", R"({"filename":"/"})");
    if (!save) {
      Add(Severity::kProblem, "slot files", "no answer to a slot action");
    } else if (save->status == 501 || save->status == 404) {
      Add(Severity::kProblem, "slot files", "the server cannot save slots",
          fmt::format("start it with --slot-save-path {}",
                      engine_.slot_dir.empty() ? "/dev/shm/slots" : engine_.slot_dir.string()));
    } else if (slots) {
      ExamineSlotFile(*slots);
    }
  }

  // The emptiest idle slot is saved: does the file stand where the bus will look for it?
  void ExamineSlotFile(const std::vector<bus::SlotInfo>& slots) {
    const bus::SlotInfo* emptiest = nullptr;
    for (const bus::SlotInfo& slot : slots) {
      if (slot.processing) continue;
      if (emptiest == nullptr || slot.tokens_cached < emptiest->tokens_cached) emptiest = &slot;
    }
    if (emptiest == nullptr || engine_.slot_dir.empty() || !tools_.files.Info(engine_.slot_dir)) return;
    const bus::SlotFile file(tools_.files, engine_.slot_dir, tools_.rng);
    const auto saved = server_->SaveSlot(emptiest->id, file.name(), Deadline(tools_.clock, kSaveTimeout));
    if (!saved) {
      Add(Severity::kProblem, "slot files", saved.error().message, "let the server write to its --slot-save-path");
      return;
    }
    const auto info = tools_.files.Info(file.path());
    if (!info) {
      Add(Severity::kProblem, "slot files",
          fmt::format("the server saved a slot, but not into {}", engine_.slot_dir.string()),
          "slots= must be the directory of its --slot-save-path, as this machine sees it");
    } else if (info->size_bytes != saved->bytes) {
      Add(Severity::kProblem, "slot files",
          fmt::format("the server says {} bytes, the file has {}", saved->bytes, info->size_bytes),
          "is the file system full?");
    } else {
      Add(Severity::kGood, "slot files", fmt::format("saved into {}, as expected", engine_.slot_dir.string()));
    }
  }

  void ExamineModel() {
    const auto model = bus::ReadGgufModel(tools_.files, result_.model_path);
    if (!model) {
      Add(Severity::kProblem, "model", fmt::format("{}: {}", result_.model_path, model.error().message),
          "give model=FILE, the GGUF that the server loaded, as this machine sees it: without its bytes nobody knows "
          "whose KV this is");
      return;
    }
    result_.model = *model;
    if (model->recurrent) {
      Add(Severity::kWarning, "model",
          fmt::format("{} has recurrent layers: its state serves exact continuations only", model->architecture),
          "expect little reuse; the bus finds out and declines what does not work");
    } else if (model->sliding_window > 0 && !engine_.swa_full) {
      Add(Severity::kWarning, "model",
          fmt::format("{} has a sliding window of {} tokens: a restored prefix can be used only at some places",
                      model->architecture, model->sliding_window),
          "if memory allows, start the server with --swa-full and add swa-full to the engine");
    } else if (model->sliding_window > 0) {
      Add(Severity::kNote, "model",
          fmt::format("{} has a sliding window; with --swa-full exact continuations are restored",
                      model->architecture));
    } else if (!model->Plain()) {
      Add(Severity::kWarning, "model", fmt::format("{} has layers that the bus cannot cut", model->architecture));
    } else {
      Add(Severity::kGood, "model",
          fmt::format("{}, plain attention in {} layers: every prefix can be restored", model->architecture,
                      model->blocks));
    }
    if (model->rope_depends_on_context) {
      Add(Severity::kNote, "model", "its position encoding depends on the context length",
          "servers share only if they are started with the same one");
    }
    if (result_.context_tokens) {
      slot_bytes_ = model->KvBytesPerToken("f16", "f16").value_or(0) * *result_.context_tokens;
    }
  }

  void ExamineAdapters() {
    const auto adapters = server_->LoraAdapters(Soon());
    if (!adapters) return;  // old servers have none
    for (const bus::LoraAdapter& adapter : *adapters) {
      const auto info = tools_.files.Info(adapter.path);
      if (info) {
        Add(Severity::kNote, "adapter", fmt::format("{} at scale {}", adapter.path, adapter.scale));
      } else {
        Add(Severity::kProblem, "adapter", fmt::format("{} cannot be read", adapter.path),
            "the bus must see the adapter's file: it is part of the key");
      }
    }
  }

  void ExamineDirectories() {
    if (engine_.slot_dir.empty()) {
      Add(Severity::kProblem, "slot directory", "none is given", "add slots=DIR, the server's --slot-save-path");
      return;
    }
    const std::string directory = engine_.slot_dir.string();
    const auto slots = tools_.files.Info(engine_.slot_dir);
    if (!slots) {
      Add(Severity::kProblem, "slot directory", slots.error().message,
          "make it (mode 700) and start the server with --slot-save-path " + directory);
      return;
    }
    if (const auto inspected = SlotDirectory::Inspect(tools_.files, engine_.slot_dir); !inspected) {
      const bool closes = inspected.error().code == ErrorCode::kFailedPrecondition;
      Add(closes ? Severity::kNote : Severity::kProblem, "slot directory", inspected.error().message,
          closes ? "" : "the bus refuses to start with it");
    }
    Path store = tools_.store;
    while (store.has_relative_path() && !tools_.files.Info(store)) store = store.parent_path();
    const auto stored = tools_.files.Info(store);
    if (stored && stored->device != slots->device) {
      Add(Severity::kWarning, "store",
          fmt::format("{} and {} are on two file systems: every object is copied", directory, tools_.store.string()),
          "put --store on the file system of the slot directories");
    } else {
      Add(Severity::kGood, "store", fmt::format("on one file system with {}: nothing is copied", directory));
    }
    const auto free_bytes = tools_.files.FreeBytes(engine_.slot_dir);
    if (!free_bytes) return;
    const uint64_t wanted = std::max(kFreeBytesMin, 2 * slot_bytes_);
    const std::string free_text = ApproximateBytes(static_cast<double>(*free_bytes));
    const std::string slot_text =
        slot_bytes_ > 0 ? fmt::format("; a full slot has {} (f16)", ApproximateBytes(static_cast<double>(slot_bytes_)))
                        : "";
    Add(*free_bytes < wanted ? Severity::kWarning : Severity::kGood, "space",
        fmt::format("{} free in {}{}", free_text, directory, slot_text),
        *free_bytes < wanted ? "make room for two full slots beside the store's quota, or choose another directory"
                             : "");
  }

  const ExaminationTools& tools_;
  const bus::EngineConfig& engine_;
  std::unique_ptr<bus::LlamaServer> server_;
  EngineExamination result_;
  bool has_media_ = false;
  uint64_t slot_bytes_ = 0;
};

}  // namespace

std::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kGood: return "good";
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kProblem: return "problem";
  }
  return "unknown";
}

bool EngineExamination::HasProblem() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kProblem; });
}

EngineExamination ExamineEngine(const ExaminationTools& tools, const bus::EngineConfig& engine) {
  return Examiner(tools, engine).Run();
}

std::vector<Finding> CompareEngines(const std::vector<EngineExamination>& engines) {
  std::vector<Finding> findings;
  std::set<std::string> models;
  std::set<uint32_t> slot_counts;
  bool all_plain = true;
  int reached = 0;
  for (const EngineExamination& engine : engines) {
    if (!engine.total_slots) continue;
    ++reached;
    models.insert(engine.model_path);
    slot_counts.insert(*engine.total_slots);
    all_plain = all_plain && engine.model && engine.model->Plain();
  }
  if (reached < 2) return findings;
  if (models.size() > 1) {
    findings.push_back({Severity::kNote, "engines",
                        fmt::format("{} model files: only engines with the same bytes share", models.size()), ""});
  }
  if (slot_counts.size() > 1) {
    findings.push_back({all_plain ? Severity::kNote : Severity::kWarning, "engines",
                        "they were started with different -np",
                        all_plain ? "files are rewritten on the way, which costs one copy; the same -np avoids it"
                                  : "this kind of model cannot be rewritten: start all engines with the same -np"});
  }
  return findings;
}

}  // namespace moonpool::app

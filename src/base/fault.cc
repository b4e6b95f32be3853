#include "base/fault.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/mutex.h"

namespace moonpool::fault {
namespace {

struct Registry {
  Mutex mutex;
  uint64_t countdown GUARDED_BY(mutex) = 0;  // 0: not armed
  std::string fail_at GUARDED_BY(mutex);
  std::string exit_at GUARDED_BY(mutex);
  ErrorCode code GUARDED_BY(mutex) = ErrorCode::kIo;
  std::optional<std::string> fired GUARDED_BY(mutex);
  std::vector<std::string> passed GUARDED_BY(mutex);
};

Registry& Instance() {
  static Registry registry;
  return registry;
}

}  // namespace

void FailNth(uint64_t n, ErrorCode code) {
  Registry& registry = Instance();
  MutexLock lock(registry.mutex);
  registry.countdown = n;
  registry.code = code;
  registry.fired.reset();
}

void FailAt(std::string_view name, ErrorCode code) {
  Registry& registry = Instance();
  MutexLock lock(registry.mutex);
  registry.fail_at = name;
  registry.code = code;
  registry.fired.reset();
}

void ExitAt(std::string_view name) {
  Registry& registry = Instance();
  MutexLock lock(registry.mutex);
  registry.exit_at = name;
}

void Disarm() {
  Registry& registry = Instance();
  MutexLock lock(registry.mutex);
  registry.countdown = 0;
  registry.fail_at.clear();
  registry.exit_at.clear();
  registry.fired.reset();
  registry.passed.clear();
}

std::optional<std::string> Fired() {
  Registry& registry = Instance();
  MutexLock lock(registry.mutex);
  return registry.fired;
}

std::vector<std::string> Passed() {
  Registry& registry = Instance();
  MutexLock lock(registry.mutex);
  return registry.passed;
}

Result<void> Apply(std::string_view specification) {
  const size_t colon = specification.rfind(':');
  const std::string_view action = colon == std::string_view::npos ? "" : specification.substr(colon + 1);
  const std::string_view name = specification.substr(0, colon);
  if (name.empty() || (action != "exit" && action != "fail")) {
    return Fail(ErrorCode::kInvalidArgument,
                "MOONPOOL_FAULT must be NAME:exit or NAME:fail, not '" + std::string(specification) + "'");
  }
  if (action == "exit") ExitAt(name);
  if (action == "fail") FailAt(name);
  return {};
}

std::optional<Error> Reach(const char* name) {
  Registry& registry = Instance();
  MutexLock lock(registry.mutex);
  if (!registry.exit_at.empty() && registry.exit_at == name) _exit(kExitStatus);
  if (std::find(registry.passed.begin(), registry.passed.end(), name) == registry.passed.end()) {
    registry.passed.emplace_back(name);
  }
  const bool hit =
      (!registry.fail_at.empty() && registry.fail_at == name) || (registry.countdown > 0 && --registry.countdown == 0);
  if (!hit) return std::nullopt;
  registry.fired = name;
  return Error{registry.code, std::string("injected fault at ") + name};
}

}  // namespace moonpool::fault

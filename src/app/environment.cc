#include "app/environment.h"

#include <cstdlib>

namespace moonpool::app {

std::optional<std::string> EnvironmentValue(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Path DefaultStateRoot() {
  // systemd joins several directories with colons; the first is ours to choose.
  if (const auto given = EnvironmentValue("STATE_DIRECTORY")) return given->substr(0, given->find(':'));
  if (const auto xdg = EnvironmentValue("XDG_STATE_HOME"); xdg && Path(*xdg).is_absolute()) {
    return Path(*xdg) / "moonpool";
  }
  if (const auto home = EnvironmentValue("HOME"); home && Path(*home).is_absolute() && *home != "/") {
    return Path(*home) / ".local" / "state" / "moonpool";
  }
  return "/var/lib/moonpool";
}

}  // namespace moonpool::app

#include "app/service_notice.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <ctime>

namespace moonpool::app {

void ServiceNotice::Ready(std::string_view status) const { Send(fmt::format("READY=1\nSTATUS={}", status)); }

void ServiceNotice::Reloading() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // the manager pairs the reload with its own clock
  Send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1'000'000 + now.tv_nsec / 1000));
}

void ServiceNotice::Stopping() const { Send("STOPPING=1"); }

void ServiceNotice::Send(const std::string& text) const {
  sockaddr_un address{};
  if (socket_path_.empty() || socket_path_.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path_.data(), socket_path_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path_.size());
  (void)sendto(descriptor, text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
  close(descriptor);
}

}  // namespace moonpool::app

// ServiceNotice: tells the service manager (systemd, Type=notify) how the process is: one datagram to the socket that
// $NOTIFY_SOCKET names. Without one, nothing happens. Not thread-safe; owned by the bus command.
#pragma once

#include <string>
#include <string_view>

namespace moonpool::app {

class ServiceNotice {
 public:
  // `socket_path`: a path, or a name of the abstract kind ("@name"); empty: nobody listens.
  explicit ServiceNotice(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  void Ready(std::string_view status) const;
  // Ready() ends it.
  void Reloading() const;
  void Stopping() const;

 private:
  // Errors are of no use to anybody: the manager then sees no readiness and says so.
  void Send(const std::string& text) const;

  const std::string socket_path_;
};

}  // namespace moonpool::app

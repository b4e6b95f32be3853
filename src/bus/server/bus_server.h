// BusServer: everything of the bus that listens. Owns the doors, their lanes and who may use them; borrows the bus.
// Start, then BeginDrain, then Stop; the destructor stops at once. Thread-safe but for Stop and the destructor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "bus/server/access_policy.h"
#include "bus/server/bus_front.h"
#include "bus/server/grpc_door.h"
#include "bus/server/work_lanes.h"
#include "moonpool/result.h"
#include "net/http_server.h"

namespace moonpool::bus {

struct BusServerOptions {
  net::HttpServerOptions http;  // no address and no path: no HTTP
  GrpcDoorOptions grpc;         // no address and no path: no gRPC
  AccessRules access;
  LaneSizes lanes;
  // Addresses that are not loopback are refused without this, and with it unless there are tokens.
  bool listen_any = false;
};

class BusServer {
 public:
  // All doors are open when it returns, or none. `front` outlives the server. Errors name the address or path:
  // kAlreadyExists (in use), kInvalidArgument, kPermission, kNotFound, kIo.
  static Result<std::unique_ptr<BusServer>> Start(const BusServerOptions& options, BusFront& front);
  ~BusServer();

  uint16_t http_port() const;  // 0 without
  uint16_t grpc_port() const;
  // What gRPC's health service says; HTTP's /readyz asks the bus each time.
  void SetServing(bool serving);
  // Prepares that wait end now, new ones are refused; commits and everything else go on.
  void BeginDrain();
  // Closes the doors; calls that run may end within `grace`. Idempotent.
  void Stop(Duration grace);

 private:
  class Impl;
  explicit BusServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Whether a numeric address is loopback: 127.0.0.0/8 or ::1.
bool IsLoopback(const std::string& address);

}  // namespace moonpool::bus

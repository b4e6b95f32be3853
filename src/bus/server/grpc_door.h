// GrpcDoor: service moonpool.v1.KVCacheBus over gRPC, on a unix socket, a TCP port, or both, with the standard health
// and reflection services. Owned by BusServer. Thread-safe.
//
// gRPC by itself would let a second server take the same unix path and share the same port; here both belong to one
// process: the path by UnixSocketGuard, the port by turning its sharing off (decision 13).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "bus/server/access_policy.h"
#include "bus/server/bus_calls.h"
#include "bus/server/work_lanes.h"
#include "moonpool/result.h"

namespace moonpool::bus {

struct GrpcDoorOptions {
  std::string address;                       // "127.0.0.1", "::1"; empty: no TCP
  uint16_t port = 0;                         // 0: any free one
  std::string unix_socket_path;              // empty: no unix socket
  uint64_t message_bytes_max = 64ull << 20;  // of one request; larger ones: RESOURCE_EXHAUSTED
  uint64_t memory_bytes_max = 512ull << 20;  // of all requests that are being received
};

class GrpcDoor {
 public:
  // Serves when it returns. The borrowed ones outlive the door. kAlreadyExists (the path, or the address: in use),
  // kInvalidArgument, kPermission, kNotFound, kIo, each naming the path or address.
  static Result<std::unique_ptr<GrpcDoor>> Start(const GrpcDoorOptions& options, BusCalls& calls,
                                                 const AccessPolicy& access, WorkLanes& lanes);
  // Stop(0).
  ~GrpcDoor();

  uint16_t port() const;  // 0 without TCP
  // What the health service says of the whole server and of moonpool.v1.KVCacheBus.
  void SetServing(bool serving);
  // No new calls; running ones may end within `grace` (real time), then they are cancelled. Returns when none runs any
  // more. The lanes must still be working. Idempotent.
  void Stop(Duration grace);

 private:
  class Impl;
  explicit GrpcDoor(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace moonpool::bus

#include "bus/server/door_fixture.h"

#include <nlohmann/json.hpp>

#include "bus/server/rpc_code.h"

namespace moonpool::testing {

DoorAnswer DoorFixture::ErrorOf(const net::HttpResponse& response) {
  const auto body = nlohmann::json::parse(response.body, nullptr, false);
  if (body.is_discarded() || !body.contains("error")) return {.code = "NOT_AN_ERROR", .message = response.body};
  return {.code = body["error"]["code"], .message = body["error"]["message"]};
}

std::string DoorFixture::CodeName(grpc::StatusCode code) {
  return std::string(bus::RpcCodeName(static_cast<bus::RpcCode>(code)));
}

}  // namespace moonpool::testing

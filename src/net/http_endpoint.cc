#include <arpa/inet.h>
#include <fmt/format.h>

#include <charconv>

#include "net/http_client.h"

namespace moonpool::net {
namespace {

bool IsAddress(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 || ::inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

tl::unexpected<Error> Refuse(std::string_view url, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is no address of a server: {}; expected like http://127.0.0.1:8080", url, why));
}

}  // namespace

Result<HttpEndpoint> HttpEndpoint::Parse(std::string_view url) {
  for (const char c : url) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f')
      return Refuse("the given text", "blank or control character");
  }
  HttpEndpoint endpoint;
  if (url.starts_with("unix:")) {
    endpoint.unix_socket_path = url.substr(5);
    if (!endpoint.unix_socket_path.starts_with('/')) return Refuse(url, "the path of a unix socket begins with /");
    return endpoint;
  }
  if (url.starts_with("https://")) return Refuse(url, "https is not supported, put a local proxy in front");
  if (!url.starts_with("http://")) return Refuse(url, "it must begin with http:// or unix:");
  std::string_view rest = url.substr(7);
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) endpoint.base_path = rest.substr(slash);
  while (endpoint.base_path.ends_with('/')) endpoint.base_path.pop_back();
  if (endpoint.base_path.find_first_of("?#") != std::string::npos) return Refuse(url, "a query has no place here");
  if (authority.find('@') != std::string_view::npos) return Refuse(url, "user names are not supported");

  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) return Refuse(url, "the bracket is not closed");
    endpoint.host = authority.substr(1, bracket - 1);
    port = authority.substr(bracket + 1);
    if (!port.empty() && port[0] != ':') return Refuse(url, "only a port may follow the bracket");
  } else {
    const size_t colon = authority.find(':');
    endpoint.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon);
  }
  endpoint.port = 80;
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    if (error != std::errc() || end != port.data() + port.size() || endpoint.port == 0) {
      return Refuse(url, "the port is no number from 1 to 65535");
    }
  }
  if (endpoint.host != "localhost" && !IsAddress(endpoint.host)) {
    return Refuse(url, "the host must be a numeric address or localhost");
  }
  return endpoint;
}

std::string HttpEndpoint::ToString() const {
  if (!unix_socket_path.empty()) return "unix:" + unix_socket_path;
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}{}", v6 ? "[" : "", host, v6 ? "]" : "", port, base_path);
}

}  // namespace moonpool::net

// AccessPolicy: who may call, and in whose namespace. Made once from the configuration; immutable, so thread-safe.
//
// Unix sockets are guarded by their mode (0600), loopback by the machine. A token file turns tokens on: then every
// TCP caller needs one of them. A namespace may be bound to a token, to the user at the other end of a unix socket, or
// to a whole listener, in this order of precedence; the request cannot leave it (decision 12, field report B62 c).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// Through which listener a request came.
enum class Listener { kHttpTcp, kHttpUnix, kGrpcTcp, kGrpcUnix };
inline constexpr bool IsUnix(Listener listener) {
  return listener == Listener::kHttpUnix || listener == Listener::kGrpcUnix;
}

struct Visitor {
  Listener listener = Listener::kHttpTcp;
  std::string_view authorization;  // "Bearer TOKEN", as the header or metadata has it; empty: none
  std::optional<uint32_t> peer_uid;
};

// A visitor that was let in.
struct Caller {
  std::optional<std::string> bound_namespace;

  // The namespace to use for a request that names `wanted` ("" where it names none).
  // kPermission if the caller is bound to another one.
  Result<std::string> NamespaceFor(const std::string& wanted) const;
};

// What an operator says about access; see docs/operations/running.md.
struct AccessRules {
  struct Grant {
    std::string token;
    std::optional<std::string> name_space;
  };
  std::vector<Grant> tokens;
  std::map<Listener, std::string> listener_namespaces;
  std::map<uint32_t, std::string> uid_namespaces;

  static constexpr size_t kTokenBytesMin = 16;

  // Lines "TOKEN" or "TOKEN namespace=NAME"; empty lines and lines that begin with '#' say nothing. kInvalidArgument
  // names the line, never the token: no token at all, one shorter than kTokenBytesMin, one given twice.
  static Result<std::vector<Grant>> ParseTokens(std::string_view text);
  // "http=NAME", "http-unix=NAME", "grpc=NAME", "grpc-unix=NAME", "uid:1000=NAME"; added to the maps.
  Result<void> Bind(std::string_view rule);
};

class AccessPolicy {
 public:
  explicit AccessPolicy(const AccessRules& rules);

  // Nothing: the visitor must show a valid token first. Takes the same time for every wrong token.
  std::optional<Caller> Admit(const Visitor& visitor) const;
  bool needs_token() const { return !grants_.empty(); }

 private:
  struct Grant {
    Digest256 token_digest;  // tokens themselves are not kept
    std::optional<std::string> name_space;
  };
  std::vector<Grant> grants_;
  std::map<Listener, std::string> listener_namespaces_;
  std::map<uint32_t, std::string> uid_namespaces_;
};

}  // namespace moonpool::bus

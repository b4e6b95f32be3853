#include "bus/server/access_policy.h"

#include <fmt/format.h>

#include <charconv>
#include <set>

namespace moonpool::bus {
namespace {

// Without an early exit, so that the time taken says nothing about where two digests part.
bool SameDigest(const Digest256& a, const Digest256& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.bytes.size(); ++i) difference |= a.bytes[i] ^ b.bytes[i];
  return difference == std::byte{0};
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// "Bearer TOKEN"; the scheme's case does not matter (RFC 9110).
std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) return {};
  }
  return Trim(authorization.substr(kScheme.size()));
}

}  // namespace

Result<std::string> Caller::NamespaceFor(const std::string& wanted) const {
  if (!bound_namespace) return wanted;
  if (wanted.empty() || wanted == *bound_namespace) return *bound_namespace;
  return Fail(ErrorCode::kPermission, "namespace: this caller is bound to another one");
}

Result<std::vector<AccessRules::Grant>> AccessRules::ParseTokens(std::string_view text) {
  std::vector<Grant> grants;
  std::set<std::string> seen;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.empty() || line[0] == '#') continue;

    Grant grant;
    const size_t blank = line.find_first_of(" \t");
    grant.token = line.substr(0, blank);
    if (grant.token.size() < kTokenBytesMin) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("line {}: a token has at least {} characters", number, kTokenBytesMin));
    }
    if (!seen.insert(grant.token).second) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("line {}: the same token again", number));
    }
    if (blank != line.npos) {
      constexpr std::string_view kNamespace = "namespace=";
      const std::string_view rest = Trim(line.substr(blank));
      if (!rest.starts_with(kNamespace) || rest.size() == kNamespace.size()) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("line {}: after the token only namespace=NAME may follow", number));
      }
      grant.name_space = rest.substr(kNamespace.size());
    }
    grants.push_back(std::move(grant));
  }
  if (grants.empty()) return Fail(ErrorCode::kInvalidArgument, "there is no token in it");
  return grants;
}

Result<void> AccessRules::Bind(std::string_view rule) {
  const size_t equals = rule.find('=');
  const auto refuse = [&] {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("\"{}\" is not http=NAME, http-unix=NAME, grpc=NAME, grpc-unix=NAME or uid:NUMBER=NAME", rule));
  };
  if (equals == rule.npos || equals + 1 == rule.size()) return refuse();
  const std::string_view who = rule.substr(0, equals);
  const std::string name_space(rule.substr(equals + 1));

  constexpr std::string_view kUid = "uid:";
  if (who.starts_with(kUid)) {
    uint32_t uid = 0;
    const char* end = who.data() + who.size();
    const auto parsed = std::from_chars(who.data() + kUid.size(), end, uid);
    if (parsed.ec != std::errc() || parsed.ptr != end) return refuse();
    uid_namespaces[uid] = name_space;
    return {};
  }
  static const std::map<std::string_view, Listener> kListeners = {{"http", Listener::kHttpTcp},
                                                                  {"http-unix", Listener::kHttpUnix},
                                                                  {"grpc", Listener::kGrpcTcp},
                                                                  {"grpc-unix", Listener::kGrpcUnix}};
  const auto listener = kListeners.find(who);
  if (listener == kListeners.end()) return refuse();
  listener_namespaces[listener->second] = name_space;
  return {};
}

AccessPolicy::AccessPolicy(const AccessRules& rules)
    : listener_namespaces_(rules.listener_namespaces), uid_namespaces_(rules.uid_namespaces) {
  for (const AccessRules::Grant& grant : rules.tokens) {
    grants_.push_back({.token_digest = Sha256Of(grant.token), .name_space = grant.name_space});
  }
}

std::optional<Caller> AccessPolicy::Admit(const Visitor& visitor) const {
  Caller caller;
  const std::string_view token = BearerToken(visitor.authorization);
  if (!grants_.empty() && (!IsUnix(visitor.listener) || !visitor.authorization.empty())) {
    const Digest256 digest = Sha256Of(token);
    const Grant* shown = nullptr;
    for (const Grant& grant : grants_) {
      if (SameDigest(grant.token_digest, digest)) shown = &grant;
    }
    if (shown == nullptr) return std::nullopt;
    caller.bound_namespace = shown->name_space;
  }
  if (!caller.bound_namespace && visitor.peer_uid) {
    if (const auto bound = uid_namespaces_.find(*visitor.peer_uid); bound != uid_namespaces_.end()) {
      caller.bound_namespace = bound->second;
    }
  }
  if (!caller.bound_namespace) {
    const auto bound = listener_namespaces_.find(visitor.listener);
    if (bound != listener_namespaces_.end()) caller.bound_namespace = bound->second;
  }
  return caller;
}

}  // namespace moonpool::bus

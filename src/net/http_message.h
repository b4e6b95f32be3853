// What one HTTP request and one answer consist of, without the connection that carried them. Values.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moonpool::net {

// Header fields in the order of the message. Names compare without regard to case.
class HttpHeaders {
 public:
  void Add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  // The first field of that name; the view lives as long as this object is unchanged.
  std::optional<std::string_view> Find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

// A request as the server received it, body complete.
struct HttpRequest {
  std::string method{};  // "GET"; methods that are not registered anywhere arrive here too
  std::string target{};  // as sent: path and query, not decoded
  HttpHeaders headers{};
  std::string body{};
  bool via_unix_socket = false;
  std::optional<uint32_t> peer_uid;  // who is at the other end of a unix socket
  // Set by the server when the client goes away or the server is being stopped; an answer would reach nobody.
  std::shared_ptr<const std::atomic<bool>> cancel_flag;

  bool cancelled() const { return cancel_flag && cancel_flag->load(); }
  // The target up to the query.
  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  // The query without its question mark, not decoded; empty if there is none.
  std::string_view query() const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers{};  // Content-Length, Connection, Date and Server are the sender's business, not the caller's
  std::string body{};
};

inline HttpResponse MakeResponse(int status, std::string content_type, std::string body) {
  HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
  response.headers.Add("Content-Type", std::move(content_type));
  return response;
}

// The usual words for a status ("Not Found"); "Unknown" for a number without any.
std::string_view StatusText(int status);

// Appends "name: value\r\n". Line ends inside the value are dropped: a value can never start a field of its own.
void AppendHeaderField(std::string& head, std::string_view name, std::string_view value);

}  // namespace moonpool::net

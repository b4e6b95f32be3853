#include "net/http_message.h"

#include <algorithm>

namespace moonpool::net {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::optional<std::string_view> HttpHeaders::Find(std::string_view name) const {
  for (const auto& [field, value] : fields_) {
    if (std::ranges::equal(field, name, {}, Lower, Lower)) return value;
  }
  return std::nullopt;
}

std::string_view HttpRequest::query() const {
  const size_t mark = target.find('?');
  return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
}

std::string_view StatusText(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 507: return "Insufficient Storage";
    default: return "Unknown";
  }
}

void AppendHeaderField(std::string& head, std::string_view name, std::string_view value) {
  const auto append = [&head](std::string_view text) {
    for (const char c : text) {
      if (c != '\r' && c != '\n' && c != '\0') head += c;
    }
  };
  append(name);
  head += ": ";
  append(value);
  head += "\r\n";
}

}  // namespace moonpool::net

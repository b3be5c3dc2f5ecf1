#include "server/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>

namespace ingot::server {

std::string_view RequestHead::header(std::string_view lower_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_name) return value;
  }
  return {};
}

namespace {

// Whether it has only characters of an authority (RFC 9112, 3.2): a host and optionally a port, which may be empty.
bool is_authority(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return alphanumeric || std::string_view("-._~%!$&'()*+;=:[]").find(c) != std::string_view::npos;
  });
}

}  // namespace

bool is_plain(const RequestHead& head, unsigned version, bool chunked) {
  const auto count = [&](std::string_view name) {
    return std::ranges::count_if(head.headers, [&](const auto& field) { return field.first == name; });
  };
  const auto hosts = count("host");
  if (hosts > 1 || (hosts == 0 && version >= 11) || !is_authority(head.header("host"))) return false;
  if (count("content-length") > 1 || head.header("content-length").find(',') != std::string_view::npos) return false;
  const auto codings = count("transfer-encoding");
  if (codings == 0) return true;
  return codings == 1 && chunked && version >= 11 && equal_ignoring_case(head.header("transfer-encoding"), "chunked");
}

std::string head_text(const ReplyHead& head, std::optional<size_t> length, bool chunked, bool close) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\n", head.status,
      std::string(boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(head.status))));
  const bool empty = head.status == 204;  // which must have neither header (RFC 9110, 8.6)
  if (!empty) text += fmt::format("Content-Type: {}\r\n", head.content_type);
  if (length && !empty) text += fmt::format("Content-Length: {}\r\n", *length);
  if (chunked) text += "Transfer-Encoding: chunked\r\n";
  if (close) text += "Connection: close\r\n";
  for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, value);
  return text + "\r\n";
}

std::string chunks_of(const ReplyPart& part) {
  std::string text;
  if (!part.bytes.empty()) text = fmt::format("{:x}\r\n{}\r\n", part.bytes.size(), part.bytes);
  if (part.end) text += "0\r\n\r\n";
  return text;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace ingot::server

#include "server/http.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <boost/beast/http/status.hpp>

#include "base/error.h"

namespace ingot::server {

std::string_view RequestHead::header(std::string_view lower_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_name) return value;
  }
  return {};
}

std::string head_text(const ReplyHead& head, std::optional<size_t> length, bool chunked, bool close) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\n", head.status,
      std::string(boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(head.status))));
  text += fmt::format("Content-Type: {}\r\n", head.content_type);
  if (length) text += fmt::format("Content-Length: {}\r\n", *length);
  if (chunked) text += "Transfer-Encoding: chunked\r\n";
  if (close) text += "Connection: close\r\n";
  for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, value);
  return text + "\r\n";
}

std::string chunks_of(const Part& part) {
  std::string text;
  if (!part.bytes.empty()) text = fmt::format("{:x}\r\n{}\r\n", part.bytes.size(), part.bytes);
  if (part.end) text += "0\r\n\r\n";
  return text;
}

bool is_loopback(const std::string& address) {
  boost::system::error_code failed;
  const boost::asio::ip::address parsed = boost::asio::ip::make_address(address, failed);
  if (failed) throw_hint(ErrorKind::usage, "such as 127.0.0.1, 0.0.0.0 or ::1", "'{}' is not an address", address);
  return parsed.is_loopback();
}

}  // namespace ingot::server

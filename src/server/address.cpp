#include "server/address.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

#include "base/error.h"

namespace ingot::server {

std::string client_of(const std::string& address) {
  boost::system::error_code failed;
  const boost::asio::ip::address parsed = boost::asio::ip::make_address(address, failed);
  if (failed) throw_error(ErrorKind::usage, "'{}' is not an IP address", address);
  if (parsed.is_v4()) return parsed.to_string();
  const boost::asio::ip::address_v6 six = parsed.to_v6();
  if (six.is_v4_mapped()) return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, six).to_string();
  boost::asio::ip::address_v6::bytes_type bytes = six.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return boost::asio::ip::address_v6(bytes).to_string() + "/64";
}

bool is_loopback(const std::string& address) {
  boost::system::error_code failed;
  const boost::asio::ip::address parsed = boost::asio::ip::make_address(address, failed);
  if (failed) throw_hint(ErrorKind::usage, "such as 127.0.0.1, 0.0.0.0 or ::1", "'{}' is not an IP address", address);
  return parsed.is_loopback();
}

}  // namespace ingot::server

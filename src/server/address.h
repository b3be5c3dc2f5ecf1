// Addresses of clients and of the server.
#pragma once

#include <string>

namespace ingot::server {

// The key by which a client's connections are counted: the IPv4 address, or the /64 network of an IPv6 address, which
// is one client's. An IPv4-mapped IPv6 address counts as IPv4. ErrorKind::usage when it is not an address.
std::string client_of(const std::string& address);

// Whether it is a loopback address: 127.0.0.0/8 or ::1. ErrorKind::usage when it is not an address.
bool is_loopback(const std::string& address);

}  // namespace ingot::server

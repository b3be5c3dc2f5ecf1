// Addresses of clients and of the server.
#pragma once

#include <string>

namespace ingot::server {

// By what connections are counted: the address; of IPv6 the network of 64 bits, which is one client's; an IPv4 address
// that is written as IPv6 is the IPv4 one. ErrorKind::usage when it is not an address.
std::string client_of(const std::string& address);

// Whether an address is of this machine only: 127.0.0.0/8 or ::1. ErrorKind::usage when it is not an address.
bool is_loopback(const std::string& address);

}  // namespace ingot::server

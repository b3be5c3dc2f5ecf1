// One client of the HTTP server, from its first byte to its last. For http_server.cpp only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "server/body_budget.h"
#include "server/peers.h"
#include "server/work_queue.h"

namespace boost::asio {
class io_context;
namespace ssl {
class context;
}
}  // namespace boost::asio

namespace ingot::server {

// What the connections share; outlives them.
struct Connections {
  const HttpSettings& settings;
  Handler& handler;
  boost::asio::io_context& io;
  Guarded<std::shared_ptr<boost::asio::ssl::context>>& tls;  // of new connections, where there is a certificate
  WorkQueue& workers;                                        // for Exchange::receive
  Peers peers{settings.limits};
  BodyBudget bodies{settings.limits.bodies_bytes, settings.limits.uncounted_bytes};
  std::atomic<int64_t> exchanges{0};   // requests whose answer has not ended
  std::atomic<bool> draining{false};   // every answer is its connection's last
  std::atomic<bool> finishing{false};  // no body is read any more, and no head is waited for long
};

// Takes an accepted TCP socket over and serves it on the threads that run `io`, or tells the client that there are too
// many, or closes it. Errors: std::exception where memory or descriptors are used up; the socket is closed then.
void begin_connection(Connections& all, Descriptor socket, bool ipv6, const std::string& address);

}  // namespace ingot::server

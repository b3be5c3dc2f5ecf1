// One client connection of the HTTP server, from its first byte to its last. For http_server.cpp only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "server/body_budget.h"
#include "server/connections.h"
#include "server/work_queue.h"

namespace boost::asio {
class io_context;
namespace ssl {
class context;
}
}  // namespace boost::asio

namespace ingot::server {

// What the connections share; must outlive them.
struct ConnectionContext {
  const HttpSettings& settings;
  Handler& handler;
  boost::asio::io_context& io;
  Guarded<std::shared_ptr<boost::asio::ssl::context>>& tls;  // for new connections; null without a certificate
  WorkQueue& workers;                                        // for Collective::receive
  Connections connections{settings.limits};
  BodyBudget bodies{settings.limits.bodies_bytes, settings.limits.uncounted_bytes};
  std::atomic<int64_t> exchanges{0};   // requests whose answer is not complete
  std::atomic<bool> draining{false};   // every answer is the last of its connection
  std::atomic<bool> finishing{false};  // no more bodies are read, and a head is waited for only briefly
};

// Takes over an accepted TCP socket and serves it on the threads that run `io`, or answers that there are too many
// connections, or closes it. Errors: std::exception when memory or descriptors run out; the socket is closed then.
void begin_connection(ConnectionContext& all, Descriptor socket, bool ipv6, const std::string& address);

}  // namespace ingot::server

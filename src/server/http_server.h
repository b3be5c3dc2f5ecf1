// The HTTP/1.1 server: connections, limits, time-outs and TLS. What is answered is its Handler's.
#pragma once

#include <cstdint>
#include <memory>

#include "server/http.h"

namespace ingot::server {

class HttpServer {
 public:
  // Listens and begins to answer. `handler` outlives it. Errors: usage for an address or certificate that cannot be
  // used; unavailable when the port is taken.
  HttpServer(HttpSettings settings, Handler& handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  // drops what is left

  int port() const;
  HttpCounts counts() const;

  // From now on every answer is its connection's last, and connections without a request are closed. New connections
  // are still answered, so that probes see that the server drains.
  void drain();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server

// The HTTP/1.1 server: connections, limits, time-outs and TLS. What is answered is its Handler's.
#pragma once

#include <cstdint>
#include <memory>

#include "server/http.h"

namespace ingot::server {

class HttpServer {
 public:
  // Listens and begins to answer. `handler` outlives it. Errors: usage for an address or certificate that cannot be
  // used; unavailable when the port is taken; resource when the threads cannot be started.
  HttpServer(HttpSettings settings, Handler& handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  // drops what is left

  int port() const;
  HttpCounts counts() const;

  // From now on every answer is its connection's last, and connections that have had one and have no request now are
  // closed. New connections are still answered, so that probes see that the server drains.
  void drain();
  // After `drain`, when time is up: every answer is looked at again, as its handler has an end for it by now; bodies
  // are read no further, and heads are waited for no longer than HttpLimits::last_head_s. Nobody can connect any more;
  // requests of those who have are answered. When there are no connections left, all is done. Once.
  void finish();

  // New connections get the certificate and key that the files hold now. Errors: usage; the former ones stay then.
  void reload_certificate();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server

// The HTTP/1.1 server: connections, limits, time-outs and TLS. A Handler produces the responses.
#pragma once

#include <cstdint>
#include <memory>

#include "server/http.h"

namespace ingot::server {

class HttpServer {
 public:
  // Listens and starts to serve. `handler` must outlive it. Errors: usage for an invalid address or certificate;
  // unavailable when the port is taken; resource when the threads cannot be started.
  HttpServer(HttpSettings settings, Handler& handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  // drops open connections

  int port() const;
  HttpCounts counts() const;

  // From now on every connection is closed after its next response, and idle connections that have had a response are
  // closed at once. New connections are still served, so that probes see that the server drains.
  void drain();
  // Called once, after `drain`, at the end of the grace period. Accepts no new connections, reads no more request
  // bodies and waits at most HttpLimits::last_head_s for request heads. Polls all pending exchanges once more, so that
  // the handler can end them; requests on open connections get a response. The server is done when no connections are
  // left.
  void finish();

  // Reads the certificate and key files again, for new connections. Errors: usage; the old ones then stay in use.
  void reload_certificate();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server

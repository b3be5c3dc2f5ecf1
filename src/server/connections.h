// The open connections, and which of them are served.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/mutex.h"
#include "server/http.h"

namespace ingot::server {

// A connection as the server sees it. The functions may be called from any thread.
struct OpenConnection {
  virtual ~OpenConnection() = default;
  virtual void drain() = 0;   // closes it if it is idle
  virtual void finish() = 0;  // makes it check Connections::finishing
  virtual void stop() = 0;
};

enum class Admittance {
  served,
  refused,  // gets the answer that there are too many connections
  dropped,  // closed without an answer: too many are being refused
};

// Thread-safe.
class Connections {
 public:
  // `limits` must outlive it.
  explicit Connections(const HttpLimits& limits) : limits_(limits) {}

  // A connection that is not dropped is kept until `leave` is called with the same address (client_of) and the
  // Admittance that `enter` returned.
  Admittance enter(const std::shared_ptr<OpenConnection>& peer, const std::string& address);
  void leave(const std::shared_ptr<OpenConnection>& peer, const std::string& address, Admittance entered);
  int64_t count();  // including refused ones
  void drain();
  void finish();
  void stop();  // also stops connections that enter later

 private:
  struct Known {
    std::set<std::shared_ptr<OpenConnection>> connections;
    std::map<std::string, int64_t> by_address;  // served connections, by client
    int64_t served = 0;
    bool stopping = false;
  };
  const HttpLimits& limits_;
  Guarded<Known> known_;
};

}  // namespace ingot::server

// The connections that there are, and which of them have a place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/mutex.h"
#include "server/http.h"

namespace ingot::server {

// A connection as the server sees it. All may be called from any thread.
struct Peer {
  virtual ~Peer() = default;
  virtual void drain() = 0;   // ends when it has no request
  virtual void finish() = 0;  // looks at Connections::finishing
  virtual void stop() = 0;
};

enum class Entry {
  served,
  refused,  // is told that there are too many
  dropped,  // not even that: too many are being told
};

// Thread-safe.
class Peers {
 public:
  // The limits outlive it.
  explicit Peers(const HttpLimits& limits) : limits_(limits) {}

  // Whoever is not dropped is kept until it leaves, from the same client (client_of), as what it entered.
  Entry enter(const std::shared_ptr<Peer>& peer, const std::string& address);
  void leave(const std::shared_ptr<Peer>& peer, const std::string& address, Entry entered);
  int64_t count();  // refused ones too
  void drain();
  void finish();
  void stop();  // those too that come later

 private:
  struct Known {
    std::set<std::shared_ptr<Peer>> peers;
    std::map<std::string, int64_t> by_address;  // of those that are served
    int64_t served = 0;
    bool stopping = false;
  };
  const HttpLimits& limits_;
  Guarded<Known> known_;
};

}  // namespace ingot::server

// The bytes of all requests' bodies that a server holds at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/mutex.h"

namespace ingot::server {

// Thread-safe.
class BodyBudget {
 public:
  // `max_bytes`: of all bodies together, and half of them of one owner's; owner 0, that of requests without a key, may
  // have all. `uncounted`: of each body, its first bytes, which take nothing of these.
  BodyBudget(size_t max_bytes, size_t uncounted) : max_bytes_(max_bytes), uncounted_(uncounted) {}

  size_t held() const { return held_.lock()->bytes; }  // that are counted now; at most `max_bytes`

  // What one body takes of it; given back at the end, which comes before the budget's. One thread at a time.
  class Share {
   public:
    explicit Share(BodyBudget& budget) : budget_(budget) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { release(); }

    void set_owner(uint64_t owner);  // REQUIRES that it has nothing
    // The body has so many bytes now, at least as many as before. False, and nothing is taken, when what is counted of
    // all bodies together, or of the owner's, would be more than the budget.
    bool grow(size_t bytes);
    void release();

   private:
    BodyBudget& budget_;
    uint64_t owner_ = 0;
    size_t counted_ = 0;
  };

 private:
  struct Held {
    size_t bytes = 0;
    std::map<uint64_t, size_t> of;  // of them, by owner; 0 has no entry
  };
  const size_t max_bytes_;
  const size_t uncounted_;
  mutable Guarded<Held> held_;
};

}  // namespace ingot::server

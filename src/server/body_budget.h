// Limits the total bytes of the request bodies that a server holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/mutex.h"

namespace ingot::server {

// Thread-safe.
class BodyBudget {
 public:
  // `max_bytes`: of all bodies together; one owner may have half of it, and owner 0 (requests without a key) all.
  // `uncounted`: the first bytes of each body, which do not count.
  BodyBudget(size_t max_bytes, size_t uncounted) : max_bytes_(max_bytes), uncounted_(uncounted) {}

  size_t held() const { return held_.lock()->bytes; }  // counted bytes now; at most `max_bytes`

  // The part of the budget that one body takes, given back on destruction. The budget must outlive it. One thread at a
  // time.
  class Share {
   public:
    explicit Share(BodyBudget& budget) : budget_(budget) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { release(); }

    void set_owner(uint64_t owner);  // REQUIRES that it has taken nothing
    // The body has `bytes` bytes now, at least as many as before. False, and nothing is taken, when the counted bytes
    // of all bodies, or of the owner's, would exceed the budget.
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
    std::map<uint64_t, size_t> of;  // of these, by owner; owner 0 has no entry
  };
  const size_t max_bytes_;
  const size_t uncounted_;
  mutable Guarded<Held> held_;
};

}  // namespace ingot::server

// The bytes of all requests' bodies that a server holds at a time.
#pragma once

#include <atomic>
#include <cstddef>

namespace ingot::server {

// Thread-safe.
class BodyBudget {
 public:
  // `most`: bytes of all bodies together; `uncounted`: of each body, its first bytes, which take nothing of these.
  BodyBudget(size_t most, size_t uncounted) : most_(most), uncounted_(uncounted) {}

  size_t held() const { return held_; }  // bytes that are counted now; at most `most`

  // What one body takes of it; given back at the end, which comes before the budget's. One thread at a time.
  class Share {
   public:
    explicit Share(BodyBudget& budget) : budget_(budget) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { release(); }

    // The body has so many bytes now, at least as many as before. False, and nothing is taken, when what is counted of
    // all bodies together would be more than the budget.
    bool grow(size_t bytes);
    void release();

   private:
    BodyBudget& budget_;
    size_t counted_ = 0;
  };

 private:
  const size_t most_;
  const size_t uncounted_;
  std::atomic<size_t> held_{0};
};

}  // namespace ingot::server

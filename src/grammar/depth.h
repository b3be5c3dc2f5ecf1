// A bound on recursion depth: input from a request must not overflow the stack.
#pragma once

#include "base/error.h"

namespace ingot::grammar {

// Increments `counter` for its lifetime. Errors: resource when `counter` has reached `max_depth`; the counter is then
// unchanged.
class DepthGuard {
 public:
  DepthGuard(int& counter, int max_depth) : counter_(counter) {
    if (counter_ >= max_depth)
      throw_error(ErrorKind::resource, "the grammar is nested deeper than {} levels", max_depth);
    ++counter_;
  }
  ~DepthGuard() { --counter_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& counter_;
};

}  // namespace ingot::grammar

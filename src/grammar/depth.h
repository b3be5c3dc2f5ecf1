// A bound on recursion: what comes from a request must not overflow the stack.
#pragma once

#include "base/error.h"

namespace ingot::grammar {

// One level more while it lives. Errors: resource beyond `most` levels; the counter is then as before.
class Deeper {
 public:
  Deeper(int& counter, int most) : counter_(counter) {
    if (counter_ >= most) throw_error(ErrorKind::resource, "the grammar is nested deeper than {} levels", most);
    ++counter_;
  }
  ~Deeper() { --counter_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& counter_;
};

}  // namespace ingot::grammar

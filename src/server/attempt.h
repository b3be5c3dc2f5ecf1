// Runs work whose failure must not prevent what follows.
#pragma once

#include <exception>

namespace ingot::server {

// Runs `work`. False when it throws.
template <class Work>
bool attempt(const Work& work) {
  try {
    work();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace ingot::server

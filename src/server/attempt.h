// Work whose failure must not keep what comes behind it from being done.
#pragma once

#include <exception>

namespace ingot::server {

// Whether the work ended without an exception.
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

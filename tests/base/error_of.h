// The error that a call must end with.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>

#include "base/error.h"

namespace ingot {

// What `action` throws; a test failure where it throws nothing, or something else.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an Error: " << error.what();
  }
  return {ErrorKind::internal, ""};
}

}  // namespace ingot

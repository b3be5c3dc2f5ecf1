// Captures the Error that a call must throw.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>

#include "base/error.h"

namespace ingot {

// The Error that `action` throws. The test fails when it throws nothing or another type.
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

// The message of the Error that `action` throws; empty if it throws nothing.
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

}  // namespace ingot

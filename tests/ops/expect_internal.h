// Misuse of an op must throw an internal error with a message.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace ingot {

// Expects that `body` throws ErrorKind::internal with `text` in its message.
template <class Body>
void expect_internal(Body body, const char* text) {
  try {
    body();
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  }
}

}  // namespace ingot

// Misuse of an op: an internal error that says what is wrong.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace ingot {

// `body` throws ErrorKind::internal, with `text` in its message.
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

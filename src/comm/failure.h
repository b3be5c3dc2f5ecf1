// How a rank's failure reaches the others, for transports.
#pragma once

#include "base/error.h"

namespace ingot::comm {

struct Failure {
  int rank = 0;  // of the world
  Error error;
};

// What whoever waits for that rank throws: its error, with its name before the message.
[[noreturn]] void throw_failure(const Failure& failure);

// Of the exception that is being handled; `internal` for one that is not ours.
Error error_of_exception();

// Of a wait that was too long.
inline constexpr const char* timeout_hint =
    "a rank hangs or is far behind; look at what it does, or allow more time (parallel.timeout_s)";

}  // namespace ingot::comm

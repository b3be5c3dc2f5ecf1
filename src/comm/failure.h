// How a rank's failure is reported to the other ranks, for transports.
#pragma once

#include "base/error.h"

namespace ingot::comm {

struct Failure {
  int rank = 0;  // in the world group
  Error error;

  // The error with its rank in the message; but of a wrong request, which is that of all ranks, the error itself.
  Error of_rank() const {
    if (error.kind() == ErrorKind::usage) return error;
    return {error.kind(), fmt::format("rank {}: {}", rank, error.message()), error.hint()};
  }
};

// Throws the failed rank's error, with its rank before the message. For ranks that wait for the failed one.
[[noreturn]] void throw_failure(const Failure& failure);

// The error of the exception that is being handled; `internal` for an exception that is not an ingot::Error.
Error error_of_exception();

// The hint of a wait that timed out.
inline constexpr const char* timeout_hint =
    "a rank hangs or is far behind: check its log, or raise parallel.timeout_s (of a server: --rank-timeout)";

}  // namespace ingot::comm

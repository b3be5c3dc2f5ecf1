// A transport for ranks that are threads of one process.
#pragma once

#include <functional>

#include "base/function_ref.h"
#include "comm/group.h"

namespace ingot::comm {

struct InProcess {
  int ranks = 1;
  // Seconds that a rank waits for another before it fails with ErrorKind::unavailable, naming the rank it waited for.
  double timeout_s = 600;
  // Called on the caller's thread when a rank has failed and another has not ended within timeout_s. A thread cannot be
  // ended from outside, so this function must end the process; it does not return. Absent: run_in_process keeps
  // waiting.
  std::function<void(const Error&)> stuck;
};

// Calls body(world) once per rank, each on a thread of its own (all signals blocked), and returns when all have ended.
// A single rank runs on the caller's thread. When a rank throws, every operation that other ranks wait for throws too,
// with that rank's reason, and the rank's error is thrown here (Failure::of_rank).
void run_in_process(const InProcess& settings, FunctionRef<void(const Group&)> body);

}  // namespace ingot::comm

// Ranks that are threads of one process.
#pragma once

#include <functional>

#include "base/function_ref.h"
#include "comm/group.h"

namespace ingot::comm {

struct InProcess {
  int ranks = 1;
  // Seconds that a rank waits for another before it fails, with ErrorKind::unavailable, and says for whom it waited.
  double timeout_s = 600;
  // Called on the caller's thread when a rank has failed and another has not ended within timeout_s: a thread cannot be
  // ended from outside, so the process has to be; it does not return. Absent: the call goes on waiting.
  std::function<void(const Error&)> stuck;
};

// Calls body(world) once a rank, each on a thread of its own (all signals blocked), and returns when all have ended.
// One rank runs on the caller's thread. When a rank throws, whatever the others wait for throws too, with its reason,
// and that rank's exception is thrown here, its message naming the rank.
void run_in_process(const InProcess& settings, FunctionRef<void(const Group&)> body);

}  // namespace ingot::comm

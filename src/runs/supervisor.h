// `--restarts N`: the run is a child process, which is restarted from its last checkpoint when it fails in a way that
// may succeed on another attempt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "runs/folder.h"

namespace ingot::runs {

struct Supervised {
  std::string launcher;                // command prefix, "srun -n 4"; empty: none
  std::vector<std::string> arguments;  // the executable's, without --resume
  Resume resume = Resume::no;          // of the first attempt
  std::filesystem::path run;           // the run's folder
  int64_t restarts = 0;                // max number of restarts
  double wait_s = 10;  // delay before the first restart; doubles for each further one, up to ten minutes
};

// Runs the child, and returns the exit code of the last attempt. stop_signals() (base/signals.h) are forwarded to the
// child and stop further restarts: 130. Restarted: the process was killed or crashed, a device or a store failed
// (unavailable), an internal error, memory or disk ran out after the run had made steps (resource). Not restarted:
// wrong settings and bad input. Every restart is a warning in the run's events and in its log. Errors: usage when this
// process is one of several ranks; unavailable when no process can be created.
int supervise(const Supervised& what, Log& log);

}  // namespace ingot::runs

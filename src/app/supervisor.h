// `--restarts N`: the run is a child process, and is begun again from its last checkpoint when it fails in a way that
// another attempt may mend.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/run_folder.h"
#include "base/log.h"

namespace ingot::app {

struct Supervised {
  std::string launcher;                // words before the executable, "srun -n 4"; empty: the executable itself
  std::vector<std::string> arguments;  // of the executable, without --resume
  Resume resume = Resume::no;          // the first attempt's
  std::filesystem::path run;           // the run's folder
  int64_t restarts = 0;                // at most
  double wait_s = 10;                  // before the first; doubled for each that follows, to ten minutes at most
};

// Runs it, and returns the exit code of the last attempt. stop_signals() (base/signals.h) are passed on to the child
// and end the matter: 130. What mends: the process was killed or crashed, a device or a store failed (unavailable),
// Ingot did (internal), memory or disk ran out after the run had made steps (resource). What does not: wrong settings
// and bad input. Every restart is a warning in the run's events and in its log. Errors: usage when this process is one
// of several ranks; unavailable when no process can be made.
int supervise(const Supervised& what, Log& log);

}  // namespace ingot::app

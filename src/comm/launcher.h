// Whether a launcher (mpirun, srun) has started this process as one of several, told from the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ingot::comm {

struct Launch {
  std::string launcher;  // "mpirun", "srun": for messages
  int size = 1;          // processes that it has started
};

// `variable` is the environment: getenv, or a test's. Empty when there is one process, or what Slurm says is of the
// batch script and not of a step. ErrorKind::usage when a launcher's number is none.
//
// mpirun's variables come before Slurm's: inside an allocation mpirun starts its own daemons by srun, and what it
// starts there finds Slurm's numbers of those daemons.
std::optional<Launch> find_launch(const std::function<const char*(const char*)>& variable);

}  // namespace ingot::comm

// Detects from the environment whether a launcher (mpirun, srun) has started this process as one of several.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ingot::comm {

struct Launch {
  std::string launcher;  // "mpirun", "srun": for messages
  int size = 1;          // number of processes that it has started
};

// `variable` reads the environment: getenv, or a test's function. Empty when there is only one process, or when Slurm's
// variables describe the batch script and not a step. ErrorKind::usage when a launcher's number of processes is not
// valid.
//
// mpirun's variables take precedence over Slurm's: inside an allocation mpirun starts its own daemons with srun, and
// the processes that those start inherit Slurm's variables, which describe the daemons.
std::optional<Launch> find_launch(const std::function<const char*(const char*)>& variable);

}  // namespace ingot::comm

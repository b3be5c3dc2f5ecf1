#include "comm/launcher.h"

#include <charconv>
#include <string_view>

#include "base/error.h"

namespace ingot::comm {

std::optional<Launch> find_launch(const std::function<const char*(const char*)>& variable) {
  struct Source {
    const char* launcher;
    const char* size;
    const char* also;  // must be set too
  };
  // Open MPI; MPICH and Intel MPI (their hydra, and Slurm's own PMI-2); Slurm's steps.
  for (const Source& source :
       {Source{"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, Source{"mpirun", "PMI_SIZE", "PMI_RANK"},
        Source{"srun", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"}}) {
    const char* text = variable(source.size);
    if (text == nullptr || variable(source.also) == nullptr) continue;
    const std::string_view number(text);
    Launch launch{source.launcher};
    const auto [end, error] = std::from_chars(number.begin(), number.end(), launch.size);
    if (error != std::errc() || end != number.end() || launch.size < 1) {
      throw_hint(ErrorKind::usage, "unset it, or start ingot with the launcher",
                 "the environment variable {} is '{}', which is not a number of processes", source.size, number);
    }
    if (launch.size > 1) return launch;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace ingot::comm

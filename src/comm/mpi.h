// Ranks that are processes, started by mpirun or srun, over the MPI plug-in (mpi_plugin.h).
#pragma once

#include <filesystem>

#include "base/function_ref.h"
#include "comm/group.h"

namespace ingot::comm {

struct Mpi {
  std::filesystem::path plugin;
  int size = 1;            // processes that the launcher says it has started
  double timeout_s = 600;  // as InProcess::timeout_s
};

// Where the plug-in is: what INGOT_MPI names, else libingot-mpi.so beside the executable or in ../lib/ingot.
// ErrorKind::unavailable, with how to build it, when it is nowhere.
std::filesystem::path find_mpi_plugin();

struct Place {
  Group world;
  int local = 0;   // rank among the processes on this machine
  int locals = 1;  // how many these are
};

// Calls body(place) on this thread. Once a process.
// When it throws here or elsewhere, whatever the others wait for throws with that rank's reason; this then rethrows,
// and MPI is told to end the processes that are left when this one exits (by exit or from main, not by _exit). Errors
// besides: unavailable when the plug-in cannot be loaded or MPI not initialised, or when MPI knows of another number of
// processes than the launcher, which happens when the plug-in was built with another MPI.
void run_mpi(const Mpi& settings, FunctionRef<void(const Place&)> body);

}  // namespace ingot::comm

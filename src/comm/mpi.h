// A transport for ranks that are processes, started by mpirun or srun, over the MPI plug-in (mpi_plugin.h).
#pragma once

#include <filesystem>

#include "base/function_ref.h"
#include "comm/group.h"

namespace ingot::comm {

struct Mpi {
  std::filesystem::path plugin;
  int size = 1;            // number of processes that the launcher reports
  double timeout_s = 600;  // as InProcess::timeout_s
};

// The path of the plug-in: $INGOT_MPI, else libingot-mpi.so beside the executable or in ../lib/ingot.
// ErrorKind::unavailable, with how to build it, when it is not found.
std::filesystem::path find_mpi_plugin();

struct MpiRank {
  Group world;
  int local = 0;   // rank among the processes on this machine
  int locals = 1;  // number of processes on this machine
};

// Calls body(rank) on this thread. At most one call per process. When any rank throws, the operations that other ranks
// wait for throw too, with that rank's reason. This function then rethrows, and MPI ends the remaining processes when
// this process exits (by exit or from main, not by _exit). Errors besides: unavailable when the plug-in cannot be
// loaded, when MPI cannot be initialised, or when MPI has another number of processes than the launcher reports, which
// happens when the plug-in was built with another MPI.
void run_mpi(const Mpi& settings, FunctionRef<void(const MpiRank&)> body);

}  // namespace ingot::comm

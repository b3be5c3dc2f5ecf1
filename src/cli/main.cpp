// The program's entry point. Each subcommand has its own file in this folder.
#include <cstdlib>

#include "cli/command.h"

int main(int argc, char** argv) {
  // Several communicators of NCCL (2.26 and later) on a device need one order of launches on all ranks. Set here, where
  // the process has one thread.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  return ingot::cli::run_command_line(argc, argv);
}

// The program's entry point. Each subcommand has its own file in this folder.
#include "cli/command.h"

int main(int argc, char** argv) { return ingot::cli::run_command_line(argc, argv); }

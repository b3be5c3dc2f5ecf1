// The program's entry point. Each subcommand has its own file in this folder.
#include "app/command.h"

int main(int argc, char** argv) { return ingot::app::run_command_line(argc, argv); }

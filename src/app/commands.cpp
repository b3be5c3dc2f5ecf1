// The list of subcommands: one line each, one file each.
#include "app/command.h"

namespace ingot::app {

std::unique_ptr<Command> pretrain_command();
std::unique_ptr<Command> finetune_command();
std::unique_ptr<Command> report_command();

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(pretrain_command());
  commands.push_back(finetune_command());
  commands.push_back(report_command());
  return commands;
}

}  // namespace ingot::app

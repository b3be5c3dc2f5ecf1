// The list of subcommands: one line each, one source file each.
#include "cli/command.h"

namespace ingot::cli {

std::unique_ptr<Command> devices_command();
std::unique_ptr<Command> doctor_command();
std::unique_ptr<Command> init_command();
std::unique_ptr<Command> model_command();
std::unique_ptr<Command> tokenize_command();
std::unique_ptr<Command> data_command();
std::unique_ptr<Command> render_command();
std::unique_ptr<Command> score_command();
std::unique_ptr<Command> eval_command();
std::unique_ptr<Command> generate_command();
std::unique_ptr<Command> chat_command();
std::unique_ptr<Command> serve_command();
std::unique_ptr<Command> pretrain_command();
std::unique_ptr<Command> finetune_command();
std::unique_ptr<Command> replay_command();
std::unique_ptr<Command> report_command();
std::unique_ptr<Command> grammar_command();
std::unique_ptr<Command> bench_command();
std::unique_ptr<Command> recipe_command();

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(devices_command());
  commands.push_back(doctor_command());
  commands.push_back(init_command());
  commands.push_back(model_command());
  commands.push_back(tokenize_command());
  commands.push_back(data_command());
  commands.push_back(render_command());
  commands.push_back(score_command());
  commands.push_back(eval_command());
  commands.push_back(generate_command());
  commands.push_back(chat_command());
  commands.push_back(serve_command());
  commands.push_back(pretrain_command());
  commands.push_back(finetune_command());
  commands.push_back(replay_command());
  commands.push_back(report_command());
  commands.push_back(grammar_command());
  commands.push_back(bench_command());
  commands.push_back(recipe_command());
  return commands;
}

}  // namespace ingot::cli

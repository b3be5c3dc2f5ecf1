// ingot model: its subcommands are in model_*.cpp.
#include "cli/command.h"

namespace ingot::cli {

std::unique_ptr<Command> model_pull_command();
std::unique_ptr<Command> model_list_command();
std::unique_ptr<Command> model_inspect_command();
std::unique_ptr<Command> model_convert_command();
std::unique_ptr<Command> model_merge_command();

namespace {

class ModelGroup : public Command {
 public:
  const char* name() const override { return "model"; }
  const char* summary() const override { return "download, list, inspect, convert and merge models"; }
  void declare(Arguments& arguments) override { arguments.example("ingot model inspect SmolLM2-135M-Instruct"); }
  int run(const Output&) override { return 0; }
  std::vector<std::unique_ptr<Command>> children() override {
    std::vector<std::unique_ptr<Command>> children;
    children.push_back(model_pull_command());
    children.push_back(model_list_command());
    children.push_back(model_inspect_command());
    children.push_back(model_convert_command());
    children.push_back(model_merge_command());
    return children;
  }
};

}  // namespace

std::unique_ptr<Command> model_command() { return std::make_unique<ModelGroup>(); }

}  // namespace ingot::cli

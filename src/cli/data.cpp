// ingot data: its subcommands are in data_*.cpp.
#include "cli/command.h"

namespace ingot::cli {

std::unique_ptr<Command> data_tokenize_command();
std::unique_ptr<Command> data_mds_command();
std::unique_ptr<Command> data_pack_command();
std::unique_ptr<Command> data_inspect_command();
std::unique_ptr<Command> data_order_command();

namespace {

class DataGroup : public Command {
 public:
  const char* name() const override { return "data"; }
  const char* summary() const override { return "convert and inspect data sets and their training order"; }
  void declare(Arguments& arguments) override { arguments.example("ingot data inspect c4_text_document.idx"); }
  int run(const Output&) override { return 0; }
  std::vector<std::unique_ptr<Command>> children() override {
    std::vector<std::unique_ptr<Command>> children;
    children.push_back(data_tokenize_command());
    children.push_back(data_pack_command());
    children.push_back(data_mds_command());
    children.push_back(data_inspect_command());
    children.push_back(data_order_command());
    return children;
  }
};

}  // namespace

std::unique_ptr<Command> data_command() { return std::make_unique<DataGroup>(); }

}  // namespace ingot::cli

// ingot bench: verifies results, then measures speed.
#include "cli/command.h"

namespace ingot::cli {

std::unique_ptr<Command> bench_op_command();         // bench_op.cpp
std::unique_ptr<Command> bench_train_command();      // bench_train.cpp
std::unique_ptr<Command> bench_decode_command();     // bench_decode.cpp
std::unique_ptr<Command> bench_parity_command();     // bench_parity.cpp
std::unique_ptr<Command> bench_curves_command();     // bench_curves.cpp
std::unique_ptr<Command> bench_report_command();     // bench_report.cpp
std::unique_ptr<Command> bench_tokenizer_command();  // bench_tokenizer.cpp
std::unique_ptr<Command> bench_grammar_command();    // bench_grammar.cpp

namespace {

class Bench : public Command {
 public:
  const char* name() const override { return "bench"; }
  const char* summary() const override { return "verify, then time"; }
  void declare(Arguments& arguments) override { arguments.example("ingot bench op"); }
  int run(const Output&) override { return 0; }
  std::vector<std::unique_ptr<Command>> children() override {
    std::vector<std::unique_ptr<Command>> all;
    all.push_back(bench_op_command());
    all.push_back(bench_train_command());
    all.push_back(bench_decode_command());
    all.push_back(bench_parity_command());
    all.push_back(bench_curves_command());
    all.push_back(bench_report_command());
    all.push_back(bench_tokenizer_command());
    all.push_back(bench_grammar_command());
    return all;
  }
};

}  // namespace

std::unique_ptr<Command> bench_command() { return std::make_unique<Bench>(); }

}  // namespace ingot::cli

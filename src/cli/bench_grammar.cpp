// ingot bench grammar: runs the cases of JSON-Schema-Test-Suite through grammars and their masks; checks which are
// accepted, then measures times.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "bench/maskbench.h"
#include "bench/schema_samples.h"
#include "bench/schema_suite.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

// Returns the exit code.
int print(const Output& output, const bench::MaskBenchReport& report) {
  output.print(report.text);
  output.print_json(report.json);
  return report.is_sound ? 0 : exit_code(ErrorKind::internal);
}

// Returns the exit code.
int print(const Output& output, bench::SchemaSuiteReport& totals, int32_t num_tokens, bool details) {
  const Json compile = totals.compile.json(), mask = totals.mask.json();
  const auto us = [](const Json& times, const char* key) { return times.at(key).get<double>(); };
  output.print(fmt::format(
      "{} schemas, {} compiled, {} refused by name\nvalid: {} accepted, {} not; invalid: {} refused, {} accepted; {} "
      "over a limit\ncompile: mean {:.0f}, p50 {:.0f}, p99 {:.0f}, max {:.0f} us\n{} masks of {} tokens: mean "
      "{:.1f}, "
      "p50 {:.1f}, p99 {:.0f}, p99.9 {:.0f}, max {:.0f} us (processor time of one thread)\n",
      totals.schemas, totals.compiled, totals.refused, totals.valid_accepted, totals.valid_refused,
      totals.invalid_refused, totals.invalid_accepted, totals.failed, us(compile, "mean"), us(compile, "p50"),
      us(compile, "p99"), us(compile, "max"), totals.mask.us.size(), num_tokens, us(mask, "mean"), us(mask, "p50"),
      us(mask, "p99"), us(mask, "p99_9"), us(mask, "max")));
  for (const std::string& mistake : totals.mistakes) output.print(fmt::format("ACCEPTED BUT INVALID {}\n", mistake));
  if (details) {
    for (const auto& [reason, count] : totals.reasons) output.print(fmt::format("refused {}\n", reason));
    for (const std::string& strict : totals.strict) output.print(fmt::format("valid but not accepted {}\n", strict));
  }
  output.print_json(json_line({{"schemas", totals.schemas},
                               {"compiled", totals.compiled},
                               {"refused", totals.refused},
                               {"valid_accepted", totals.valid_accepted},
                               {"valid_refused", totals.valid_refused},
                               {"invalid_refused", totals.invalid_refused},
                               {"invalid_accepted", totals.invalid_accepted},
                               {"over_a_limit", totals.failed},
                               {"tokens", num_tokens},
                               {"compile_us", compile},
                               {"mask_us", mask}}));
  return totals.mistakes.empty() ? 0 : exit_code(ErrorKind::internal);
}

// One line of JSON: generated texts, or why the schema is refused.
void print(const Output& output, const bench::SchemaSamples& samples) {
  Json result = Json::object();
  if (samples.texts) result["texts"] = *samples.texts;
  if (samples.error) result["error"] = *samples.error;
  output.print(result.dump() + "\n");
}

class BenchGrammar : public Command {
 public:
  const char* name() const override { return "grammar"; }
  const char* summary() const override { return "JSON Schemas: correctness on a test suite, and speed"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.option("model", model_,
                     "a model, or only its tokenizer: a folder or a .gguf file; without it, --maskbench checks the "
                     "instances byte by byte, without masks");
    arguments.option("suite", suite_, "a folder of JSON-Schema-Test-Suite files, e.g. .../tests/draft2020-12");
    arguments.option("draft", draft_, "the $schema to assume for the suite's schemas that have none");
    arguments.option("maskbench", maskbench_,
                     "instead of --suite: a folder of MaskBench files (schemas with instances)");
    arguments.option("threads", threads_, "threads for --maskbench");
    arguments.option("sample", sample_,
                     "instead of --suite: a file with one schema per line; texts are sampled from its masks");
    arguments.option("samples", samples_, "texts to sample per schema");
    arguments.flag("details", details_, "list schemas that were refused and valid cases that were not accepted");
    arguments.example(
        "ingot bench grammar --model SmolLM2-135M-Instruct --suite "
        "/usr/share/perl5/auto/share/dist/Test-JSON-Schema-Acceptance/tests/draft2020-12");
  }

  int run(const Output& output) override {
    if ((suite_ ? 1 : 0) + (sample_ ? 1 : 0) + (maskbench_ ? 1 : 0) != 1) {
      throw_error(ErrorKind::usage, "give exactly one of --suite, --sample and --maskbench");
    }
    if (!model_ && maskbench_)
      return print(output, bench::run_maskbench(*maskbench_, nullptr, nullptr, threads_, details_));
    if (!model_) throw_error(ErrorKind::usage, "give --model");
    const checkpoint::TextAssets assets = checkpoint::load_text(checkpoint::open_model(*model_));
    if (!assets.tokenizer) throw_error(ErrorKind::not_found, "the model {} has no tokenizer", *model_);
    const text::Tokenizer& tokenizer = *assets.tokenizer;
    std::vector<int32_t> ends = assets.eos;
    const auto vocabulary = std::make_shared<const grammar::Vocabulary>(tokenizer, ends);
    if (maskbench_) return print(output, bench::run_maskbench(*maskbench_, &tokenizer, vocabulary, threads_, details_));
    if (sample_) {
      bench::sample_schemas(*sample_, vocabulary, samples_,
                            [&](const bench::SchemaSamples& samples) { print(output, samples); });
      return 0;
    }
    bench::SchemaSuiteReport report = bench::run_schema_suite(*suite_, draft_, tokenizer, vocabulary);
    return print(output, report, vocabulary->size(), details_);
  }

 private:
  std::optional<std::string> model_, suite_, draft_, sample_, maskbench_;
  int64_t samples_ = 20, threads_ = 1;
  bool details_ = false;
};

}  // namespace

std::unique_ptr<Command> bench_grammar_command() { return std::make_unique<BenchGrammar>(); }

}  // namespace ingot::cli

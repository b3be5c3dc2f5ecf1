// ingot bench tokenizer: tokenization on one thread, in MB/s.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "bench/tokenizer.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/text_input.h"

namespace ingot::cli {

namespace {

class BenchTokenizer : public Command {
 public:
  const char* name() const override { return "tokenizer"; }
  const char* summary() const override {
    return "time tokenization on one thread, after a check that ids decode back to the text";
  }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.option("model", model_, "a model, or only its tokenizer: a folder or a .gguf file", true);
    arguments.option("file", file_, "a file with one text (UTF-8)");
    arguments.option("texts", texts_, "a file with one JSON string per line, each encoded separately");
    arguments.option("repeats", repeats_, "passes over all texts; the fastest one is reported");
    arguments.example("ingot bench tokenizer --model SmolLM2-135M-Instruct --file book.txt");
  }

  int run(const Output& output) override {
    if (repeats_ < 1) throw_error(ErrorKind::usage, "--repeats {}; must be at least 1", repeats_);
    if (file_.has_value() == texts_.has_value())
      throw_error(ErrorKind::usage, "give exactly one of --file and --texts");
    const checkpoint::TextAssets assets = checkpoint::load_text(checkpoint::open_model(model_));
    if (!assets.tokenizer) throw_error(ErrorKind::not_found, "the model {} has no tokenizer", model_);
    const text::Tokenizer& tokenizer = *assets.tokenizer;
    const std::vector<std::string> texts = file_ ? std::vector<std::string>{read_text(*file_)} : read_texts(*texts_);
    if (std::all_of(texts.begin(), texts.end(), [](const std::string& text) { return text.empty(); })) {
      throw_error(ErrorKind::usage, "{} is empty", file_ ? *file_ : *texts_);
    }

    const bench::TokenizerReport report = bench::bench_tokenizer(tokenizer, texts, repeats_);
    const double megabytes = static_cast<double>(report.bytes) / 1e6;
    output.print(fmt::format(
        "{:.1f} MB in {} texts, {} tokens, decoded back {}\nfirst time {:.1f} MB/s, best of {} {:.1f} MB/s; by CPU "
        "time "
        "{:.1f} and {:.1f} MB/s\n",
        megabytes, texts.size(), report.tokens, report.same_text ? "to the same text" : "to another text",
        megabytes / report.first.wall, repeats_, megabytes / report.best.wall, megabytes / report.first.cpu,
        megabytes / report.best.cpu));
    output.print_json(json_line({{"bytes", report.bytes},
                                 {"texts", texts.size()},
                                 {"tokens", report.tokens},
                                 {"ids_sha256", report.ids_sha256},
                                 {"same_text", report.same_text},
                                 {"first_mb_s", megabytes / report.first.wall},
                                 {"mb_s", megabytes / report.best.wall},
                                 {"first_cpu_mb_s", megabytes / report.first.cpu},
                                 {"cpu_mb_s", megabytes / report.best.cpu}}));
    return 0;
  }

 private:
  std::string model_;
  std::optional<std::string> file_, texts_;
  int64_t repeats_ = 5;
};

}  // namespace

std::unique_ptr<Command> bench_tokenizer_command() { return std::make_unique<BenchTokenizer>(); }

}  // namespace ingot::cli

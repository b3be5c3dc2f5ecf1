// ingot data tokenize: converts text files to a Megatron data set.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/thread_pool.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "data/tokenize_job.h"
#include "formats/megatron.h"

namespace ingot::cli {

namespace {

// Identifies a tokenizer by the ids of a line with many kinds of characters, and the vocabulary's size.
std::string identity_of(const text::Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.encode(
      "The quick brown fox, 1234567890 times:\n\tna\xC3\xAFve \xE2\x82\xAC \xE4\xBD\xA0\xE5\xA5\xBD {}[]()<|end|>", {});
  return fmt::format("{}:{}", tokenizer.size(), fmt::join(ids, ","));
}

class DataTokenize : public Command {
 public:
  const char* name() const override { return "tokenize"; }
  const char* summary() const override { return "tokenize text files for pretraining (Megatron's .idx and .bin)"; }
  bool reports() const override { return true; }

  void declare(Arguments& a) override {
    a.positional("inputs", inputs_, "JSONL or text files, plain, .gz or .zst, or .npy files of tokens");
    a.option("model", model_, "a model, or only its tokenizer: a folder, a .gguf file or a registered name", true);
    a.option("out,--output", output_prefix_,
             "path of the output without suffix: OUT.bin and OUT.idx are written; an interrupted job is continued",
             true);
    a.option("format", format_, "text or tokens; auto: detected from the first record");
    a.option("on-error", on_error_, "on a malformed line: stop or skip");
    a.option("threads", threads_, "CPU threads (default: one per core)");
    a.flag("no-eod", no_eod_, "do not append an end-of-text token to each document");
    a.flag("quiet", quiet_, "no progress bar");
    a.example("ingot data tokenize c4-*.json.gz --model SmolLM2-135M --out c4_text_document");
  }

  int run(const Output& output) override;

 private:
  std::vector<std::string> inputs_;
  std::string model_, output_prefix_, format_ = "auto", on_error_ = "stop";
  std::optional<int64_t> threads_;
  bool no_eod_ = false, quiet_ = false;
};

int DataTokenize::run(const Output& output) {
  if (threads_ && (*threads_ < 1 || *threads_ > 1024)) {
    throw_error(ErrorKind::usage, "--threads {}; must be from 1 to 1024", *threads_);
  }
  const checkpoint::ModelSource source = checkpoint::open_model(model_);
  const checkpoint::TextAssets assets = checkpoint::load_text(source);
  if (!assets.tokenizer) {
    throw_hint(ErrorKind::not_found, "put tokenizer.json beside config.json", "the model {} has no tokenizer",
               source.path.string());
  }
  data::TokenizeJob job;
  job.inputs.assign(inputs_.begin(), inputs_.end());
  job.format = data::parse_format(format_);
  job.on_error = data::parse_on_error(on_error_);
  job.end_of_document = !no_eod_;
  job.prefix = formats::megatron_prefix(output_prefix_);
  job.tokenizer = identity_of(*assets.tokenizer);
  ThreadPool pool(static_cast<int>(threads_.value_or(available_cpus())), {}, no_workspace);
  const double begin = steady_seconds();
  Progress progress("tokenize", 0, {.style = progress_style(quiet_), .unit = "tokens"});
  const StopSignal stop(&exit_interrupted);
  const data::TokenizeTotals totals =
      data::tokenize_files(job, *assets.tokenizer, pool, [&](const data::TokenizeTotals& now) {
        progress.update(now.num_tokens, fmt::format("{} documents, file {} of {}", now.num_documents, now.num_files + 1,
                                                    job.inputs.size()));
        return !stop.requested();
      });
  progress.finish();
  if (!totals.finished) {
    Log(LogLevel::info).info("stopped at {} documents; run the same command again to continue", totals.num_documents);
    return 130;
  }
  const double seconds = steady_seconds() - begin;
  output.print(
      fmt::format("{}  {} documents, {} tokens\n", job.prefix.string(), totals.num_documents, totals.num_tokens));
  if (totals.num_skipped > 0) {
    output.print(fmt::format("{} malformed lines skipped; the first: {}\n", totals.num_skipped, totals.first_skipped));
  }
  nlohmann::ordered_json result = {{"path", job.prefix.string()},     {"documents", totals.num_documents},
                                   {"tokens", totals.num_tokens},     {"bad_lines", totals.num_skipped},
                                   {"resumed_at", totals.resumed_at}, {"seconds", seconds}};
  output.print_json(json_line(result));
  return 0;
}

}  // namespace

std::unique_ptr<Command> data_tokenize_command() { return std::make_unique<DataTokenize>(); }

}  // namespace ingot::cli

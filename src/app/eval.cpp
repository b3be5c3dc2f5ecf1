// ingot eval: the loss of a model over a data file.
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/evaluation.h"
#include "app/interrupt.h"
#include "app/json_text.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/strings.h"
#include "data/dataset.h"

namespace ingot::app {

namespace {

// More at once makes no product faster.
constexpr int64_t most_tokens_at_once = 2048;

class Eval : public Command {
 public:
  const char* name() const override { return "eval"; }
  const char* summary() const override { return "loss and perplexity of a model over a data file"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    options_.declare(arguments);
    arguments.option("data", data_, "a .jsonl or text file, as recipes take it", true);
    arguments.option("format", format_, "auto (default), chat, instruction, completion or text");
    arguments.option("sequence-length", sequence_length_,
                     "tokens of a packed sequence; without it 1024, or the model's context when that is less");
    arguments.example("ingot eval --model SmolLM2-135M-Instruct --data data/sotu/heldout.jsonl");
  }

  int run(const Output& output) override {
    exit_on_interrupt();
    Session session(options_);
    const int64_t context = session.loaded.spec.context;
    const int64_t length = sequence_length_.value_or(std::min<int64_t>(context, 1024));
    if (length < 2 || length > context) {
      throw_error(ErrorKind::usage, "--sequence-length {}; from 2 to the model's context of {}", length, context);
    }
    data::DatasetSettings settings;
    settings.format = data::parse_format(format_);
    settings.packing.sequence_length = length;
    const checkpoint::TextAssets& text = session.text();
    std::optional<text::ChatTemplate> chat_template;
    if (text.chat_template) chat_template.emplace(*text.chat_template, session.source.name + ": chat template");
    const std::vector<data::Source> sources = {{data_, 1}};
    const data::Dataset dataset = data::Dataset::build(
        sources, session.tokenizer(), chat_template ? &*chat_template : nullptr, settings, *session.runtime.threads);

    const double started = steady_seconds();
    const int64_t micro = std::max<int64_t>(1, most_tokens_at_once / length);
    Evaluation evaluation(session, length, micro);
    Progress progress("eval", dataset.num_sequences(), {progress_style(false), "sequences"});
    Evaluation::Loss total;
    std::vector<data::PackedSequence> batch;
    for (int64_t i = 0; i < dataset.num_sequences(); ++i) {
      batch.push_back(dataset.get(i));
      check_ids(batch.back().ids, session.loaded.spec.vocab);
      if (static_cast<int64_t>(batch.size()) < micro && i + 1 < dataset.num_sequences()) continue;
      const Evaluation::Loss part = evaluation.run(batch);
      total.sum += part.sum;
      total.counted += part.counted;
      batch.clear();
      progress.update(i + 1, fmt::format("loss {:.4f}", total.sum / static_cast<double>(total.counted)));
    }
    progress.finish();

    const double loss = total.sum / static_cast<double>(total.counted);
    const double seconds = steady_seconds() - started;
    output.print(fmt::format("loss {:.5f}  perplexity {:.4f}  over {} tokens in {}\n", loss, std::exp(loss),
                             total.counted, format_duration(seconds)));
    output.print_json(json_line({{"loss", loss},
                                 {"perplexity", std::exp(loss)},
                                 {"tokens", total.counted},
                                 {"seconds", seconds},
                                 {"sequence_length", length},
                                 {"sequences", dataset.num_sequences()}}));
    return 0;
  }

 private:
  ModelOptions options_;
  std::string data_;
  std::string format_ = "auto";
  std::optional<int64_t> sequence_length_;
};

}  // namespace

std::unique_ptr<Command> eval_command() { return std::make_unique<Eval>(); }

}  // namespace ingot::app

// ingot eval: a model's loss on a data file, and its scores on task files; with an adapter, next to those of the base
// model.
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/strings.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/model_ranks.h"
#include "data/dataset.h"
#include "eval/encode.h"
#include "eval/evaluation.h"
#include "eval/score.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

// More tokens per batch do not make gemms faster.
constexpr int64_t max_tokens_at_once = 2048;

// Adds file and line to the errors of one line of a task.
template <class Call>
auto at_line(const eval::Task& task, int64_t line, Call call) {
  try {
    return call();
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{} line {}: {}", task.path.string(), line, error.message()), error.hint());
  }
}

struct EvalOptions {
  runtime::ModelOptions model;
  std::optional<std::string> data;
  std::string format = "auto";
  std::optional<int64_t> sequence_length;
  std::vector<std::string> tasks;  // files
  std::optional<std::string> base;
  std::optional<std::string> items;
};

// One rank's part in an evaluation: all ranks compute the same, and the leading one reports.
class Evaluating {
 public:
  Evaluating(const EvalOptions& options, const runtime::ModelRank& rank) : options_(options), rank_(rank) {}
  int run(const std::vector<eval::Task>& tasks, const Output& output);

 private:
  struct DataResult {
    std::vector<std::vector<eval::SequenceLoss>> losses;  // [model][sequence]
    int64_t length = 0, sequences = 0;
    double seconds = 0;
  };

  bool leads() const { return rank_.ranks.all.rank() == 0; }
  Progress progress_of(const std::string& what, int64_t total, const char* unit) const {
    return Progress(what, total, {progress_style(!leads()), unit});
  }
  void open_models();
  data::Dataset read_data(runtime::Session& session) const;
  DataResult measure_data();
  void measure_choices(const eval::Task& task, eval::Scores& scores);
  void measure_answers(const eval::Task& task, eval::Scores& scores);
  void note(const eval::Task& task, int64_t line, Json&& models);
  eval::TextModel text_model(runtime::Session& session);
  std::vector<std::string> names() const;

  const EvalOptions& options_;
  const runtime::ModelRank& rank_;
  std::optional<runtime::Session> session_, base_session_;
  std::map<const runtime::Session*, text::ChatTemplate> chats_;
  std::vector<eval::EvaluatedModel> models_evaluated_;  // the evaluated model last
  std::string notes_;                                   // lines for the file of --items
  int64_t num_truncated_ = 0;
};

void Evaluating::open_models() {
  if (options_.base && options_.model.adapter) {
    throw_hint(ErrorKind::usage, "remove --base: with --adapter, the base is the model without the adapter",
               "--base and --adapter are mutually exclusive");
  }
  session_.emplace(options_.model, rank_);
  // A session whose adapter replaces weights does not contain the base model.
  if (options_.base || session_->adapter_merged) {
    runtime::ModelOptions options = options_.model;
    if (options_.base) options.model = *options_.base;
    options.adapter.reset();
    base_session_.emplace(options, rank_);
    models_evaluated_.push_back({"base", &*base_session_, nullptr});
  } else if (options_.model.adapter) {
    models_evaluated_.push_back({"base", &*session_, nullptr});
  }
  const nn::Adapter* adapter = session_->adapter ? &*session_->adapter : nullptr;
  models_evaluated_.push_back({models_evaluated_.empty() ? "model" : "tuned", &*session_, adapter});
  for (const eval::EvaluatedModel& evaluated : models_evaluated_) {
    runtime::Session& session = *evaluated.session;
    session.tokenizer();  // throws if there is none
    if (session.text().chat_template && !chats_.contains(&session)) {
      chats_.emplace(&session,
                     text::ChatTemplate(*session.text().chat_template, session.source.name + ": chat template"));
    }
  }
}

eval::TextModel Evaluating::text_model(runtime::Session& session) {
  const auto chat = chats_.find(&session);
  return {session.tokenizer(), chat == chats_.end() ? nullptr : &chat->second, session.text().bos_text,
          session.text().eos_text, session.source.path.string()};
}

std::vector<std::string> Evaluating::names() const {
  std::vector<std::string> names;
  for (const eval::EvaluatedModel& evaluated : models_evaluated_) names.push_back(evaluated.name);
  return names;
}

data::Dataset Evaluating::read_data(runtime::Session& session) const {
  const int64_t context = session.loaded.spec.context;
  const int64_t length = options_.sequence_length.value_or(std::min<int64_t>(context, 1024));
  if (length < 2 || length > context) {
    throw_error(ErrorKind::usage, "--sequence-length {}; must be from 2 to the model's context of {}", length, context);
  }
  data::DatasetSettings settings;
  settings.format = data::parse_format(options_.format);
  settings.packing.sequence_length = length;
  const auto chat = chats_.find(&session);
  const std::vector<data::Source> sources = {{*options_.data, 1}};
  return data::Dataset::build(sources, session.tokenizer(), chat == chats_.end() ? nullptr : &chat->second, settings,
                              *session.runtime.threads);
}

Evaluating::DataResult Evaluating::measure_data() {
  const data::Dataset dataset = read_data(*session_);
  if (base_session_ && read_data(*base_session_).content_hash() != dataset.content_hash()) {
    throw_hint(ErrorKind::usage, "compare them on tasks (--task), or measure each separately",
               "{} and {} tokenize {} differently, so their losses cannot be compared", *options_.base,
               options_.model.model, *options_.data);
  }
  DataResult result;
  result.length = dataset.sequence_length();
  result.sequences = dataset.num_sequences();
  const double started = steady_seconds();
  const int64_t micro = std::max<int64_t>(1, max_tokens_at_once / result.length);
  for (const eval::EvaluatedModel& evaluated : models_evaluated_) {
    eval::Evaluation evaluation(*evaluated.session, result.length, micro);
    Progress progress = progress_of(evaluated.name + ": loss", result.sequences, "sequences");
    std::vector<eval::SequenceLoss> losses;
    std::vector<data::PackedSequence> batch;
    double sum = 0;
    int64_t loss_tokens = 0;
    for (int64_t i = 0; i < result.sequences; ++i) {
      batch.push_back(dataset.get(i));
      runtime::check_ids(batch.back().ids, evaluated.session->loaded.spec.vocab);
      if (static_cast<int64_t>(batch.size()) < micro && i + 1 < result.sequences) continue;
      for (const eval::SequenceLoss& sequence : evaluation.run(batch, evaluated.adapter)) {
        losses.push_back(sequence);
        sum += sequence.sum;
        loss_tokens += sequence.loss_tokens;
      }
      batch.clear();
      progress.update(i + 1, fmt::format("loss {:.4f}", sum / static_cast<double>(loss_tokens)));
    }
    progress.finish();
    result.losses.push_back(std::move(losses));
  }
  result.seconds = steady_seconds() - started;
  return result;
}

void Evaluating::note(const eval::Task& task, int64_t line, Json&& models) {
  if (options_.items) notes_ += json_line({{"task", task.name}, {"line", line}, {"models", std::move(models)}}) + "\n";
}

void Evaluating::measure_choices(const eval::Task& task, eval::Scores& scores) {
  std::vector<Json> notes(task.choices.size(), Json::array());
  for (size_t model = 0; model < models_evaluated_.size(); ++model) {
    const eval::EvaluatedModel& evaluated = models_evaluated_[model];
    runtime::Session& session = *evaluated.session;
    const eval::TextModel text = text_model(session);
    std::vector<infer::LogLikelihoodRequest> items;
    for (const eval::ChoiceItem& item : task.choices) {
      eval::EncodedChoices encoded =
          at_line(task, item.line, [&] { return eval::encode_choices(item, text, session.loaded.spec.context); });
      if (encoded.truncated && model == 0) ++num_truncated_;
      items.push_back({std::move(encoded.context), std::move(encoded.choices)});
    }
    Progress progress = progress_of(fmt::format("{}: {}", evaluated.name, task.name), std::ssize(items), "questions");
    const auto logprobs = eval::choice_logprobs(evaluated, items, [&](int64_t done) { progress.update(done); });
    progress.finish();
    for (size_t i = 0; i < items.size(); ++i) {
      const eval::ChoiceItem& item = task.choices[i];
      std::vector<int64_t> tokens;
      for (const std::vector<int32_t>& choice : items[i].continuations) tokens.push_back(std::ssize(choice));
      Json noted = {{"name", evaluated.name}, {"logprobs", logprobs[i]}, {"tokens", tokens}};
      for (const eval::Score& score : eval::choice_logprobs(item, logprobs[i], tokens)) {
        scores.add(model, score);
        noted[score.metric] = score.value;
      }
      notes[i].push_back(std::move(noted));
    }
  }
  for (size_t i = 0; i < notes.size(); ++i) note(task, task.choices[i].line, std::move(notes[i]));
}

void Evaluating::measure_answers(const eval::Task& task, eval::Scores& scores) {
  std::vector<Json> notes(task.answers.size(), Json::array());
  for (size_t model = 0; model < models_evaluated_.size(); ++model) {
    const eval::EvaluatedModel& evaluated = models_evaluated_[model];
    const eval::TextModel text = text_model(*evaluated.session);
    const int64_t context = evaluated.session->loaded.spec.context;
    std::vector<eval::Question> questions;
    for (const eval::AnswerItem& item : task.answers) {
      std::vector<int32_t> prompt = at_line(task, item.line, [&] { return eval::encode_prompt(item.prompt, text); });
      if (std::ssize(prompt) + item.max_tokens > context) {
        throw_hint(ErrorKind::usage, "shorten the prompt or lower max_tokens",
                   "{} line {}: a prompt of {} tokens and an answer of up to {} exceed the model's context of {}",
                   task.path.string(), item.line, prompt.size(), item.max_tokens, context);
      }
      questions.push_back({std::move(prompt), item.max_tokens, item.stop});
    }
    if (!leads()) {
      follow_engine(*evaluated.session);
      continue;
    }
    Progress progress = progress_of(fmt::format("{}: {}", evaluated.name, task.name), std::ssize(questions), "answers");
    const auto answers = eval::generate_answers(evaluated, questions, [&](int64_t done) { progress.update(done); });
    progress.finish();
    for (size_t i = 0; i < answers.size(); ++i) {
      Json noted = {{"name", evaluated.name}, {"text", answers[i]}};
      const auto scored =
          at_line(task, task.answers[i].line, [&] { return eval::score_answer(task.answers[i], answers[i]); });
      for (const eval::Score& score : scored) {
        scores.add(model, score);
        noted[score.metric] = score.value;
      }
      notes[i].push_back(std::move(noted));
    }
  }
  for (size_t i = 0; i < notes.size(); ++i) note(task, task.answers[i].line, std::move(notes[i]));
}

int Evaluating::run(const std::vector<eval::Task>& tasks, const Output& output) {
  open_models();

  std::vector<eval::Row> rows;
  Json report;
  std::string last_line;
  if (options_.data) {
    const DataResult result = measure_data();
    const std::vector<eval::Row> of_data =
        eval::loss_rows(std::filesystem::path(*options_.data).stem().string(), result.losses);
    int64_t loss_tokens = 0;
    for (const eval::SequenceLoss& sequence : result.losses.back()) loss_tokens += sequence.loss_tokens;
    report = {{"loss", of_data[0].models.back().value},
              {"perplexity", of_data[1].models.back().value},
              {"tokens", loss_tokens},
              {"seconds", result.seconds},
              {"sequence_length", result.length},
              {"sequences", result.sequences}};
    last_line = fmt::format("{} tokens of {} in {}\n", loss_tokens, *options_.data, format_duration(result.seconds));
    rows.insert(rows.end(), of_data.begin(), of_data.end());
  }
  for (const eval::Task& task : tasks) {
    eval::Scores scores(models_evaluated_.size());
    if (!task.choices.empty()) measure_choices(task, scores);
    if (!task.answers.empty()) measure_answers(task, scores);
    if (!leads()) continue;
    for (eval::Row& row : scores.rows(task.name)) rows.push_back(std::move(row));
  }
  if (!leads()) return 0;
  if (num_truncated_ > 0) {
    Log(LogLevel::info)
        .warning("{} contexts were cut at the start: they are longer than the model's context", num_truncated_);
  }
  if (options_.items) write_file(*options_.items, notes_);

  output.print(eval::table(rows, names()) + "\n" + last_line +
               "\u00b1 standard error, [95 % interval]: Wilson's for shares, else by bootstrap over items\n");
  report["truncated"] = num_truncated_;
  report["results"] = eval::to_json(rows, names());
  output.print_json(json_line(report));
  return 0;
}

class Eval : public Command {
 public:
  const char* name() const override { return "eval"; }
  const char* summary() const override {
    return "evaluate perplexity, multiple choice and generation tasks; compare a tuned model with its base";
  }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    cli::declare(options_.model, arguments);
    arguments.option("data", options_.data, "a .jsonl or text file, as in recipes: measure loss and perplexity");
    arguments.option("format", options_.format,
                     "format of --data: auto (default), chat, sharegpt, instruction, completion, text or tokens");
    arguments.option("sequence-length", options_.sequence_length,
                     "tokens per packed sequence of --data (default: 1024, or the model's context if that is less)");
    arguments.option("task", options_.tasks,
                     "a .jsonl file of questions (docs/evaluation.md): multiple choice, or generated answers that are "
                     "checked; may be given several times");
    arguments.option(
        "base", options_.base,
        "a model to compare --model with; not needed with --adapter, which is compared with the model without it");
    arguments.option("items", options_.items,
                     "write the result of every model for every line of the tasks to this JSONL file");
    arguments.example(
        "ingot eval --model SmolLM2-135M-Instruct --data data/sotu/heldout.jsonl --adapter runs/demo/adapter\n"
        "  ingot eval --model SmolLM2-135M-Instruct --task data/examples/questions.jsonl");
  }

  int run(const Output& output) override {
    if (!options_.data && options_.tasks.empty()) {
      throw_hint(ErrorKind::usage, "give --data FILE for perplexity, --task FILE for questions, or both",
                 "nothing to measure: neither --data nor --task is given");
    }
    if (options_.items && options_.tasks.empty())
      throw_error(ErrorKind::usage, "--items writes the results of --task, which is not given");
    if (options_.items) write_file(*options_.items, "");  // fails now rather than after the evaluation
    exit_on_interrupt();
    std::vector<eval::Task> tasks;
    for (const std::string& path : options_.tasks) tasks.push_back(eval::read_task(path));
    return on_model_ranks(
        options_.model, [&](const runtime::ModelRank& rank) { return Evaluating(options_, rank).run(tasks, output); });
  }

 private:
  EvalOptions options_;
};

}  // namespace

std::unique_ptr<Command> eval_command() { return std::make_unique<Eval>(); }

}  // namespace ingot::cli

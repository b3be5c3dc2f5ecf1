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

class Eval : public Command {
 public:
  const char* name() const override { return "eval"; }
  const char* summary() const override {
    return "evaluate perplexity, multiple choice and generation tasks; compare a tuned model with its base";
  }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    cli::declare(options_, arguments);
    arguments.option("data", data_, "a .jsonl or text file, as in recipes: measure loss and perplexity");
    arguments.option("format", format_,
                     "format of --data: auto (default), chat, sharegpt, instruction, completion, text or tokens");
    arguments.option("sequence-length", sequence_length_,
                     "tokens per packed sequence of --data (default: 1024, or the model's context if that is less)");
    arguments.option("task", tasks_,
                     "a .jsonl file of questions (docs/evaluation.md): multiple choice, or generated answers that are "
                     "checked; may be given several times");
    arguments.option(
        "base", base_,
        "a model to compare --model with; not needed with --adapter, which is compared with the model without it");
    arguments.option("items", items_, "write the result of every model for every line of the tasks to this JSONL file");
    arguments.example(
        "ingot eval --model SmolLM2-135M-Instruct --data data/sotu/heldout.jsonl --adapter runs/demo/adapter\n"
        "  ingot eval --model SmolLM2-135M-Instruct --task data/examples/questions.jsonl");
  }

  int run(const Output& output) override;

 private:
  struct DataResult {
    std::vector<std::vector<eval::SequenceLoss>> losses;  // [model][sequence]
    int64_t length = 0, sequences = 0;
    double seconds = 0;
  };

  void open_models();
  data::Dataset read_data(runtime::Session& session) const;
  DataResult measure_data();
  void measure_choices(const eval::Task& task, eval::Scores& scores);
  void measure_answers(const eval::Task& task, eval::Scores& scores);
  void note(const eval::Task& task, int64_t line, Json&& models);
  eval::TextModel text_model(runtime::Session& session);
  std::vector<std::string> names() const;

  runtime::ModelOptions options_;
  std::optional<std::string> data_;
  std::string format_ = "auto";
  std::optional<int64_t> sequence_length_;
  std::vector<std::string> tasks_;
  std::optional<std::string> base_;
  std::optional<std::string> items_;

  std::optional<runtime::Session> session_, base_session_;
  std::map<const runtime::Session*, text::ChatTemplate> chats_;
  std::vector<eval::EvaluatedModel> models_evaluated_;  // the evaluated model last
  std::string notes_;                                   // lines for the file of --items
  int64_t num_truncated_ = 0;
};

void Eval::open_models() {
  if (base_ && options_.adapter) {
    throw_hint(ErrorKind::usage, "remove --base: with --adapter, the base is the model without the adapter",
               "--base and --adapter are mutually exclusive");
  }
  session_.emplace(options_);
  // A session whose adapter replaces weights does not contain the base model.
  if (base_ || session_->adapter_merged) {
    runtime::ModelOptions options = options_;
    if (base_) options.model = *base_;
    options.adapter.reset();
    base_session_.emplace(options);
    models_evaluated_.push_back({"base", &*base_session_, nullptr});
  } else if (options_.adapter) {
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

eval::TextModel Eval::text_model(runtime::Session& session) {
  const auto chat = chats_.find(&session);
  return {session.tokenizer(), chat == chats_.end() ? nullptr : &chat->second, session.text().bos_text,
          session.text().eos_text, session.source.path.string()};
}

std::vector<std::string> Eval::names() const {
  std::vector<std::string> names;
  for (const eval::EvaluatedModel& evaluated : models_evaluated_) names.push_back(evaluated.name);
  return names;
}

data::Dataset Eval::read_data(runtime::Session& session) const {
  const int64_t context = session.loaded.spec.context;
  const int64_t length = sequence_length_.value_or(std::min<int64_t>(context, 1024));
  if (length < 2 || length > context) {
    throw_error(ErrorKind::usage, "--sequence-length {}; must be from 2 to the model's context of {}", length, context);
  }
  data::DatasetSettings settings;
  settings.format = data::parse_format(format_);
  settings.packing.sequence_length = length;
  const auto chat = chats_.find(&session);
  const std::vector<data::Source> sources = {{*data_, 1}};
  return data::Dataset::build(sources, session.tokenizer(), chat == chats_.end() ? nullptr : &chat->second, settings,
                              *session.runtime.threads);
}

Eval::DataResult Eval::measure_data() {
  const data::Dataset dataset = read_data(*session_);
  if (base_session_ && read_data(*base_session_).content_hash() != dataset.content_hash()) {
    throw_hint(ErrorKind::usage, "compare them on tasks (--task), or measure each separately",
               "{} and {} tokenize {} differently, so their losses cannot be compared", *base_, options_.model, *data_);
  }
  DataResult result;
  result.length = dataset.sequence_length();
  result.sequences = dataset.num_sequences();
  const double started = steady_seconds();
  const int64_t micro = std::max<int64_t>(1, max_tokens_at_once / result.length);
  for (const eval::EvaluatedModel& evaluated : models_evaluated_) {
    eval::Evaluation evaluation(*evaluated.session, result.length, micro);
    Progress progress(evaluated.name + ": loss", result.sequences, {progress_style(false), "sequences"});
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

void Eval::note(const eval::Task& task, int64_t line, Json&& models) {
  if (items_) notes_ += json_line({{"task", task.name}, {"line", line}, {"models", std::move(models)}}) + "\n";
}

void Eval::measure_choices(const eval::Task& task, eval::Scores& scores) {
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
    Progress progress(fmt::format("{}: {}", evaluated.name, task.name), std::ssize(items),
                      {progress_style(false), "questions"});
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

void Eval::measure_answers(const eval::Task& task, eval::Scores& scores) {
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
    Progress progress(fmt::format("{}: {}", evaluated.name, task.name), std::ssize(questions),
                      {progress_style(false), "answers"});
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

int Eval::run(const Output& output) {
  if (!data_ && tasks_.empty()) {
    throw_hint(ErrorKind::usage, "give --data FILE for perplexity, --task FILE for questions, or both",
               "nothing to measure: neither --data nor --task is given");
  }
  if (items_ && tasks_.empty())
    throw_error(ErrorKind::usage, "--items writes the results of --task, which is not given");
  if (items_) write_file(*items_, "");  // fails now rather than after the evaluation
  exit_on_interrupt();
  std::vector<eval::Task> tasks;
  for (const std::string& path : tasks_) tasks.push_back(eval::read_task(path));
  open_models();

  std::vector<eval::Row> rows;
  Json report;
  std::string last_line;
  if (data_) {
    const DataResult result = measure_data();
    const std::vector<eval::Row> of_data =
        eval::loss_rows(std::filesystem::path(*data_).stem().string(), result.losses);
    int64_t loss_tokens = 0;
    for (const eval::SequenceLoss& sequence : result.losses.back()) loss_tokens += sequence.loss_tokens;
    report = {{"loss", of_data[0].models.back().value},
              {"perplexity", of_data[1].models.back().value},
              {"tokens", loss_tokens},
              {"seconds", result.seconds},
              {"sequence_length", result.length},
              {"sequences", result.sequences}};
    last_line = fmt::format("{} tokens of {} in {}\n", loss_tokens, *data_, format_duration(result.seconds));
    rows.insert(rows.end(), of_data.begin(), of_data.end());
  }
  for (const eval::Task& task : tasks) {
    eval::Scores scores(models_evaluated_.size());
    if (!task.choices.empty()) measure_choices(task, scores);
    if (!task.answers.empty()) measure_answers(task, scores);
    for (eval::Row& row : scores.rows(task.name)) rows.push_back(std::move(row));
  }
  if (num_truncated_ > 0) {
    Log(LogLevel::info)
        .warning("{} contexts were cut at the start: they are longer than the model's context", num_truncated_);
  }
  if (items_) write_file(*items_, notes_);

  output.print(eval::table(rows, names()) + "\n" + last_line +
               "\u00b1 standard error, [95 % interval]: Wilson's for shares, else by bootstrap over items\n");
  report["truncated"] = num_truncated_;
  report["results"] = eval::to_json(rows, names());
  output.print_json(json_line(report));
  return 0;
}

}  // namespace

std::unique_ptr<Command> eval_command() { return std::make_unique<Eval>(); }

}  // namespace ingot::cli

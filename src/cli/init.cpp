// ingot init: examines a data file and writes a recipe for it.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/machine.h"
#include "base/path.h"
#include "base/strings.h"
#include "checkpoint/load.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "data/tokenized.h"
#include "runs/held_out.h"
#include "runs/plan.h"
#include "runtime/device_rates.h"
#include "runtime/runtime.h"
#include "spec/flops.h"
#include "text/chat_template.h"

namespace ingot::cli {

namespace fs = std::filesystem;

namespace {

constexpr int64_t longest_suggested = 2048;

// Properties of a data file with a model's tokenizer.
struct DataInspection {
  data::Corpus corpus;
  data::Format format = data::Format::text;
  int64_t loss_tokens = 0;
  std::vector<int64_t> lengths;  // token counts of its documents, ascending
  bool splittable = false;       // every document may be cut
};

DataInspection inspect(const std::string& path, const checkpoint::TextAssets& assets, const text::ChatTemplate* chat,
                       ThreadPool& pool) {
  DataInspection inspection;
  data::DocumentReader reader(path, data::Format::automatic, data::OnError::stop);
  data::tokenize_all(inspection.corpus, reader, *assets.tokenizer, chat, data::OnError::stop, pool);
  inspection.format = reader.format();
  inspection.splittable = true;
  for (int64_t i = 0; i < inspection.corpus.num_documents(); ++i) {
    const data::Corpus::View document = inspection.corpus.document(i);
    inspection.lengths.push_back(static_cast<int64_t>(document.ids.size()));
    inspection.loss_tokens += std::count(document.loss_mask.begin(), document.loss_mask.end(), 1);
    inspection.splittable = inspection.splittable && document.splittable;
  }
  std::sort(inspection.lengths.begin(), inspection.lengths.end());
  return inspection;
}

// The statistics of the packed data for plan_run, without building a data set.
data::DatasetStatistics pack(const DataInspection& inspection, int64_t length) {
  std::vector<int64_t> entries(static_cast<size_t>(inspection.corpus.num_documents()));
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = static_cast<int64_t>(i);
  data::PackingSettings settings;
  settings.sequence_length = length;
  const data::PackingPlan plan = data::plan_packing(inspection.corpus, entries, settings);
  data::DatasetStatistics packed;
  packed.num_documents = inspection.corpus.num_documents();
  packed.num_sequences = plan.num_sequences();
  packed.num_tokens = plan.num_tokens;
  packed.num_truncated = plan.num_truncated;
  packed.num_loss_tokens = inspection.loss_tokens;
  for (int64_t s = 0; s < plan.num_sequences(); ++s) {
    int64_t padding = length;
    for (auto p = plan.first_subsequence[static_cast<size_t>(s)];
         p < plan.first_subsequence[static_cast<size_t>(s) + 1]; ++p) {
      const int64_t piece = plan.subsequences[static_cast<size_t>(p)].length;
      packed.squared_lengths += static_cast<double>(piece * piece);
      padding -= piece;
    }
    packed.squared_lengths += static_cast<double>(padding * padding);
  }
  packed.packing_efficiency =
      static_cast<double>(packed.num_tokens) / static_cast<double>(packed.num_sequences * length);
  return packed;
}

// Training FLOPs per token of the data, including those spent on padding.
double cost_of_token(const spec::ModelSpec& model, const data::DatasetStatistics& packed, int64_t length) {
  const spec::AttentionSquares squares{static_cast<double>(packed.num_sequences * length), packed.squared_lengths};
  return spec::training_flops(model, squares, spec::AttentionCount::causal) / static_cast<double>(packed.num_tokens);
}

// A sequence length, and the result of packing to it.
struct Choice {
  int64_t length = 0;
  data::DatasetStatistics packed;
  std::string reason;
};

// Selects the sequence length from powers of two between 128 and the minimum of context and 2,048. For documents that
// may not be cut: of lengths that hold 99 % of the documents, the shortest whose FLOPs per token are within 2 % of the
// best. The best is the one with the least padding, as attention stays inside a document and its cost does not grow
// with the sequence. Plain text can be cut anywhere and benefits from context: the longest length, up to 1,024, whose
// packing efficiency is within 2 % of the best.
Choice choose_length(const DataInspection& inspection, const spec::ModelSpec& model) {
  const int64_t max =
      std::min(model.context, inspection.splittable ? std::min<int64_t>(longest_suggested, 1024) : longest_suggested);
  const int64_t needed = inspection.splittable ? 0 : inspection.lengths[(inspection.lengths.size() - 1) * 99 / 100];
  std::vector<Choice> choices;
  std::vector<double> costs;
  for (int64_t length = 128; choices.empty() || choices.back().length < max; length *= 2) {
    if (length < needed && length < max) continue;
    Choice choice{std::min(length, max), {}, {}};
    choice.packed = pack(inspection, choice.length);
    costs.push_back(inspection.splittable ? 1 / choice.packed.packing_efficiency
                                          : cost_of_token(model, choice.packed, choice.length));
    choices.push_back(std::move(choice));
  }
  const double limit = 1.02 * *std::min_element(costs.begin(), costs.end());
  const auto good = [&](double cost) { return cost <= limit; };
  const size_t selected =
      inspection.splittable
          ? static_cast<size_t>(std::find_if(costs.rbegin(), costs.rend(), good).base() - costs.begin()) - 1
          : static_cast<size_t>(std::find_if(costs.begin(), costs.end(), good) - costs.begin());
  Choice choice = choices[selected];
  choice.reason = fmt::format(
      "{:.1f} % of them are tokens, the rest is padding; {}", 100 * choice.packed.packing_efficiency,
      choices.size() == 1 ? std::string("no other length holds these documents")
                          : fmt::format("of lengths from {} to {} {}", choices.front().length, choices.back().length,
                                        inspection.splittable ? "the longest that wastes no more than the others"
                                                              : "the shortest with the highest training speed"));
  return choice;
}

// The run's name from the data: "my" for my.train.jsonl; the folder's name for a file that is just called train.
std::string run_name(const fs::path& data) {
  const std::string name = data.stem().stem().string();
  const std::string folder = absolute_path(data).parent_path().filename().string();
  return name == "train" && !folder.empty() ? folder : name;
}

train::Recipe suggest(const std::string& data, const std::string& eval, const std::string& model, int64_t length,
                      const data::DatasetStatistics& packed, const DataInspection& inspection) {
  train::Recipe recipe;
  recipe.name = run_name(data);
  recipe.model = model;
  recipe.adapter = train::AdapterRecipe{};
  recipe.adapter->rank = {};
  recipe.data.train.values = {{data, 1}};
  if (!eval.empty()) recipe.data.eval.values = {{eval, 1}};
  recipe.data.format = inspection.format;
  recipe.data.sequence_length = length;
  // At least 20 steps per epoch where there is enough data; small data is repeated for several epochs.
  recipe.batch.global = std::clamp<int64_t>(packed.num_sequences / 20, 1, 8);
  recipe.epochs = inspection.loss_tokens < 1'000'000 ? 3 : 1;
  const double steps =
      *recipe.epochs * static_cast<double>(packed.num_sequences) / static_cast<double>(recipe.batch.global);
  recipe.schedule.warmup = {.percent = 5};
  recipe.checkpoint.minutes.value = train::default_checkpoint_minutes;
  if (!eval.empty()) recipe.eval.every = std::max<int64_t>(1, static_cast<int64_t>(steps / 5));
  return recipe;
}

// The CPU's rates in bf16.
DeviceRates measured_rates(runtime::Runtime& runtime) {
  Arena scratch(*runtime.device, runtime::measuring_bytes, "scratch");
  ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
  return runtime::cpu_rates(runtime::rate_cache(runtime::rates_key(runtime)), context, DType::bf16).rates;
}

class Init : public Command {
 public:
  const char* name() const override { return "init"; }
  const char* summary() const override { return "inspect a data file and write a recipe for it"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("data", data_, "a .jsonl or text file");
    arguments.option("model", model_, "the model to tune: a folder, a .gguf file or a registered name");
    arguments.option("eval", eval_,
                     "held-out data (default: a file next to DATA with a held-out name; otherwise a twentieth of DATA "
                     "is held out and both parts are written next to the recipe)");
    arguments.option("out", out_, "the recipe to write (default: recipe.yaml); it must not exist");
    arguments.option("threads", threads_, "CPU threads (default: all)");
    arguments.example("ingot init data/sotu/train.jsonl --model SmolLM2-135M-Instruct");
  }

  int run(const Output& output) override {
    if (name_exists(out_)) {
      throw_hint(ErrorKind::usage, "give another name with --out, or remove it first", "{} already exists", out_);
    }
    exit_on_interrupt();
    runtime::Runtime runtime = runtime::open_runtime("cpu", threads_);
    const std::string model = model_ ? *model_ : ask_model(output);
    const checkpoint::ModelSource source = checkpoint::open_model(model);
    const spec::ModelSpec spec = checkpoint::read_model_spec(source);
    const checkpoint::TextAssets assets = checkpoint::load_text(source);
    if (!assets.tokenizer) {
      throw_hint(ErrorKind::not_found, "put tokenizer.json beside config.json", "the model {} has no tokenizer",
                 source.path.string());
    }
    std::optional<text::ChatTemplate> chat;
    if (assets.chat_template) chat.emplace(*assets.chat_template, source.name + ": chat template");
    HeldOut held_out = hold_out();
    const std::string train = held_out.split ? held_out.split->train().string() : data_;
    const DataInspection data = inspect(train, assets, chat ? &*chat : nullptr, *runtime.threads);
    const Choice choice = choose_length(data, spec);
    const int64_t length = choice.length;
    const data::DatasetStatistics& packed = choice.packed;

    train::Recipe recipe = suggest(train, held_out.path, model, length, packed, data);
    const runs::WeightPlan weights{static_cast<size_t>(spec::num_parameters(spec)) * size_of(DType::bf16), 0};
    const runs::RunPlan plan = runs::plan_run(recipe, spec, packed, 0, weights, available_memory(), runtime);
    recipe.adapter->rank = plan.recipe.adapter->rank;
    const double tokens = static_cast<double>(*plan.recipe.steps * recipe.batch.global * length);
    const DeviceRates rates = measured_rates(runtime);
    const double seconds = plan.flops_per_token * tokens / rates.gemm;

    const std::string header = fmt::format(
        "# Written by ingot init for {}: {} documents ({}), {} tokens, {} of them in the loss.\n"
        "# {} sequences of {}; {} steps. Train with: ingot finetune {}\n"
        "# Packing: {}.\n"
        "# At least {} on this machine (matrix products at {:.2f} TFLOP/s, as measured {}), and {} of memory.\n"
        "# {}\n",
        train, data.corpus.num_documents(), data::name(data.format), data.corpus.num_tokens(), data.loss_tokens,
        packed.num_sequences, length, *plan.recipe.steps, out_, choice.reason, format_duration(seconds),
        rates.gemm / 1e12, rates.date, format_bytes(plan.memory.total()), held_out.text);
    write_file(out_, header + train::write_recipe(recipe));
    if (held_out.split) held_out.split->keep();
    output.print(header);
    output.print(fmt::format("wrote {}\n", out_));
    const nlohmann::ordered_json eval = held_out.path.empty() ? nullptr : nlohmann::ordered_json(held_out.path);
    output.print_json(json_line({{"recipe", out_},
                                 {"train", train},
                                 {"eval", eval},
                                 {"documents", data.corpus.num_documents()},
                                 {"format", data::name(data.format)},
                                 {"tokens", data.corpus.num_tokens()},
                                 {"counted", data.loss_tokens},
                                 {"truncated", packed.num_truncated},
                                 {"sequence_length", length},
                                 {"sequences", packed.num_sequences},
                                 {"padding", 1 - packed.packing_efficiency},
                                 {"epochs", *recipe.epochs},
                                 {"steps", *plan.recipe.steps},
                                 {"rank", *recipe.adapter->rank.value},
                                 {"seconds", seconds},
                                 {"rates_measured", rates.date},
                                 {"memory_bytes", plan.memory.total()}}));
    return 0;
  }

 private:
  struct HeldOut {
    std::string path;  // empty: no held-out data
    std::string text;  // description of its origin
    std::optional<runs::DataSplit> split;
  };

  HeldOut hold_out() const {
    HeldOut held_out;
    if (eval_) {
      const data::DocumentReader refuses_what_is_no_data(*eval_, data::Format::automatic, data::OnError::stop);
      held_out.path = *eval_;
      held_out.text = fmt::format("Held out: {}.", *eval_);
    } else if (const std::optional<fs::path> beside = runs::held_out_beside(data_)) {
      held_out.path = beside->string();
      held_out.text = fmt::format("Held out: {}, found next to it (--eval selects another file).", held_out.path);
    } else if (held_out.split.emplace(data_, fs::path(out_).parent_path()); *held_out.split) {
      held_out.path = held_out.split->held_out().string();
      held_out.text = fmt::format("Held out: {}, {} of {}.", held_out.path, held_out.split->rule(), data_);
    } else {
      held_out.split.reset();
      held_out.text = "Nothing is held out: there is too little data to split. Give held-out data with --eval.";
    }
    return held_out;
  }

  static std::string ask_model(const Output& output) {
    std::string model;
    if (isatty(STDIN_FILENO) != 0 && !output.json()) {
      output.print("model (a folder, a .gguf file or a registered name): ");
      std::getline(std::cin, model);
    }
    if (trim(model).empty()) {
      throw_hint(ErrorKind::usage, "ingot model list shows the registered models", "--model is needed");
    }
    return std::string(trim(model));
  }

  std::string data_;
  std::optional<std::string> model_;
  std::optional<std::string> eval_;
  std::string out_ = "recipe.yaml";
  std::optional<int64_t> threads_;
};

}  // namespace

std::unique_ptr<Command> init_command() { return std::make_unique<Init>(); }

}  // namespace ingot::cli

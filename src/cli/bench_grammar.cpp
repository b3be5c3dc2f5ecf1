// ingot bench grammar: runs the cases of JSON-Schema-Test-Suite through grammars and their masks; checks which are
// accepted, then measures times.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/path.h"
#include "bench/maskbench.h"
#include "bench/times.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "grammar/matcher.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Totals {
  int64_t schemas = 0, compiled = 0, refused = 0, failed = 0;
  int64_t valid_accepted = 0, valid_refused = 0, invalid_accepted = 0, invalid_refused = 0;
  bench::Times compile, mask;
  std::map<std::string, int64_t> reasons;  // why schemas were refused
  std::vector<std::string> mistakes, strict;
};

// Returns the exit code.
int print(const Output& output, const bench::MaskBenchReport& report) {
  output.print(report.text);
  output.print_json(report.json);
  return report.is_sound ? 0 : exit_code(ErrorKind::internal);
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
    tokenizer_ = assets.tokenizer.get();
    std::vector<int32_t> ends = assets.eos;
    vocabulary_ = std::make_shared<const grammar::Vocabulary>(*tokenizer_, ends);
    if (maskbench_)
      return print(output, bench::run_maskbench(*maskbench_, tokenizer_, vocabulary_, threads_, details_));
    if (sample_) return draw_all(output);
    std::vector<std::filesystem::path> files;
    for (const auto& path : list_folder(*suite_)) {
      if (path.extension() == ".json") files.push_back(path);
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) throw_error(ErrorKind::not_found, "{} has no .json files", *suite_);
    Totals totals;
    for (const auto& path : files) {
      const Json groups = read_groups(path);
      for (const Json& group : groups) run_group(path.stem().string(), group, totals);
    }
    return report(output, totals);
  }

 private:
  // Reads a file of the suite. Errors: corrupt for any other file.
  static Json read_groups(const std::filesystem::path& path) {
    Json groups = try_parse_json(read_file(path));
    const auto is_text = [](const Json& object, const char* key) {
      return object.is_object() && object.contains(key) && object[key].is_string();
    };
    const auto is_test = [&](const Json& test) {
      return is_text(test, "description") && test.contains("data") && test.contains("valid") &&
             test["valid"].is_boolean();
    };
    const auto is_group = [&](const Json& group) {
      return is_text(group, "description") && group.contains("schema") && group.contains("tests") &&
             group["tests"].is_array() && std::all_of(group["tests"].begin(), group["tests"].end(), is_test);
    };
    if (groups.is_array() && std::all_of(groups.begin(), groups.end(), is_group)) return groups;
    throw_hint(ErrorKind::corrupt, "give a folder of JSON-Schema-Test-Suite files, e.g. .../tests/draft2020-12",
               "{}: is not a JSON-Schema-Test-Suite file", path.string());
  }

  // Prints one line of JSON per schema: generated texts, or why the schema is refused.
  int draw_all(const Output& output) const {
    std::istringstream lines(read_file(*sample_));
    std::mt19937_64 random(1);
    for (std::string line; std::getline(lines, line);) {
      Json result = Json::object();
      try {
        const auto tokens =
            std::make_shared<const grammar::TokenGrammar>(grammar::compile_json_schema(line), vocabulary_);
        result["texts"] = Json::array();
        for (int64_t i = 0; i < samples_; ++i) {
          if (const auto text = drawn(tokens, random)) result["texts"].push_back(*text);
        }
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::internal) throw;
        result["error"] = std::string(ingot::name(error.kind())) + ": " + error.message();
      }
      output.print(result.dump() + "\n");
    }
    return 0;
  }

  // Generates a text from tokens that the masks allow, with each allowed first byte equally likely; absent when it does
  // not end within a limit.
  std::optional<std::string> drawn(const std::shared_ptr<const grammar::TokenGrammar>& tokens,
                                   std::mt19937_64& random) const {
    grammar::Matcher matcher(tokens);
    std::vector<uint32_t> mask(vocabulary_->num_words());
    std::string text;
    for (int step = 0; step < 400; ++step) {
      if (matcher.finished() || (matcher.may_end() && random() % 3 == 0)) return text;
      matcher.fill_mask(mask);
      std::array<std::vector<int32_t>, 256> by_byte;
      for (int32_t id = 0; id < vocabulary_->size(); ++id) {
        const bool in_mask = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
        if (in_mask && !vocabulary_->is_end(id)) by_byte[static_cast<uint8_t>(vocabulary_->bytes(id)[0])].push_back(id);
      }
      std::vector<const std::vector<int32_t>*> choices;
      for (const auto& ids : by_byte) {
        if (ids.empty()) continue;
        const bool is_end_of_text =
            ids[0] >= 0 && std::string_view("\"]}").find(vocabulary_->bytes(ids[0])[0]) != std::string_view::npos;
        choices.insert(choices.end(), is_end_of_text ? 1 + static_cast<size_t>(step) : 1, &ids);
      }
      if (choices.empty() && matcher.may_end()) return text;
      if (choices.empty()) throw_error(ErrorKind::internal, "the mask allows no token after '{}'", text);
      const std::vector<int32_t>& ids = *choices[random() % choices.size()];
      const int32_t id = ids[random() % ids.size()];
      matcher.accept(id);
      text += vocabulary_->bytes(id);
    }
    return std::nullopt;
  }

  void run_group(const std::string& file, const Json& group, Totals& totals) {
    const std::string where = file + ": " + group.at("description").get<std::string>();
    Json with_draft = group.at("schema");
    if (draft_ && with_draft.is_object() && !with_draft.contains("$schema")) with_draft["$schema"] = *draft_;
    const std::string schema = with_draft.dump();
    ++totals.schemas;
    grammar::GrammarPtr compiled;
    const double before = bench::thread_us();
    try {
      compiled = grammar::compile_json_schema(schema);
    } catch (const Error& error) {
      refuse(where, error, totals);
      return;
    }
    totals.compile.us.push_back(bench::thread_us() - before);
    ++totals.compiled;
    const auto tokens = std::make_shared<const grammar::TokenGrammar>(compiled, vocabulary_);
    for (const Json& test : group.at("tests")) {
      const bool is_valid = test.at("valid").get<bool>();
      bool is_accepted = false;
      try {
        is_accepted = accepted(tokens, test.at("data").dump(), totals);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::resource) throw;
        ++totals.failed;
        continue;
      }
      const std::string what = where + ": " + test.at("description").get<std::string>();
      if (is_valid) {
        ++(is_accepted ? totals.valid_accepted : totals.valid_refused);
        if (!is_accepted) totals.strict.push_back(what);
      } else {
        ++(is_accepted ? totals.invalid_accepted : totals.invalid_refused);
        if (is_accepted) totals.mistakes.push_back(what);
      }
    }
  }

  static void refuse(const std::string& where, const Error& error, Totals& totals) {
    if (error.kind() == ErrorKind::internal) throw error;
    ++totals.refused;
    ++totals.reasons[where + ": " + error.message()];
  }

  // Whether the masks allow all tokens of the text up to its end. A token that is not in the mask is also checked byte
  // by byte.
  bool accepted(const std::shared_ptr<const grammar::TokenGrammar>& tokens, const std::string& text, Totals& totals) {
    grammar::Matcher matcher(tokens);
    std::vector<uint32_t> mask(vocabulary_->num_words());
    for (const int32_t id : tokenizer_->encode(text, {.add_special_tokens = false, .parse_special = false})) {
      const double before = bench::thread_us();
      matcher.fill_mask(mask);
      totals.mask.us.push_back(bench::thread_us() - before);
      const bool in_mask = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      if (in_mask != matcher.allows(id)) {
        throw_error(ErrorKind::internal, "the mask of token {} in {} disagrees with matching its bytes", id, text);
      }
      if (!in_mask) return false;
      matcher.accept(id);
    }
    return matcher.may_end();
  }

  int report(const Output& output, Totals& totals) const {
    const Json compile = totals.compile.json(), mask = totals.mask.json();
    const auto us = [](const Json& times, const char* key) { return times.at(key).get<double>(); };
    output.print(fmt::format(
        "{} schemas, {} compiled, {} refused by name\nvalid: {} accepted, {} not; invalid: {} refused, {} accepted; {} "
        "over a limit\ncompile: mean {:.0f}, p50 {:.0f}, p99 {:.0f}, max {:.0f} us\n{} masks of {} tokens: mean "
        "{:.1f}, "
        "p50 {:.1f}, p99 {:.0f}, p99.9 {:.0f}, max {:.0f} us (processor time of one thread)\n",
        totals.schemas, totals.compiled, totals.refused, totals.valid_accepted, totals.valid_refused,
        totals.invalid_refused, totals.invalid_accepted, totals.failed, us(compile, "mean"), us(compile, "p50"),
        us(compile, "p99"), us(compile, "max"), totals.mask.us.size(), vocabulary_->size(), us(mask, "mean"),
        us(mask, "p50"), us(mask, "p99"), us(mask, "p99_9"), us(mask, "max")));
    for (const std::string& mistake : totals.mistakes) output.print(fmt::format("ACCEPTED BUT INVALID {}\n", mistake));
    if (details_) {
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
                                 {"tokens", vocabulary_->size()},
                                 {"compile_us", compile},
                                 {"mask_us", mask}}));
    return totals.mistakes.empty() ? 0 : exit_code(ErrorKind::internal);
  }

  std::optional<std::string> model_, suite_, draft_, sample_, maskbench_;
  int64_t samples_ = 20, threads_ = 1;
  bool details_ = false;
  const text::Tokenizer* tokenizer_ = nullptr;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
};

}  // namespace

std::unique_ptr<Command> bench_grammar_command() { return std::make_unique<BenchGrammar>(); }

}  // namespace ingot::cli

#include "bench/parity_serving.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "bench/random_model.h"
#include "infer/engine.h"
#include "infer/grammar_mask.h"
#include "spec/rounding.h"
#include "tensor/tolerance.h"

namespace ingot::bench {

namespace {

constexpr int64_t prompt_tokens = 12;
constexpr int64_t answer_tokens = 16;
constexpr int64_t json_tokens = 42;  // exceeds the longest instance in bytes
constexpr int64_t context_tokens = prompt_tokens + json_tokens;
constexpr int64_t page_tokens = 4;
constexpr int64_t ranks[] = {2, 3, 4};  // at most the number of rows of the smallest layer, an MoE router
// Allowed ratio of a device's error to the CPU's rounding error, which is estimated from only a few samples.
constexpr double error_multiple = 4;

// All instances have bounded length: characters may be written as escapes of six bytes, but a number could have any
// number of zeros.
constexpr const char* schema = R"({"type": "object", "additionalProperties": false, "required": ["n", "b"],
  "properties": {"n": {"type": "string", "pattern": "^[0-9]{1,2}$"}, "b": {"type": "boolean"}}})";

// A vocabulary for the grammar: printable ASCII, the multi-byte parts of the JSON, two-digit numbers; the last id is
// the end of text.
std::shared_ptr<const grammar::TokenGrammar> json_grammar(int64_t vocab) {
  std::vector<std::string> tokens;
  for (char c = ' '; c <= '~'; ++c) tokens.emplace_back(1, c);
  for (const char* word : {"\":", "\",\"", "true", "false"}) tokens.emplace_back(word);
  for (int number = 10; number < 100; ++number) tokens.push_back(std::to_string(number));
  tokens.resize(static_cast<size_t>(vocab));
  const auto end = static_cast<int32_t>(vocab - 1);
  tokens.back().clear();
  return std::make_shared<const grammar::TokenGrammar>(
      grammar::compile_json_schema(schema, {.whitespace = grammar::Whitespace::none}),
      std::make_shared<const grammar::Vocabulary>(tokens, std::vector<int32_t>{end}));
}

// A mask that allows only one token.
class Only : public infer::TokenMask {
 public:
  explicit Only(int32_t id) : id_(id) {}
  void fill(std::span<uint32_t> bits) override {
    std::ranges::fill(bits, 0U);
    bits[static_cast<size_t>(id_) / 32] = uint32_t{1} << (id_ % 32);
  }
  void accept(int32_t) override {}
  void rollback(int64_t) override {}
  bool finished() const override { return false; }

 private:
  int32_t id_;
};

// A request and its name.
struct Question {
  std::string name;
  size_t adapter = 0;  // 0: none
  bool json = false;
};

std::vector<Question> questions() {
  std::vector<Question> all = {{"base", 0, false}};
  for (size_t i = 0; i < std::size(ranks); ++i) all.push_back({fmt::format("rank {}", ranks[i]), i + 1, false});
  all.push_back({"JSON", 0, true});
  all.push_back({fmt::format("JSON by rank {}", ranks[1]), 2, true});
  return all;
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
  std::optional<infer::FinishReason> finish;
  std::string error;
  int64_t cached = 0;
};
using Answers = std::vector<Answer>;  // in the order of the questions

// A tiny model with its adapters, served on a device.
class TinyServer {
 public:
  TinyServer(runtime::Runtime& runtime, const spec::ModelSpec& model, DType activation, double scale)
      : runtime_(runtime),
        model_(model),
        activation_(activation),
        weights_(random_model(*runtime.device, model, random_weight_storage("auto", activation), 1, scale)),
        computed_(models::make_model(model_, weights_, *runtime.device)),
        grammar_(json_grammar(model.vocab)) {
    for (const int64_t rank : ranks) {
      // Large enough relative to the weights that the adapters' texts differ.
      const spec::LoraSpec lora{.rank = rank, .alpha = 128.0 * static_cast<double>(rank), .targets = {"all-linear"}};
      adapters_.push_back(random_adapter(model_, lora, activation, rank));
    }
  }

  // Serves the requests one after another.
  Answers alone() {
    infer::EngineSettings settings = base_settings();
    settings.batch_tokens = 5;  // chunked prefill
    Answers answers;
    const std::unique_ptr<infer::Engine> engine = make(settings);
    for (const Question& question : questions()) answers.push_back(drain(*engine, {engine->submit(ask(question))})[0]);
    return answers;
  }

  // Serves all requests in one batch with `others` more, half of them submitted before and half after.
  Answers in_company(int64_t others) {
    const std::vector<Question> asked = questions();
    infer::EngineSettings settings = base_settings();
    settings.sequences = others + std::ssize(asked);
    settings.batch_tokens = settings.sequences + 16;
    settings.adapter_slots = std::ssize(ranks);
    const std::unique_ptr<infer::Engine> engine = make(settings);
    const auto other = [&](int64_t i) {
      infer::Request request;
      const int64_t length = 1 + i * 7 % 20;
      request.prompt = random_sequence(model_, length, length, static_cast<uint64_t>(100 + i)).ids;
      request.max_tokens = 4 + i % (answer_tokens - 4);
      request.adapter = adapter(static_cast<size_t>(i) % (1 + std::size(ranks)));
      engine->submit(std::move(request));
    };
    for (int64_t i = 0; i < others / 2; ++i) other(i);
    std::vector<int64_t> names;
    for (const Question& question : asked) names.push_back(engine->submit(ask(question)));
    for (int64_t i = others / 2; i < others; ++i) other(i);
    return drain(*engine, names);
  }

  // Serves the requests twice; the second time the full pages of the prompts are cached. There are fewer slots than
  // adapters.
  Answers found_prefix() {
    infer::EngineSettings settings = base_settings();
    settings.sequences = std::ssize(questions());
    settings.batch_tokens = 64;
    settings.adapter_slots = std::ssize(ranks) - 1;
    settings.prefix_cache = true;
    const std::unique_ptr<infer::Engine> engine = make(settings);
    Answers answers;
    for (int time = 0; time < 2; ++time) {
      std::vector<int64_t> names;
      for (const Question& question : questions()) names.push_back(engine->submit(ask(question)));
      answers = drain(*engine, names);
    }
    return answers;
  }

  // The log-probability of `id` after the question's prompt and `ids`.
  double logprob_of(const Question& question, std::span<const int32_t> ids, int32_t id) {
    const std::unique_ptr<infer::Engine> engine = make(base_settings());
    infer::Request request = ask(question);
    std::vector<int32_t> prompt = request.prompt.get();
    prompt.insert(prompt.end(), ids.begin(), ids.end());
    request.prompt = std::move(prompt);
    request.max_tokens = 1;
    request.mask = std::make_shared<Only>(id);
    return drain(*engine, {engine->submit(std::move(request))})[0].logprobs.at(0);
  }

  // Describes how an answer violates the JSON grammar; empty if it does not.
  std::string fault(const Answer& answer) const {
    grammar::Matcher matcher(grammar_);
    std::string text;
    for (const int32_t id : answer.ids) {
      if (!matcher.allows(id)) return fmt::format("has token {} after '{}'", id, text);
      matcher.accept(id);
      text += grammar_->vocabulary().bytes(id);
    }
    if (!matcher.may_end() || !nlohmann::json::accept(text)) return fmt::format("is '{}'", text);
    return {};
  }

 private:
  infer::EngineSettings base_settings() const {
    infer::EngineSettings settings;
    settings.activation = activation_;
    settings.context = std::min(context_tokens, model_.context);
    settings.page_tokens = page_tokens;
    settings.adapter_rank = *std::ranges::max_element(ranks);
    return settings;
  }
  std::unique_ptr<infer::Engine> make(const infer::EngineSettings& settings) const {
    return std::make_unique<infer::Engine>(*runtime_.device, runtime_.registry, *runtime_.threads, *computed_,
                                           settings);
  }
  std::shared_ptr<const infer::HostAdapter> adapter(size_t number) const {
    return number > 0 ? adapters_[number - 1] : nullptr;
  }
  infer::Request ask(const Question& question) const {
    infer::Request request;
    request.prompt = random_sequence(model_, prompt_tokens, prompt_tokens, 3).ids;
    request.max_tokens = question.json ? json_tokens : answer_tokens;
    request.adapter = adapter(question.adapter);
    if (question.json) request.mask = std::make_shared<infer::GrammarMask>(grammar_);
    return request;
  }
  // Runs the engine until it is idle; returns the answers of the requests in `names`.
  static Answers drain(infer::Engine& engine, const std::vector<int64_t>& names) {
    Answers answers(names.size());
    while (!engine.idle()) {
      for (const infer::Output& output : engine.step()) {
        if (output.finish == infer::FinishReason::failed)
          throw_error(ErrorKind::internal, "a request failed: {}", output.error);
        const auto named = std::ranges::find(names, output.request);
        if (named == names.end()) continue;
        Answer& answer = answers[static_cast<size_t>(named - names.begin())];
        if (output.token) {
          answer.ids.push_back(output.token->id);
          answer.logprobs.push_back(static_cast<double>(output.token->logprob));
        }
        answer.finish = output.finish;
        answer.cached += output.cached_tokens;
      }
    }
    return answers;
  }

  runtime::Runtime& runtime_;
  spec::ModelSpec model_;
  DType activation_;
  WeightSet weights_;
  std::unique_ptr<models::Model> computed_;
  std::shared_ptr<const grammar::TokenGrammar> grammar_;
  std::vector<std::shared_ptr<const infer::HostAdapter>> adapters_;
};

// The CPU's answers in fp32, with which other answers are compared.
class Reference {
 public:
  Reference(runtime::Runtime& cpu, const spec::ModelSpec& model)
      : server_(cpu, model, DType::f32, 1), asked_(questions()), exact_(server_.alone()) {
    std::set<std::vector<int32_t>> texts;
    for (size_t q = 0; q < asked_.size(); ++q) {
      if (!asked_[q].json) texts.insert(exact_[q].ids);
    }
    if (texts.size() != 1 + std::size(ranks)) {
      throw_error(ErrorKind::internal,
                  "adapters do not change the text of a tiny {}: the comparison would be meaningless", model.family);
    }
  }

  double largest() const {
    double most = 0;
    for (const Answer& answer : exact_) {
      for (const double logprob : answer.logprobs) most = std::max(most, std::abs(logprob));
    }
    return most;
  }

  ServingAgreement compare(const Answers& found) {
    ServingAgreement agreement;
    for (size_t q = 0; q < asked_.size(); ++q) compare(asked_[q], exact_[q], found[q], agreement);
    return agreement;
  }

 private:
  void compare(const Question& question, const Answer& exact, const Answer& found, ServingAgreement& agreement) {
    const auto add = [&](size_t token, double error) {
      if (!(error <= INFINITY)) error = INFINITY;  // NaN
      ++agreement.tokens;
      if (!agreement.worst.empty() && error <= agreement.error) return;
      agreement.error = error;
      agreement.worst = fmt::format("{}, token {}", question.name, token);
    };
    const auto wrong = [&](const std::string& what) {
      agreement.wrong.push_back(fmt::format("{}: {}", question.name, what));
    };
    if (question.json) {
      const std::string fault = server_.fault(found);
      if (!fault.empty()) wrong(fault);
    }
    const size_t both = std::min(exact.ids.size(), found.ids.size());
    for (size_t i = 0; i < both; ++i) {
      if (exact.ids[i] == found.ids[i]) {
        add(i, std::abs(found.logprobs[i] - exact.logprobs[i]));
        continue;
      }
      const std::span<const int32_t> before = std::span(exact.ids).first(i);
      add(i, (exact.logprobs[i] - server_.logprob_of(question, before, found.ids[i])) / 2);
      ++agreement.parted;
      return;
    }
    if (exact.ids.size() != found.ids.size() || exact.finish != found.finish) {
      wrong(fmt::format("{} tokens and the end '{}'; on the CPU {} and '{}'", found.ids.size(), end_of(found),
                        exact.ids.size(), end_of(exact)));
    }
  }
  static const char* end_of(const Answer& answer) { return answer.finish ? infer::name(*answer.finish) : "none"; }

  TinyServer server_;
  std::vector<Question> asked_;
  Answers exact_;
};

}  // namespace

std::vector<ServingAgreement> compare_serving(runtime::Runtime& cpu, runtime::Runtime& device,
                                              const spec::ModelSpec& model, int64_t others) {
  Reference reference(cpu, model);
  const double rounding = tolerance(DType::f32, spec::chain_length(model)) * reference.largest();
  std::vector<ServingAgreement> all;
  for (const DType activation : {DType::f32, DType::bf16}) {
    double noise = 0;
    const double ulp = 2 * unit_roundoff(DType::f32);
    for (const double scale : {1 + ulp, 1 - ulp, 1 + 2 * ulp}) {
      const bool exact = activation == DType::bf16;
      TinyServer changed(cpu, model, activation, exact ? 1 : scale);
      noise = std::max(noise, reference.compare(changed.alone()).error);
      if (exact) break;
    }
    TinyServer server(device, model, activation, 1);
    const auto add = [&](const char* way, const Answers& found) -> ServingAgreement& {
      ServingAgreement one = reference.compare(found);
      one.job = fmt::format("{} {}", way, activation == DType::f32 ? "fp32" : "bf16");
      one.allowed = rounding + error_multiple * noise;
      return all.emplace_back(std::move(one));
    };
    add("alone", server.alone());
    add("in company", server.in_company(others));
    const Answers found = server.found_prefix();
    ServingAgreement& prefix = add("found prefix", found);
    constexpr int64_t storage = (prompt_tokens - 1) / page_tokens * page_tokens;
    for (const Answer& answer : found) {
      if (answer.cached == storage) continue;
      prefix.wrong.push_back(
          fmt::format("{} tokens of a prompt were found in the prefix cache, expected {}", answer.cached, storage));
    }
  }
  return all;
}

}  // namespace ingot::bench

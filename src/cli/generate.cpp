// ingot generate: continues a prompt.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/model_ranks.h"
#include "grammar/matcher.h"
#include "infer/answer.h"
#include "infer/grammar_mask.h"
#include "runtime/session.h"
#include "text/chat_template.h"

namespace ingot::cli {

namespace {

nlohmann::ordered_json rate(int64_t tokens, double seconds) {
  if (tokens == 0 || seconds <= 0) return nullptr;
  return static_cast<double>(tokens) / seconds;
}

class Generate : public Command {
 public:
  const char* name() const override { return "generate"; }
  const char* summary() const override { return "continue a prompt; greedy unless --temperature is given"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    cli::declare(options_, arguments);
    prompt_.declare(arguments, "prompt");
    arguments.flag("chat", chat_, "wrap the prompt in the model's chat template as one user message");
    arguments.option("max-tokens", max_tokens_, "maximum number of tokens to generate");
    arguments.option("temperature", sampling_.temperature, "sampling temperature; 0: greedy");
    arguments.option("top-p", sampling_.top_p,
                     "sample from the smallest set of tokens whose probabilities sum to at least this");
    arguments.option("top-k", sampling_.top_k, "sample from the k most likely tokens; 0: all");
    arguments.option("min-p", sampling_.min_p,
                     "sample from tokens whose probability is at least this times the highest");
    arguments.option("repetition-penalty", sampling_.repetition_penalty,
                     "penalty for tokens that already occurred; above 1: less likely");
    arguments.option("seed", seed_, "random seed of sampling: the same seed gives the same text");
    arguments.option("stop", stops_, "stop string; may be given several times");
    arguments.option("json-schema", json_schema_, "a file with a JSON Schema that constrains the output");
    arguments.flag("in-order", in_order_, "require the properties of --json-schema in the order of the schema");
    arguments.option("grammar", grammar_, "a file with a grammar (GBNF) that constrains the output");
    arguments.example(
        "ingot generate --model SmolLM2-135M-Instruct --prompt 'Once upon a time' --max-tokens 64 --temperature 0.8");
  }

  int run(const Output& output) override {
    prompt_.check();
    if (chat_ && prompt_.ids) throw_error(ErrorKind::usage, "--chat needs a text, not --ids");
    if (json_schema_ && grammar_) throw_error(ErrorKind::usage, "give --json-schema or --grammar, not both");
    if (in_order_ && !json_schema_) throw_error(ErrorKind::usage, "--in-order needs --json-schema");
    if (max_tokens_ < 1) throw_error(ErrorKind::usage, "--max-tokens {}; must be at least 1", max_tokens_);
    if (seed_ < 0) throw_error(ErrorKind::usage, "--seed {}; it must not be negative", seed_);
    sampling_.seed = static_cast<uint64_t>(seed_);
    infer::check(sampling_);
    const Log log(LogLevel::info);
    if (sampling_.temperature == 0 && (sampling_.top_p < 1 || sampling_.top_k > 0 || sampling_.min_p > 0)) {
      log.warning("--top-p, --top-k and --min-p have no effect without a --temperature above 0");
    }
    const grammar::GrammarPtr grammar = compiled_grammar();
    exit_on_interrupt();
    return on_model_ranks(options_, [&](const runtime::ModelRank& rank) { return generate(rank, grammar, output); });
  }

 private:
  int generate(const runtime::ModelRank& rank, const grammar::GrammarPtr& grammar, const Output& output) {
    runtime::Session session(options_, rank);
    if (!session.leads()) return follow_engine(session);
    const Log log(LogLevel::info);
    infer::Request request;
    request.prompt = chat_ ? render_prompt(session) : encode(session, prompt_);
    request.max_tokens = max_tokens_;
    request.sampling = sampling_;
    request.stop_ids = session.text().eos;
    request.adapter = infer::shared_adapter(session.whole_adapter());
    if (grammar) {
      const auto vocabulary = std::make_shared<const grammar::Vocabulary>(session.tokenizer(), request.stop_ids);
      request.mask =
          std::make_shared<infer::GrammarMask>(std::make_shared<const grammar::TokenGrammar>(grammar, vocabulary));
    }
    const text::Tokenizer* tokenizer = session.text().tokenizer.get();
    if (!tokenizer && !stops_.empty()) session.tokenizer();  // throws: there is none

    const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
    const int64_t context = session.loaded.spec.context;
    if (prompt_tokens < context && max_tokens_ > context - prompt_tokens) {
      log.warning("the context of {} tokens leaves room for {} of --max-tokens {}", context, context - prompt_tokens,
                  max_tokens_);
    }
    infer::EngineSettings settings;
    settings.activation = session.activation;
    settings.context = std::min(context, prompt_tokens + std::min(context, max_tokens_));
    settings.batch_tokens = std::min(settings.batch_tokens, prompt_tokens);
    settings.adapter_rank = session.adapter_rank;
    settings.decoded = session.decoded;
    settings.int8_activations = session.int8_activations;
    infer::Engine engine(*session.runtime.device, session.runtime.registry, *session.runtime.threads, *session.model,
                         settings, session.ranks);
    const infer::Answer answer = infer::answer(
        engine, std::move(request), tokenizer, stops_, [&](std::string_view text) { output.print(text); },
        [] { return false; });
    report(output, answer, prompt_tokens, tokenizer);
    return 0;
  }

  // The grammar of the output; null: unconstrained.
  grammar::GrammarPtr compiled_grammar() const {
    if (!json_schema_ && !grammar_) return nullptr;
    const std::string& path = json_schema_ ? *json_schema_ : *grammar_;
    const std::string text = read_file(path);
    try {
      return json_schema_ ? grammar::compile_json_schema(text, {.in_order = in_order_}) : grammar::compile_ebnf(text);
    } catch (const Error& error) {
      // A usage error of the schema or grammar is an error in the file.
      const ErrorKind kind = error.kind() == ErrorKind::usage ? ErrorKind::corrupt : error.kind();
      throw Error(kind, path + ": " + error.message(), error.hint());
    }
  }

  std::vector<int32_t> render_prompt(runtime::Session& session) {
    const checkpoint::TextAssets& assets = session.text();
    if (!assets.chat_template) {
      throw_hint(ErrorKind::not_found, "remove --chat", "the model {} has no chat template",
                 session.source.path.string());
    }
    const text::ChatTemplate chat(*assets.chat_template, session.source.name + ": chat template");
    text::ChatOptions options;
    options.add_generation_prompt = true;
    options.bos_token = assets.bos_text;
    options.eos_token = assets.eos_text;
    const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", prompt_.words()}}};
    const text::ChatText rendered = chat.render(messages, nullptr, options);
    return text::encode_chat(session.tokenizer(), rendered);
  }

  static void report(const Output& output, const infer::Answer& answer, int64_t prompt_tokens,
                     const text::Tokenizer* tokenizer) {
    using Json = nlohmann::ordered_json;
    if (tokenizer) {
      output.print("\n");
    } else {
      output.print(fmt::format("{}\n", fmt::join(answer.ids, ",")));
    }
    const int64_t completion = static_cast<int64_t>(answer.ids.size());
    Json result = {{"text", nullptr},
                   {"ids", answer.ids},
                   {"finish_reason", infer::name(answer.finish)},
                   {"usage",
                    {{"prompt_tokens", prompt_tokens},
                     {"completion_tokens", completion},
                     {"total_tokens", prompt_tokens + completion}}},
                   {"prefill_tokens_per_s", rate(prompt_tokens, answer.prefill_s)},
                   {"decode_tokens_per_s", rate(answer.decode_tokens, answer.decode_s)}};
    if (tokenizer) result["text"] = answer.text;
    output.print_json(json_line(result));
  }

  runtime::ModelOptions options_;
  TextInput prompt_;
  bool chat_ = false;
  int64_t max_tokens_ = 256;
  infer::SamplingParams sampling_;
  int64_t seed_ = 0;
  std::vector<std::string> stops_;
  std::optional<std::string> json_schema_, grammar_;
  bool in_order_ = false;
};

}  // namespace

std::unique_ptr<Command> generate_command() { return std::make_unique<Generate>(); }

}  // namespace ingot::cli

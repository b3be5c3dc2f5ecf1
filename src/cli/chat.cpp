// ingot chat: a conversation on the terminal, or through pipes.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/strings.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/model_ranks.h"
#include "infer/answer.h"
#include "runtime/session.h"
#include "text/chat_template.h"

namespace ingot::cli {

namespace {

constexpr const char* what_to_type = "/reset forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C stops an answer";

class Chat : public Command {
 public:
  const char* name() const override { return "chat"; }
  const char* summary() const override { return "chat with a model in the terminal"; }

  void declare(Arguments& arguments) override {
    cli::declare(options_, arguments);
    arguments.option("system", system_, "the system message");
    arguments.option("context", context_, "maximum tokens of the conversation");
    arguments.option("max-tokens", max_tokens_, "maximum tokens per answer");
    arguments.option("temperature", temperature_,
                     "sampling temperature, 0: greedy (default: that of the model's generation_config.json)");
    arguments.option("top-p", top_p_, "likewise");
    arguments.option("top-k", top_k_, "likewise");
    arguments.option("seed", seed_, "random seed of sampling");
    arguments.example("ingot chat --model SmolLM2-135M-Instruct");
  }

  int run(const Output& output) override {
    if (max_tokens_ < 1) throw_error(ErrorKind::usage, "--max-tokens {}; must be at least 1", max_tokens_);
    if (seed_ < 0) throw_error(ErrorKind::usage, "--seed {}; it must not be negative", seed_);
    exit_on_interrupt();
    std::ios::sync_with_stdio(false);  // so that it is known whether std::cin has input
    return on_model_ranks(options_, [&](const runtime::ModelRank& rank) { return converse(rank, output); });
  }

 private:
  int converse(const runtime::ModelRank& rank, const Output& output) {
    runtime::Session session(options_, rank);
    if (!session.leads()) return follow_engine(session);
    const checkpoint::TextAssets& assets = session.text();
    if (!assets.chat_template) {
      throw_hint(ErrorKind::not_found, "use ingot generate, or a model that was tuned for conversations",
                 "the model {} has no chat template", session.source.path.string());
    }
    const text::ChatTemplate chat(*assets.chat_template, session.source.name + ": chat template");
    const infer::SamplingParams sampling = sampling_of(assets.generation);
    infer::check(sampling);
    infer::EngineSettings settings;
    settings.activation = session.activation;
    settings.context = std::min(context_, session.loaded.spec.context);
    settings.batch_tokens = std::min(settings.batch_tokens, settings.context);
    settings.adapter_rank = session.adapter_rank;
    settings.decoded = session.decoded;
    settings.int8_activations = session.int8_activations;
    infer::Engine engine(*session.runtime.device, session.runtime.registry, *session.runtime.threads, *session.model,
                         settings, session.ranks);

    const bool terminal = isatty(STDIN_FILENO) != 0;
    const Log log(LogLevel::info);
    if (terminal) log.info(what_to_type);
    nlohmann::ordered_json messages = opening();
    std::string line;
    while (read_line(output, terminal, engine, line)) {
      const std::string_view words = trim(line);
      if (words.empty()) continue;
      if (words == "/quit") return 0;
      if (words == "/reset") {
        messages = opening();
        continue;
      }
      if (words == "/help") {
        log.info(what_to_type);
        continue;
      }
      messages.push_back({{"role", "user"}, {"content", words}});
      infer::Request request;
      request.prompt = encode(session, chat, messages);
      request.max_tokens = max_tokens_;
      request.sampling = sampling;
      request.stop_ids = assets.eos;
      request.adapter = infer::shared_adapter(session.whole_adapter());
      if (static_cast<int64_t>(request.prompt.size()) >= settings.context) {
        if (!terminal) throw_full(request.prompt.size(), settings.context);
        log.error("the conversation has {} tokens, the context is {}; /reset starts a new conversation",
                  request.prompt.size(), settings.context);
        messages.erase(messages.size() - 1);
        continue;
      }
      // Ctrl-C cancels the answer; a second one ends the program.
      const StopSignal stop(&exit_interrupted);
      const infer::Answer answer = infer::answer(
          engine, std::move(request), assets.tokenizer.get(), {}, [&](std::string_view text) { output.print(text); },
          [&] { return stop.requested(); });
      output.print("\n");
      if (stop.requested() && stop.number() != SIGINT) return 130;
      messages.push_back({{"role", "assistant"}, {"content", answer.text}});
    }
    return 0;
  }

  [[noreturn]] static void throw_full(size_t tokens, int64_t context) {
    throw_hint(ErrorKind::usage, "raise --context, or start a new conversation with /reset",
               "the conversation has {} tokens; the context is {}", tokens, context);
  }

  // Returns when there is input, or no more. Other ranks of the model do not wait longer than their time-out.
  static void wait_for_input(infer::Engine& engine) {
    constexpr int check_ranks_ms = 5000;
    while (engine.has_ranks() && std::cin.rdbuf()->in_avail() == 0) {
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (poll(&input, 1, check_ranks_ms) != 0) return;
      engine.check_ranks();
    }
  }

  static bool read_line(const Output& output, bool terminal, infer::Engine& engine, std::string& line) {
    if (terminal) output.print("> ");
    wait_for_input(engine);
    if (std::getline(std::cin, line)) {
      if (is_utf8(line)) return true;
      throw_error(ErrorKind::corrupt, "a line of the input is not UTF-8");
    }
    if (terminal) output.print("\n");
    return false;
  }

  nlohmann::ordered_json opening() const {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    if (system_) messages.push_back({{"role", "system"}, {"content", *system_}});
    return messages;
  }

  static std::vector<int32_t> encode(runtime::Session& session, const text::ChatTemplate& chat,
                                     const nlohmann::ordered_json& messages) {
    text::ChatOptions options;
    options.add_generation_prompt = true;
    options.bos_token = session.text().bos_text;
    options.eos_token = session.text().eos_text;
    const text::ChatText rendered = chat.render(messages, nullptr, options);
    return text::encode_chat(session.tokenizer(), rendered);
  }

  // The user's settings, else the model's recommended ones, else greedy.
  infer::SamplingParams sampling_of(const checkpoint::GenerationDefaults& model) const {
    infer::SamplingParams sampling;
    if (model.do_sample.value_or(false)) {
      sampling.temperature = model.temperature.value_or(1);
      sampling.top_p = model.top_p.value_or(1);
      sampling.top_k = model.top_k.value_or(0);
    }
    sampling.repetition_penalty = model.repetition_penalty.value_or(1);
    if (temperature_) sampling.temperature = *temperature_;
    if (top_p_) sampling.top_p = *top_p_;
    if (top_k_) sampling.top_k = *top_k_;
    sampling.seed = static_cast<uint64_t>(seed_);
    return sampling;
  }

  runtime::ModelOptions options_;
  std::optional<std::string> system_;
  int64_t context_ = 4096;
  int64_t max_tokens_ = 512;
  std::optional<double> temperature_, top_p_;
  std::optional<int64_t> top_k_;
  int64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Command> chat_command() { return std::make_unique<Chat>(); }

}  // namespace ingot::cli

// ingot score: the likelihood of a text.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/model_ranks.h"
#include "formats/npy.h"
#include "infer/sampler.h"
#include "runtime/session.h"

namespace ingot::cli {

namespace {

// The log-probability of `id` under the logits [V].
double log_probability(std::span<const float> logits, int32_t id) {
  const double max_logit = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - max_logit);
  const double result = static_cast<double>(logits[static_cast<size_t>(id)]) - max_logit - std::log(sum);
  infer::check_number(result);
  return result;
}

// Runs the model once over `ids`, as one sequence, and passes the logits on in chunks: see(first row, logits).
void for_logits(runtime::Session& session, const std::vector<int32_t>& ids,
                const std::function<void(int64_t, std::span<const float>)>& see) {
  const spec::ModelSpec& spec = session.model->spec();
  const int64_t tokens = static_cast<int64_t>(ids.size());
  const int64_t rows = std::min(tokens, spec::loss_chunk(spec.vocab, true));  // the host reads their logits
  Device& device = *session.runtime.device;
  const size_t activation_bytes = size_of(session.activation);
  Arena batch(device,
              2 * Arena::footprint(ids.size() * 4) + Arena::footprint(2 * 4) +
                  Arena::footprint(ids.size() * static_cast<size_t>(spec.hidden) * activation_bytes) +
                  Arena::footprint(static_cast<size_t>(rows * spec.vocab) * 4),
              "batch");
  Arena scratch(device, models::pass_bytes(spec, session.shape(tokens, rows)).forward, "scratch");
  ops::Context context{device, session.runtime.registry, scratch, session.runtime.threads.get()};

  const auto upload = [&](const std::vector<int32_t>& values) {
    const Tensor tensor = batch.allocate(DType::i32, Shape{static_cast<int64_t>(values.size())});
    device.copy_from_host(tensor.data, values.data(), tensor.bytes());
    return tensor;
  };
  std::vector<int32_t> positions(ids.size());
  for (size_t t = 0; t < ids.size(); ++t) positions[t] = static_cast<int32_t>(t);
  nn::TokenBatch flat;
  flat.ids = upload(ids);
  flat.positions = upload(positions);
  flat.offsets = upload({0, static_cast<int32_t>(tokens)});
  nn::Pass pass = session.pass(context, flat, session.segments(tokens));
  const Tensor normed = batch.allocate(session.activation, Shape{tokens, spec.hidden});
  session.model->forward(pass, normed);

  const Tensor logits = batch.allocate(DType::f32, Shape{rows, spec.vocab});
  std::vector<float> host(static_cast<size_t>(rows * spec.vocab));
  for (int64_t first = 0; first < tokens; first += rows) {
    const int64_t count = std::min(rows, tokens - first);
    nn::Pass head = session.pass(context, flat, session.segments(count));
    const Tensor part = logits.slice(0, count);
    session.model->logits(head, part, normed.slice(first, first + count));
    device.copy_to_host(host.data(), part.data, part.bytes());
    see(first, std::span<const float>(host).first(static_cast<size_t>(count * spec.vocab)));
  }
}

class Score : public Command {
 public:
  const char* name() const override { return "score"; }
  const char* summary() const override { return "print the log-likelihood of every token of a text"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    cli::declare(options_, arguments);
    input_.declare(arguments, "text");
    arguments.option("logits-out", logits_out_, "write the logits, fp32 [tokens, vocabulary], to this .npy file");
    arguments.example("ingot score --model SmolLM2-135M-Instruct --text 'The sky is blue.'");
  }

  int run(const Output& output) override {
    input_.check();
    exit_on_interrupt();
    return on_model_ranks(options_, [&](const runtime::ModelRank& rank) { return score(rank, output); });
  }

 private:
  // All ranks compute the logits, and the leading one reports.
  int score(const runtime::ModelRank& rank, const Output& output) {
    runtime::Session session(options_, rank);
    const std::vector<int32_t> ids = encode(session, input_);
    const spec::ModelSpec& spec = session.loaded.spec;
    const int64_t tokens = static_cast<int64_t>(ids.size());
    if (tokens > spec.context) {
      throw_hint(ErrorKind::usage, "score a shorter text; ingot eval scores long files in pieces",
                 "the text has {} tokens; the model's context is {}", tokens, spec.context);
    }
    std::optional<formats::NpyWriter> npy;
    if (logits_out_ && session.leads()) npy.emplace(*logits_out_, std::array<int64_t, 2>{tokens, spec.vocab});

    std::vector<double> logprobs;  // of tokens 1, 2, ...: row t predicts token t + 1
    for_logits(session, ids, [&](int64_t first, std::span<const float> logits) {
      if (!session.leads()) return;
      if (npy) npy->write(logits);
      const size_t vocab = static_cast<size_t>(spec.vocab);
      for (size_t row = 0; row * vocab < logits.size(); ++row) {
        const size_t next = static_cast<size_t>(first) + row + 1;
        if (next < ids.size()) logprobs.push_back(log_probability(logits.subspan(row * vocab, vocab), ids[next]));
      }
    });
    if (!session.leads()) return 0;
    if (npy) npy->finish();
    report(output, input_.ids ? nullptr : &session.tokenizer(), ids, logprobs);
    return 0;
  }

  static void report(const Output& output, const text::Tokenizer* tokenizer, const std::vector<int32_t>& ids,
                     const std::vector<double>& logprobs) {
    using Json = nlohmann::ordered_json;
    Json tokens = Json::array();
    double sum = 0;
    for (size_t t = 0; t < ids.size(); ++t) {
      Json token = {{"id", ids[t]}, {"text", nullptr}, {"logprob", nullptr}};
      if (tokenizer) token["text"] = tokenizer->token_bytes(ids[t]);
      if (t > 0) token["logprob"] = logprobs[t - 1];
      if (t > 0) sum += logprobs[t - 1];
      output.print(fmt::format("{:>8}  {:>10}  {}\n", ids[t], t > 0 ? fmt::format("{:.4f}", logprobs[t - 1]) : "",
                               tokenizer ? json_line(token["text"]) : ""));
      tokens.push_back(std::move(token));
    }
    // A single token has no prediction.
    Json loss = nullptr, perplexity = nullptr;
    if (!logprobs.empty()) {
      const double mean = -sum / static_cast<double>(logprobs.size());
      loss = mean;
      perplexity = std::exp(mean);
      output.print(
          fmt::format("loss {:.5f}  perplexity {:.4f}  over {} tokens\n", mean, std::exp(mean), logprobs.size()));
    }
    output.print_json(json_line(Json{{"tokens", std::move(tokens)}, {"loss", loss}, {"perplexity", perplexity}}));
  }

  runtime::ModelOptions options_;
  TextInput input_;
  std::optional<std::string> logits_out_;
};

}  // namespace

std::unique_ptr<Command> score_command() { return std::make_unique<Score>(); }

}  // namespace ingot::cli

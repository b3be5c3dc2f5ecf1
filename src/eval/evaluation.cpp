#include "eval/evaluation.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "infer/answer.h"
#include "infer/sampler.h"
#include "nn/next_token_loss.h"
#include "text/stop_strings.h"

namespace ingot::eval {

namespace {

constexpr int64_t answers_at_once = 8;

// ids, positions, targets and losses; sub-sequence offsets, at most one per token plus one.
size_t batch_bytes(int64_t tokens) {
  const size_t count = static_cast<size_t>(tokens);
  return 4 * Arena::footprint(count * 4) + Arena::footprint((count + 1) * 4);
}

}  // namespace

Evaluation::Evaluation(runtime::Session& session, int64_t sequence_length, int64_t micro)
    : session_(session), batch_(*session.runtime.device, batch_bytes(sequence_length * micro), "batch") {
  models::PassShape shape = session.shape(sequence_length * micro, 0);
  shape.longest = sequence_length;
  const spec::ModelSpec& model = session.model->spec();
  const size_t scratch =
      std::max(models::pass_bytes(model, shape).forward, nn::NextTokenLoss::bytes(model, shape, false));
  scratch_ = Arena(*session.runtime.device, scratch, "scratch");
  hidden_ = Arena(*session.runtime.device, shape.matrix_bytes(shape.tokens, model.hidden), "hidden states");
}

std::vector<eval::SequenceLoss> Evaluation::run(std::span<const data::PackedSequence> sequences,
                                                const nn::Adapter* adapter) {
  std::vector<int32_t> ids, places, targets, offsets{0};
  for (const data::PackedSequence& sequence : sequences) {
    const int32_t base = static_cast<int32_t>(ids.size());
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
    targets.insert(targets.end(), sequence.targets.begin(), sequence.targets.end());
    const std::vector<int32_t> positions = data::positions(sequence);
    places.insert(places.end(), positions.begin(), positions.end());
    for (size_t s = 1; s < sequence.offsets.size(); ++s) offsets.push_back(base + sequence.offsets[s]);
  }

  Device& device = *session_.runtime.device;
  const Arena::Scope scope(batch_);
  const auto upload = [&](const std::vector<int32_t>& values) {
    const Tensor tensor = batch_.allocate(DType::i32, Shape{static_cast<int64_t>(values.size())});
    device.copy_from_host(tensor.data, values.data(), tensor.bytes());
    return tensor;
  };
  nn::TokenBatch flat;
  flat.ids = upload(ids);
  flat.positions = upload(places);
  flat.offsets = upload(offsets);
  const Tensor wanted = upload(targets);
  const Tensor losses = batch_.allocate(DType::f32, Shape{flat.tokens()});

  ops::Context context{device, session_.runtime.registry, scratch_, session_.runtime.threads.get()};
  nn::Pass pass = session_.pass(context, flat, {});
  if (adapter) pass.adapters = {{0, flat.tokens(), adapter}};
  const Arena::Scope hidden(hidden_);
  const Tensor normed = hidden_.allocate(session_.activation, Shape{flat.tokens(), session_.loaded.spec.hidden});
  session_.model->forward(pass, normed);
  session_.model->losses(pass, losses, wanted, normed);
  std::vector<float> host(static_cast<size_t>(losses.elements()));
  device.copy_to_host(host.data(), losses.data, losses.bytes());

  std::vector<eval::SequenceLoss> pieces;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    eval::SequenceLoss piece;
    for (size_t t = static_cast<size_t>(offsets[s]); t < static_cast<size_t>(offsets[s + 1]); ++t) {
      if (targets[t] < 0) continue;
      infer::check_number(static_cast<double>(host[t]));
      piece.sum += static_cast<double>(host[t]);
      ++piece.loss_tokens;
    }
    if (piece.loss_tokens > 0) pieces.push_back(piece);
  }
  return pieces;
}

std::vector<std::vector<double>> choice_logprobs(const EvaluatedModel& evaluated,
                                                 std::span<const infer::LogLikelihoodRequest> items,
                                                 const std::function<void(int64_t)>& done) {
  runtime::Session& session = *evaluated.session;
  infer::LogLikelihoodSettings settings;
  settings.activation = session.activation;
  settings.adapter_rank = session.adapter_rank;
  settings.decoded = session.decoded;
  settings.int8_activations = session.int8_activations;
  infer::LogLikelihoodScorer scorer(*session.runtime.device, session.runtime.registry, *session.runtime.threads,
                                    *session.model, settings, items);
  return scorer.score(items, evaluated.adapter, done);
}

std::vector<std::string> generate_answers(const EvaluatedModel& evaluated, std::span<const Question> questions,
                                          const std::function<void(int64_t)>& done) {
  struct Open {
    size_t question;
    text::StreamDecoder decoder;
    text::StopStrings stops;
  };
  runtime::Session& session = *evaluated.session;
  infer::EngineSettings settings;
  settings.activation = session.activation;
  settings.adapter_rank = session.adapter_rank;
  settings.decoded = session.decoded;
  settings.int8_activations = session.int8_activations;
  settings.sequences = answers_at_once;
  for (const Question& question : questions) {
    settings.context = std::max(settings.context, std::ssize(question.prompt) + question.max_tokens);
  }
  settings.context = std::min(settings.context, session.loaded.spec.context);
  infer::Engine engine(*session.runtime.device, session.runtime.registry, *session.runtime.threads, *session.model,
                       settings, session.ranks);

  std::vector<std::string> answers(questions.size());
  std::map<int64_t, Open> open;
  const std::shared_ptr<const infer::HostAdapter> adapter =
      infer::shared_adapter(evaluated.adapter ? session.whole_adapter() : nullptr);
  for (size_t q = 0; q < questions.size(); ++q) {
    infer::Request request;
    request.prompt = questions[q].prompt;
    request.max_tokens = questions[q].max_tokens;
    request.stop_ids = session.text().eos;
    request.adapter = adapter;
    const int64_t id = engine.submit(std::move(request));
    open.emplace(id, Open{q, text::StreamDecoder(session.tokenizer(), true), text::StopStrings(questions[q].stop)});
  }
  while (!engine.idle()) {
    for (const infer::Output& output : engine.step()) {
      Open& state = open.at(output.request);
      std::string& answer = answers[state.question];
      if (output.token) answer += state.stops.push(state.decoder.push(output.token->id));
      if (output.finish == infer::FinishReason::failed) throw Error(output.kind, output.error);
      if (output.finish) {
        answer += state.stops.push(state.decoder.finish());
        answer += state.stops.finish();
        open.erase(output.request);
      } else if (state.stops.found()) {
        engine.cancel(output.request);
      }
    }
    done(static_cast<int64_t>(questions.size() - open.size()));
  }
  return answers;
}

}  // namespace ingot::eval

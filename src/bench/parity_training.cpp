#include "bench/parity_training.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "base/half.h"
#include "bench/random_model.h"
#include "infer/engine.h"
#include "spec/rounding.h"
#include "tensor/tolerance.h"

namespace ingot::bench {

namespace {

constexpr int64_t sequence_tokens = 32;
constexpr int64_t document_tokens = 20;
constexpr int64_t trained_prompt_tokens = 12;
constexpr int64_t trained_answer_tokens = 12;
// Allowed ratio of a device's error to the rounding error of the same quantity, which is estimated from only three
// samples.
constexpr double training_error_multiple = 4;
constexpr const char* gradient_of = "gradient of ";
constexpr const char* update_of = "update of ";

// Named vectors computed by a device.
struct Quantity {
  std::string name;
  std::vector<double> values;
};
using Facts = std::vector<Quantity>;

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);  // NaN propagates
}

double norm(const std::vector<double>& a) { return distance(a, std::vector<double>(a.size())); }

std::vector<double> on_host(Device& device, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  device.copy_to_host(bytes.data(), tensor.data, bytes.size());
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype == DType::f32) {
      values[i] = static_cast<double>(reinterpret_cast<const float*>(bytes.data())[i]);
    } else {
      values[i] = static_cast<double>(bf16_to_float(reinterpret_cast<const uint16_t*>(bytes.data())[i]));
    }
  }
  return values;
}

std::vector<double> logits(runtime::Runtime& runtime, TrainBench& bench, const spec::ModelSpec& model,
                           DType activation) {
  Device& device = *runtime.device;
  const data::PackedSequence sequence = random_sequence(model, sequence_tokens, document_tokens, 0);
  const auto upload = [&](const std::vector<int32_t>& values) {
    Buffer buffer(device, values.size() * sizeof(int32_t));
    device.copy_from_host(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  };
  const Buffer ids = upload(sequence.ids);
  const Buffer positions = upload(data::positions(sequence));
  const Buffer offsets = upload(sequence.offsets);
  const nn::TokenBatch batch{ids.view(DType::i32, {sequence_tokens}), positions.view(DType::i32, {sequence_tokens}),
                             offsets.view(DType::i32, {std::ssize(sequence.offsets)})};
  nn::Pass pass{bench.step().context(), batch, activation, {}};
  const Buffer normed(device, static_cast<size_t>(sequence_tokens * model.hidden) * size_of(activation));
  const Buffer scores(device, static_cast<size_t>(sequence_tokens * model.vocab) * sizeof(float));
  const Tensor hidden = normed.view(activation, {sequence_tokens, model.hidden});
  const Tensor out = scores.view(DType::f32, {sequence_tokens, model.vocab});
  bench.model().forward(pass, hidden);
  bench.model().logits(pass, out, hidden);
  return on_host(device, out);
}

// Greedy tokens and their log-probabilities.
Facts answer(runtime::Runtime& runtime, const models::Model& model) {
  infer::EngineSettings settings;
  settings.activation = DType::f32;
  settings.context = trained_prompt_tokens + trained_answer_tokens;
  settings.batch_tokens = 5;  // chunked prefill
  infer::Engine engine(*runtime.device, runtime.registry, *runtime.threads, model, settings);
  infer::Request request;
  request.prompt = random_sequence(model.spec(), trained_prompt_tokens, trained_prompt_tokens, 3).ids;
  request.max_tokens = trained_answer_tokens;
  engine.submit(std::move(request));
  Facts facts{{"answer", {}}, {"answer's log-probabilities", {}}};
  while (!engine.idle()) {
    for (const infer::Output& output : engine.step()) {
      if (!output.token) continue;
      facts[0].values.push_back(output.token->id);
      facts[1].values.push_back(static_cast<double>(output.token->logprob));
    }
  }
  return facts;
}

struct Work {
  DType activation = DType::f32;
  bool lora = false;
  int64_t steps = 10;
  double scale = 1;  // of the weights; perturbed to estimate rounding errors
};

Facts compute(runtime::Runtime& runtime, const spec::ModelSpec& model, const Work& work) {
  TrainJob job;
  if (work.lora) job.lora = spec::LoraSpec{.rank = 4, .alpha = 8, .targets = {"all-linear"}};
  job.step.activation = work.activation;
  job.step.sequence_length = sequence_tokens;
  job.step.optimizer.weight_decay = 0.1;
  job.document = document_tokens;
  job.scale = work.scale;
  TrainBench bench(runtime, model, job);
  Facts facts;
  if (!work.lora) {
    facts.push_back({"logits", logits(runtime, bench, model, work.activation)});
    if (work.activation == DType::f32) {
      for (Quantity& each : answer(runtime, bench.model())) facts.push_back(std::move(each));
    }
  }
  const std::vector<train::TrainedParameter>& tensors = bench.optimizer_state().tensors();
  const auto masters = [&] {
    std::vector<std::vector<double>> all;
    for (const train::TrainedParameter& t : tensors) all.push_back(on_host(*runtime.device, t.master));
    return all;
  };
  const auto before = masters();
  Quantity losses{"losses", {}};
  Quantity norms{"gradient norms", {}};
  for (int64_t s = 0; s < work.steps; ++s) {
    const train::StepResult result = bench.run(1);
    losses.values.push_back(result.loss);
    norms.values.push_back(result.grad_norm);
    if (s > 0) continue;
    for (const train::TrainedParameter& t : tensors) {
      facts.push_back({gradient_of + t.name, on_host(*runtime.device, t.gradient)});
    }
  }
  facts.push_back(std::move(losses));
  facts.push_back(std::move(norms));
  auto moved = masters();
  for (size_t i = 0; i < moved.size(); ++i) {
    for (size_t e = 0; e < moved[i].size(); ++e) moved[i][e] -= before[i][e];
    facts.push_back({update_of + tensors[i].name, std::move(moved[i])});
  }
  return facts;
}

// Keeps the quantity with the largest share of its allowed error.
void add(TrainingAgreement& agreement, const Quantity& exact, double error, double allowed) {
  // Equal values are within any bound; a non-finite difference is within none.
  const double part = error == 0 ? 0 : !(error < INFINITY) ? INFINITY : error / allowed;
  if (!agreement.worst.empty() && part <= agreement.share) return;
  agreement.share = part;
  agreement.worst = exact.name;
  agreement.worst_error = error;
  agreement.worst_size = norm(exact.values);
}

// The values, with 0 in place of those whose gradient is within `error` of 0: rounding decides the sign of such a
// gradient, and AdamW's first updates are as long for small gradients as for large ones.
std::vector<double> decided(std::vector<double> update, const std::vector<double>& gradient, double error) {
  for (size_t e = 0; e < update.size(); ++e) {
    if (gradient[e] != 0 && std::abs(gradient[e]) <= error && std::isfinite(update[e])) update[e] = 0;
  }
  return update;
}

// Compares all quantities. `rounded`: the same by computations that differ from `exact` by rounding alone. Of an update
// only the elements are compared whose sign is decided by more than rounding.
void add_all(TrainingAgreement& agreement, const Facts& exact, const Facts& found, const std::vector<Facts>& rounded,
             double rounding) {
  std::map<std::string, std::pair<const std::vector<double>*, double>> gradients;  // and the error of an element
  for (size_t i = 0; i < exact.size(); ++i) {
    const auto& [name, values] = exact[i];
    const bool update = name.starts_with(update_of);
    const auto compared = [&](const std::vector<double>& all) {
      if (!update) return all;
      const auto& [gradient, error] = gradients.at(name.substr(std::string_view(update_of).size()));
      return decided(all, *gradient, error);
    };
    const Quantity expected{name, compared(values)};
    double noise = 0;
    for (const Facts& facts : rounded) noise = std::max(noise, distance(compared(facts[i].values), expected.values));
    const double allowed = rounding * norm(values) + training_error_multiple * noise;
    if (name.starts_with(gradient_of)) {
      const auto elements = std::ranges::count_if(values, [](double value) { return value != 0; });
      const double of_element = allowed / std::sqrt(std::max(1.0, static_cast<double>(elements)));
      gradients[name.substr(std::string_view(gradient_of).size())] = {&values, of_element};
    }
    add(agreement, expected, distance(compared(found[i].values), expected.values), allowed);
  }
}

const std::vector<double>& losses_of(const Facts& facts) {
  return std::find_if(facts.begin(), facts.end(), [](const Quantity& q) { return q.name == "losses"; })->values;
}

}  // namespace

std::vector<TrainingAgreement> compare_training(runtime::Runtime& cpu, runtime::Runtime& device,
                                                const spec::ModelSpec& model, int64_t steps) {
  const double rounding = tolerance(DType::f32, spec::chain_length(model));
  std::vector<TrainingAgreement> all;
  Facts full;
  for (const bool lora : {false, true}) {
    const Work work{.activation = DType::f32, .lora = lora, .steps = steps};
    const Facts exact = compute(cpu, model, work);
    const Facts found = compute(device, model, work);
    std::vector<Facts> changed;
    for (const double bits : {1.0, -1.0, 2.0}) {
      Work other = work;
      other.scale = 1 + bits * 2 * unit_roundoff(DType::f32);
      changed.push_back(compute(cpu, model, other));
    }
    TrainingAgreement one{
        .job = lora ? "LoRA fp32" : "fp32", .losses = losses_of(found), .cpu_losses = losses_of(exact)};
    add_all(one, exact, found, changed, rounding);
    all.push_back(std::move(one));
    if (!lora) full = exact;
  }
  const Work work{.activation = DType::bf16, .steps = steps};
  const Facts reference = compute(cpu, model, work);
  const Facts found = compute(device, model, work);
  TrainingAgreement one{.job = "bf16", .losses = losses_of(found), .cpu_losses = losses_of(reference)};
  Facts exact;
  for (const Quantity& each : reference) {
    exact.push_back(
        *std::find_if(full.begin(), full.end(), [&](const Quantity& quantity) { return quantity.name == each.name; }));
  }
  add_all(one, exact, found, {reference}, rounding);
  all.push_back(std::move(one));
  return all;
}

}  // namespace ingot::bench

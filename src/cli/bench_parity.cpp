// ingot bench parity: compares a tiny model of every family on a device and on the CPU.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/half.h"
#include "base/json_text.h"
#include "bench/parity_serving.h"
#include "bench/random_model.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "infer/engine.h"
#include "models/testing/family_specs.h"
#include "spec/rounding.h"
#include "tensor/tolerance.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t sequence_tokens = 32;
constexpr int64_t document_tokens = 20;
constexpr int64_t prompt_tokens = 12;
constexpr int64_t answer_tokens = 12;
// Allowed ratio of a device's error to the rounding error of the same quantity, which is estimated from only three
// samples.
constexpr double error_multiple = 4;

// The family's test specification, with a head size that matrix cores support.
spec::ModelSpec tiny(spec::ModelSpec model) {
  const int64_t head_dim = 64;
  model.layers.resize(2);
  for (spec::LayerSpec& layer : model.layers) {
    spec::Attention& attention = layer.attention;
    if (attention.rope) attention.rope->dim = attention.rope->dim * head_dim / attention.head_dim;
    attention.head_dim = head_dim;
    // Families with fused q, k and v need heads * head_dim.
    model.hidden = attention.fused_qkv ? attention.query_width() : 64;
    spec::dense_of(layer.mlp).features = 96;
  }
  model.vocab = 200;
  model.initializer_range = 0.12;
  return model;
}

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

std::vector<double> logits(runtime::Runtime& runtime, bench::TrainBench& bench, const spec::ModelSpec& model,
                           DType activation) {
  Device& device = *runtime.device;
  const data::PackedSequence sequence = bench::random_sequence(model, sequence_tokens, document_tokens, 0);
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
  settings.context = prompt_tokens + answer_tokens;
  settings.batch_tokens = 5;  // chunked prefill
  infer::Engine engine(*runtime.device, runtime.registry, *runtime.threads, model, settings);
  infer::Request request;
  request.prompt = bench::random_sequence(model.spec(), prompt_tokens, prompt_tokens, 3).ids;
  request.max_tokens = answer_tokens;
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
  bench::TrainJob job;
  if (work.lora) job.lora = spec::LoraSpec{.rank = 4, .alpha = 8, .targets = {"all-linear"}};
  job.step.activation = work.activation;
  job.step.sequence_length = sequence_tokens;
  job.step.optimizer.weight_decay = 0.1;
  job.document = document_tokens;
  job.scale = work.scale;
  bench::TrainBench bench(runtime, model, job);
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
      facts.push_back({"gradient of " + t.name, on_host(*runtime.device, t.gradient)});
    }
  }
  facts.push_back(std::move(losses));
  facts.push_back(std::move(norms));
  auto moved = masters();
  for (size_t i = 0; i < moved.size(); ++i) {
    for (size_t e = 0; e < moved[i].size(); ++e) moved[i][e] -= before[i][e];
    facts.push_back({"update of " + tensors[i].name, std::move(moved[i])});
  }
  return facts;
}

// The largest error of a job relative to the allowed error, and details for the report.
struct Agreement {
  std::string job;
  double share = 0;
  std::string worst;
  double worst_error = 0, worst_size = 0;
  std::vector<double> losses, cpu_losses;

  void add(const Quantity& exact, double error, double allowed) {
    // Equal values are within any bound; a non-finite difference is within none.
    const double part = error == 0 ? 0 : !(error < INFINITY) ? INFINITY : error / allowed;
    if (!worst.empty() && part <= share) return;
    share = part;
    worst = exact.name;
    worst_error = error;
    worst_size = norm(exact.values);
  }
  bool agrees() const { return share <= 1; }
};

const std::vector<double>& losses_of(const Facts& facts) {
  return std::find_if(facts.begin(), facts.end(), [](const Quantity& q) { return q.name == "losses"; })->values;
}

class BenchParity : public Command {
 public:
  const char* name() const override { return "parity"; }
  const char* summary() const override { return "compare tiny models of every family on a device with the CPU"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.positional("families", families_, "names of shapes, see --list (default: all)", false);
    arguments.option("device", device_, "cuda:N, hip:N, or a simulated GPU: sim32, sim64");
    arguments.option("steps", wanted_steps_, "training steps (default: 10)");
    arguments.flag("serving", serving_,
                   "compare serving instead of training: text, log-probabilities, adapters, JSON, prefix cache");
    arguments.option("others", wanted_others_, "with --serving: additional requests in the same batch (default: 64)");
    arguments.flag("list", list_, "print the names of the shapes and stop");
    arguments.example("ingot bench parity --device cuda:0");
    arguments.example("ingot bench parity llama gemma2 --serving --device cuda:0");
  }

  int run(const Output& output) override {
    if (list_) {
      for (const models::FamilyCase& each : models::family_cases()) output.print(each.name + "\n");
      output.print_json(json_line(names()));
      return 0;
    }
    if (serving_ && wanted_steps_)
      throw_error(ErrorKind::usage, "--steps does not apply to --serving, which does not train");
    if (!serving_ && wanted_others_) throw_error(ErrorKind::usage, "--others applies only to --serving");
    steps_ = wanted_steps_.value_or(steps_);
    others_ = wanted_others_.value_or(others_);
    if (steps_ < 1 || steps_ > 1000) throw_error(ErrorKind::usage, "--steps {}; must be from 1 to 1000", steps_);
    if (others_ < 0 || others_ > 1000) throw_error(ErrorKind::usage, "--others {}; must be from 0 to 1000", others_);
    const std::vector<std::string> all = names();
    for (const std::string& family : families_) {
      if (std::find(all.begin(), all.end(), family) == all.end()) {
        throw_hint(ErrorKind::usage, fmt::format("{}", fmt::join(all, ", ")), "there is no shape '{}'", family);
      }
    }
    exit_on_interrupt();
    runtime::Runtime cpu = runtime::open_runtime("cpu", 2);
    runtime::Runtime device = runtime::open_runtime(device_, 2);
    Json rows = Json::array();
    bool agrees = true;
    for (const models::FamilyCase& each : models::family_cases()) {
      if (!families_.empty() && std::find(families_.begin(), families_.end(), each.name) == families_.end()) continue;
      if (serving_) {
        agrees = serve(cpu, device, each, output, rows) && agrees;
        continue;
      }
      for (const Agreement& one : compare(cpu, device, tiny(each.spec))) {
        agrees = agrees && one.agrees();
        output.print(fmt::format("{:<22}{:<10}{:>8.3f} of what is allowed: {}, off by {:.3g} of {:.3g}{}\n", each.name,
                                 one.job, one.share, one.worst, one.worst_error, one.worst_size,
                                 one.agrees() ? "" : "  DISAGREES"));
        rows.push_back({{"shape", each.name},
                        {"job", one.job},
                        {"agrees", one.agrees()},
                        {"share_of_allowed", one.share},
                        {"worst", one.worst},
                        {"worst_error", one.worst_error},
                        {"worst_size", one.worst_size},
                        {"losses", one.losses},
                        {"cpu_losses", one.cpu_losses}});
      }
    }
    output.print_json(json_line({{"device", device.device->name()},
                                 {"arch", device.device->arch()},
                                 {"device_model", device.model},
                                 {"steps", serving_ ? Json() : Json(steps_)},
                                 {"others", serving_ ? Json(others_) : Json()},
                                 {"agrees", agrees},
                                 {"rows", rows}}));
    return agrees ? 0 : exit_code(ErrorKind::internal);
  }

 private:
  static std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const models::FamilyCase& each : models::family_cases()) all.push_back(each.name);
    return all;
  }

  // Adds one family's rows. Returns whether all agree.
  bool serve(runtime::Runtime& cpu, runtime::Runtime& device, const models::FamilyCase& family, const Output& output,
             Json& rows) const {
    bool agrees = true;
    for (const bench::ServingAgreement& one : bench::compare_serving(cpu, device, tiny(family.spec), others_)) {
      agrees = agrees && one.agrees();
      output.print(fmt::format(
          "{:<22}{:<18}{:>8.3f} of what is allowed: {}, off by {:.3g}; {} tokens, {} texts parted{}\n", family.name,
          one.job, one.share(), one.worst, one.error, one.tokens, one.parted, one.agrees() ? "" : "  DISAGREES"));
      for (const std::string& wrong : one.wrong) output.print(fmt::format("  {}\n", wrong));
      rows.push_back({{"shape", family.name},
                      {"job", one.job},
                      {"agrees", one.agrees()},
                      {"share_of_allowed", one.share()},
                      {"worst", one.worst},
                      {"worst_error", one.error},
                      {"tokens", one.tokens},
                      {"parted", one.parted},
                      {"wrong", one.wrong}});
    }
    return agrees;
  }

  // fp32: the error relative to the CPU must be within rounding plus a multiple of the change that perturbing the
  // weights in their last bit causes on the CPU. bf16: the error relative to the CPU's fp32 must be within that
  // multiple of the CPU's own bf16 error.
  std::vector<Agreement> compare(runtime::Runtime& cpu, runtime::Runtime& device, const spec::ModelSpec& model) const {
    const double rounding = tolerance(DType::f32, spec::chain_length(model));
    std::vector<Agreement> all;
    Facts full;
    for (const bool lora : {false, true}) {
      const Work work{.activation = DType::f32, .lora = lora, .steps = steps_};
      const Facts exact = compute(cpu, model, work);
      const Facts found = compute(device, model, work);
      std::vector<Facts> changed;
      for (const double bits : {1.0, -1.0, 2.0}) {
        Work other = work;
        other.scale = 1 + bits * 2 * unit_roundoff(DType::f32);
        changed.push_back(compute(cpu, model, other));
      }
      Agreement one{.job = lora ? "LoRA fp32" : "fp32", .losses = losses_of(found), .cpu_losses = losses_of(exact)};
      for (size_t i = 0; i < exact.size(); ++i) {
        double noise = 0;
        for (const Facts& facts : changed) noise = std::max(noise, distance(facts[i].values, exact[i].values));
        one.add(exact[i], distance(found[i].values, exact[i].values),
                rounding * norm(exact[i].values) + error_multiple * noise);
      }
      all.push_back(std::move(one));
      if (!lora) full = exact;
    }
    const Work work{.activation = DType::bf16, .steps = steps_};
    const Facts reference = compute(cpu, model, work);
    const Facts found = compute(device, model, work);
    Agreement one{.job = "bf16", .losses = losses_of(found), .cpu_losses = losses_of(reference)};
    for (size_t i = 0; i < reference.size(); ++i) {
      const Quantity& exact =
          *std::find_if(full.begin(), full.end(), [&](const Quantity& q) { return q.name == reference[i].name; });
      const double own = distance(reference[i].values, exact.values);
      one.add(exact, distance(found[i].values, exact.values), rounding * norm(exact.values) + error_multiple * own);
    }
    all.push_back(std::move(one));
    return all;
  }

  std::vector<std::string> families_;
  std::string device_ = "cuda:0";
  std::optional<int64_t> wanted_steps_, wanted_others_;
  int64_t steps_ = 10, others_ = 64;
  bool list_ = false, serving_ = false;
};

}  // namespace

std::unique_ptr<Command> bench_parity_command() { return std::make_unique<BenchParity>(); }

}  // namespace ingot::cli

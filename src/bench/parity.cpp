#include "bench/parity.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "models/testing/family_specs.h"
#include "runtime/runtime.h"

namespace ingot::bench {

namespace {

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

}  // namespace

std::vector<std::string> parity_shapes() {
  std::vector<std::string> all;
  for (const models::FamilyCase& each : models::family_cases()) all.push_back(each.name);
  return all;
}

ParityReport bench_parity(const ParityOptions& options, const ParityRows& rows) {
  if (options.serving && options.steps)
    throw_error(ErrorKind::usage, "--steps does not apply to --serving, which does not train");
  if (!options.serving && options.others) throw_error(ErrorKind::usage, "--others applies only to --serving");
  ParityReport report;
  report.steps = options.steps.value_or(10);
  report.others = options.others.value_or(64);
  if (report.steps < 1 || report.steps > 1000)
    throw_error(ErrorKind::usage, "--steps {}; must be from 1 to 1000", report.steps);
  if (report.others < 0 || report.others > 1000)
    throw_error(ErrorKind::usage, "--others {}; must be from 0 to 1000", report.others);
  const std::vector<std::string> all = parity_shapes();
  const std::vector<std::string>& wanted = options.shapes;
  for (const std::string& shape : wanted) {
    if (std::find(all.begin(), all.end(), shape) == all.end()) {
      throw_hint(ErrorKind::usage, fmt::format("{}", fmt::join(all, ", ")), "there is no shape '{}'", shape);
    }
  }
  runtime::Runtime cpu = runtime::open_runtime("cpu", 2);
  runtime::Runtime device = runtime::open_runtime(options.device, 2);
  report.device = device.device->name();
  report.arch = device.device->arch();
  report.device_model = device.model;
  for (const models::FamilyCase& each : models::family_cases()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), each.name) == wanted.end()) continue;
    const spec::ModelSpec model = tiny(each.spec);
    if (options.serving) {
      for (const ServingAgreement& one : compare_serving(cpu, device, model, report.others)) {
        report.agrees = report.agrees && one.agrees();
        rows.serving(each.name, one);
      }
    } else {
      for (const TrainingAgreement& one : compare_training(cpu, device, model, report.steps)) {
        report.agrees = report.agrees && one.agrees();
        rows.training(each.name, one);
      }
    }
  }
  return report;
}

}  // namespace ingot::bench

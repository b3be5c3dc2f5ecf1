#include "spec/model.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "spec/llama.h"

namespace ingot::spec {

namespace {

struct Family {
  std::string_view name;
  std::vector<ParamSpec> (*parameters)(const ModelSpec&);
};

constexpr std::array<Family, 1> family_table = {{{"llama", llama_parameters}}};
constexpr std::array<std::string_view, 1> family_names = {"llama"};

const Family& family_of(const ModelSpec& model) {
  for (const Family& family : family_table) {
    if (family.name == model.family) return family;
  }
  throw_hint(ErrorKind::unsupported, fmt::format("Ingot has: {}", fmt::join(family_names, ", ")),
             "model family '{}' is not known", model.family);
}

}  // namespace

std::span<const std::string_view> families() { return family_names; }

int64_t ParamSpec::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string_view ParamSpec::module() const {
  const std::string_view view = name;
  return view.substr(0, view.rfind('.'));
}

void check(const ModelSpec& model) {
  family_of(model);
  const auto positive = [](const char* key, int64_t value) {
    if (value < 1 || value > (int64_t{1} << 31)) {
      throw_error(ErrorKind::corrupt, "the model's {} is {}, which cannot be", key, value);
    }
  };
  positive("vocabulary size", model.vocab);
  positive("hidden size", model.hidden);
  positive("number of layers", model.layers);
  positive("number of heads", model.heads);
  positive("number of key/value heads", model.kv_heads);
  positive("head size", model.head_dim);
  positive("feed-forward size", model.ffn);
  positive("context length", model.context);
  if (model.heads % model.kv_heads != 0) {
    throw_error(ErrorKind::corrupt, "{} heads cannot share {} key/value heads evenly", model.heads, model.kv_heads);
  }
  if (model.head_dim % 2 != 0) {
    throw_error(ErrorKind::corrupt, "head size {} is odd; rotary positions need pairs", model.head_dim);
  }
  if (!(model.norm_epsilon >= 0 && model.norm_epsilon < 1)) {
    throw_error(ErrorKind::corrupt, "rms_norm_eps is {}", model.norm_epsilon);
  }
  if (!(model.rope_theta > 0 && std::isfinite(model.rope_theta))) {
    throw_error(ErrorKind::corrupt, "rope_theta is {}", model.rope_theta);
  }
}

std::vector<ParamSpec> parameters(const ModelSpec& model) { return family_of(model).parameters(model); }

int64_t num_parameters(const ModelSpec& model) {
  int64_t count = 0;
  for (const ParamSpec& p : parameters(model)) count += p.elements();
  return count;
}

std::vector<float> rope_frequencies(const ModelSpec& model) {
  const int64_t pairs = model.head_dim / 2;
  const RopeScaling& scaling = model.rope_scaling;
  std::vector<float> frequencies(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    double f = std::pow(model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim));
    switch (scaling.kind) {
      case RopeScaling::Kind::none: break;
      case RopeScaling::Kind::linear: f /= scaling.factor; break;
      case RopeScaling::Kind::llama3: {
        const double length = static_cast<double>(scaling.original_context);
        const double wavelength = 2 * std::numbers::pi / f;
        if (wavelength > length / scaling.low_freq_factor) {
          f /= scaling.factor;
        } else if (wavelength >= length / scaling.high_freq_factor) {
          const double smooth =
              (length / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
          f = (1 - smooth) * f / scaling.factor + smooth * f;
        }
        break;
      }
    }
    frequencies[static_cast<size_t>(i)] = static_cast<float>(f);
  }
  return frequencies;
}

std::vector<std::string> lora_targets(const ModelSpec& model) {
  std::vector<std::string> names;
  for (const ParamSpec& p : parameters(model)) {
    if (!p.linear || (p.layer > 0)) continue;
    const std::string_view module = p.module();
    const size_t dot = module.rfind('.');
    names.emplace_back(dot == std::string_view::npos ? module : module.substr(dot + 1));
  }
  return names;
}

}  // namespace ingot::spec

#include "spec/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "spec/table.h"

namespace ingot::spec {

namespace {

struct Family {
  std::string_view name;
  std::vector<ParamSpec> (*parameters)(const ModelSpec&);
};

constexpr std::array<Family, 9> family_table = {{{"llama", llama_parameters},
                                                 {"mistral", llama_parameters},
                                                 {"qwen2", llama_parameters},
                                                 {"qwen3", llama_parameters},
                                                 {"gemma2", llama_parameters},
                                                 {"mixtral", llama_parameters},
                                                 {"gpt2", gpt2_parameters},
                                                 {"gpt_neox", gpt_neox_parameters},
                                                 {"mpt", mpt_parameters}}};
constexpr std::array<std::string_view, 9> family_names = {"llama",   "mistral", "qwen2",    "qwen3", "gemma2",
                                                          "mixtral", "gpt2",    "gpt_neox", "mpt"};

constexpr int64_t max_blocks = 1 << 16;  // max layers, counted once for each of their experts

const Family& family_of(const ModelSpec& model) {
  for (const Family& family : family_table) {
    if (family.name == model.family) return family;
  }
  throw_hint(ErrorKind::unsupported, fmt::format("supported: {}", fmt::join(family_names, ", ")),
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
      throw_error(ErrorKind::corrupt, "the model's {} is {}, which is out of range", key, value);
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
  // Bounds the sizes so that no number of elements or bytes overflows 64 bits.
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double feed_forward = real(std::max<int64_t>(1, model.experts)) * 3 * real(model.ffn);
  const double parameters =
      real(model.hidden) * (2 * real(model.vocab) + real(model.context) +
                            real(model.layers) * (feed_forward + 4 * real(model.heads) * real(model.head_dim)));
  if (parameters > 0x1p56) {
    throw_error(ErrorKind::corrupt, "a model of about {:.1g} parameters is too large", parameters);
  }
  if (model.heads % model.kv_heads != 0) {
    throw_error(ErrorKind::corrupt, "{} heads cannot share {} key/value heads evenly", model.heads, model.kv_heads);
  }
  if (model.positions == Positions::rotary) {
    const int64_t rotated = model.rotary_dim > 0 ? model.rotary_dim : model.head_dim;
    if (rotated % 2 != 0) {
      throw_error(ErrorKind::corrupt, "rotary embedding of {} elements of a head; the number must be even", rotated);
    }
    if (model.rotary_dim < 0 || model.rotary_dim > model.head_dim) {
      throw_error(ErrorKind::corrupt, "rotary embedding of {} of {} elements of a head is not possible",
                  model.rotary_dim, model.head_dim);
    }
  }
  if (model.qkv_by_head && model.kv_heads != model.heads) {
    throw_error(ErrorKind::corrupt, "{} key/value heads for {} heads; this layout of q, k and v needs equal numbers",
                model.kv_heads, model.heads);
  }
  if (model.experts < 0 || model.experts > 65536 || (model.experts > 0) != (model.experts_per_token > 0) ||
      model.experts_per_token > model.experts) {
    throw_error(ErrorKind::corrupt, "{} of {} experts per token is not possible", model.experts_per_token,
                model.experts);
  }
  const auto together = [](bool wrong, const char* one, const char* other) {
    if (wrong) throw_error(ErrorKind::unsupported, "a model with {} and {} is not supported", one, other);
  };
  together(model.clip_qkv > 0 && !model.fused_qkv, "clamped q, k and v", "separate projections for them");
  together(model.parallel_residual && model.post_norms, "attention parallel to the MLP", "norms after them");
  // The parameter table is built from these numbers before any file has confirmed them.
  if (model.layers > max_blocks / std::max<int64_t>(1, model.experts)) {
    throw_error(ErrorKind::corrupt, "{} layers of {} experts are too many", model.layers, model.experts);
  }
  if (!(model.norm_epsilon >= 0 && model.norm_epsilon < 1)) {
    throw_error(ErrorKind::corrupt, "the norms' epsilon is {}; it must be at least 0 and below 1", model.norm_epsilon);
  }
  if (model.window < 0)
    throw_error(ErrorKind::corrupt, "the attention window is {}; it must not be negative", model.window);
  const auto not_negative = [](const char* key, double value) {
    if (!(value >= 0 && std::isfinite(value))) throw_error(ErrorKind::corrupt, "{} is {}", key, value);
  };
  not_negative("clip_qkv", model.clip_qkv);
  not_negative("the scale of attention scores", model.attention_scale);
  not_negative("the soft cap of attention scores", model.attention_softcap);
  not_negative("the soft cap of logits", model.final_softcap);
  not_negative("alibi_bias_max", model.alibi_bias_max);
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
  const int64_t rotated = model.rotary_dim > 0 ? model.rotary_dim : model.head_dim;
  const int64_t pairs = rotated / 2;
  const RopeScaling& scaling = model.rope_scaling;
  std::vector<float> frequencies(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    double f = std::pow(model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
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

std::vector<float> alibi_slopes(const ModelSpec& model) {
  const int64_t heads = model.heads;
  int64_t power = 1;
  while (power < heads) power *= 2;
  std::vector<float> slopes;
  // Every second slope of the next power of two, from the second on; then those in between, from the first on.
  const bool whole = power == heads;
  for (int64_t h = 0; h < heads; ++h) {
    int64_t i = h + 1;
    if (!whole) i = h < power / 2 ? 2 * h + 2 : 2 * (h - power / 2) + 1;
    slopes.push_back(
        static_cast<float>(std::exp2(-static_cast<double>(i) * model.alibi_bias_max / static_cast<double>(power))));
  }
  return slopes;
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

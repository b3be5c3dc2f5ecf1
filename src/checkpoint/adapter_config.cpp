#include "checkpoint/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/json_object.h"
#include "spec/family.h"
#include "spec/module_name.h"
#include "text/regex.h"

namespace ingot::checkpoint {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr int64_t max_rank = 1'000'000;

bool is_set(const json& value) {
  if (value.is_null() || value == false || value == 0) return false;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !((value.is_array() || value.is_object()) && value.empty());
}

// Rejects settings that change an adapter's computation and are not supported. fan_in_fan_out is not one of them: PEFT
// itself sets it according to the kind of layer.
void refuse_unknown_functions(const JsonObject& config) {
  const std::string type = config.string("peft_type").value_or("LORA");
  if (type != "LORA") {
    throw_hint(ErrorKind::unsupported, "supported: LORA", "{}: peft_type '{}' is not supported", config.where(), type);
  }
  for (const char* key : {"lora_bias", "target_parameters", "layer_replication", "trainable_token_indices",
                          "alora_invocation_tokens", "use_qalora", "use_bdlora", "arrow_config", "lora_ga_config"}) {
    const json* value = config.find(key);
    if (value == nullptr || !is_set(*value)) continue;
    throw_error(ErrorKind::unsupported, "{}: \"{}\": {} is not supported", config.where(), key, value->dump());
  }
  const json* init = config.find("init_lora_weights");
  if (init == nullptr || init->is_boolean() || *init == "gaussian" || *init == "orthogonal") return;
  throw_hint(ErrorKind::unsupported,
             "save the adapter converted to plain LoRA (PEFT: path_initial_model_for_weight_conversion)",
             "{}: init_lora_weights {} changes the base weights, so the adapter does not match the original model",
             config.where(), init->dump());
}

// A regular expression from the file, anchored at both ends. All its errors are reported as errors of the file,
// including one that is too expensive to match.
class WholePattern {
 public:
  WholePattern(const std::string& pattern, std::string where) : where_(std::move(where)) {
    guarded([&] { pattern_ = std::make_unique<text::Regex>("\\A(?:" + pattern + ")\\z"); });
  }

  // Whether it matches all of `text`.
  bool matches(std::string_view text) const {
    bool found = false;
    guarded([&] { found = !pattern_->find_all(text).empty(); });
    return found;
  }

 private:
  template <class Action>
  void guarded(Action&& action) const {
    try {
      action();
    } catch (const Error& error) {
      const bool too_dear = error.kind() == ErrorKind::resource || error.kind() == ErrorKind::unsupported;
      const ErrorKind kind = too_dear ? ErrorKind::corrupt : error.kind();
      throw Error(kind, where_ + ": " + error.message(), error.hint());
    }
  }

  std::string where_;
  std::unique_ptr<text::Regex> pattern_;
};

// Module names of target_modules and exclude_modules: a list, a regular expression, or "all-linear".
class Names {
 public:
  Names(const JsonObject& config, const char* key) {
    const json* value = config.find(key);
    if (value == nullptr) return;
    list_ = config.strings(key);
    used_.assign(list_.size(), false);
    if (!value->is_string()) return;
    all_linear_ = list_.front() == "all-linear";
    if (!all_linear_) pattern_.emplace(list_.front(), config.where() + ": " + key);
  }

  const std::vector<std::string>& list() const { return list_; }
  bool names_kinds() const { return all_linear_ || pattern_; }
  void set(std::vector<std::string> list) {
    list_ = std::move(list);
    used_.assign(list_.size(), false);
  }

  bool match(const spec::ParamSpec& p) {
    const std::string_view module = p.module();
    if (all_linear_) return p.linear && p.role != spec::Role::head && use(0);
    if (pattern_) return pattern_->matches(module) && use(0);
    bool found = false;
    for (size_t i = 0; i < list_.size(); ++i) {
      if (spec::names_module(list_[i], module)) found = use(i);
    }
    return found;
  }

  // The first entry that has not matched any module, or null.
  const std::string* unused() const {
    const auto found = std::find(used_.begin(), used_.end(), false);
    return found == used_.end() ? nullptr : &list_[static_cast<size_t>(found - used_.begin())];
  }

 private:
  bool use(size_t i) {
    used_[i] = true;
    return true;
  }

  std::vector<std::string> list_;
  std::vector<bool> used_;
  std::optional<WholePattern> pattern_;
  bool all_linear_ = false;
};

// rank_pattern or alpha_pattern: the first key, in the file's order, that matches a module's path applies.
class Pattern {
 public:
  Pattern(const ordered_json& document, const char* key, const std::string& where) {
    const auto found = document.find(key);
    if (found == document.end() || found->is_null()) return;
    if (!found->is_object()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is not an object", where, key);
    for (const auto& [pattern, value] : found->items()) {
      if (!value.is_number() || !(value.get<double>() > 0)) {
        throw_error(ErrorKind::corrupt, "{}: {}: '{}' is {}, which is not a number above 0", where, key, pattern,
                    value.dump());
      }
      entries_.emplace_back(WholePattern(fmt::format("(.*\\.)?({})", pattern), where + ": " + key),
                            value.get<double>());
    }
  }

  double of(std::string_view module, double otherwise) const {
    for (const auto& [pattern, value] : entries_) {
      if (pattern.matches(module)) return value;
    }
    return otherwise;
  }

 private:
  std::vector<std::pair<WholePattern, double>> entries_;
};

// The layer selection of layers_to_transform and layers_pattern.
class Layers {
 public:
  explicit Layers(const JsonObject& config) : wanted_(config.integers("layers_to_transform")) {
    for (const std::string& pattern : config.strings("layers_pattern")) {
      patterns_.emplace_back("(.*\\.)?" + pattern + "\\.\\d+\\..*", config.where() + ": layers_pattern");
    }
    if (wanted_.empty() && !patterns_.empty()) {
      throw_error(ErrorKind::corrupt, "{}: layers_pattern needs layers_to_transform", config.where());
    }
  }

  bool has(const spec::ParamSpec& p) const {
    if (wanted_.empty()) return true;
    const bool named = patterns_.empty() || std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& pattern) {
                         return pattern.matches(p.module());
                       });
    return named && std::find(wanted_.begin(), wanted_.end(), p.layer) != wanted_.end();
  }

 private:
  std::vector<int64_t> wanted_;
  std::vector<WholePattern> patterns_;
};

// PEFT's default targets for a family when the file names none.
std::vector<std::string> default_targets(const spec::ModelSpec& model) {
  const std::span<const std::string_view> names = spec::family_named(model.family).lora_targets;
  return {names.begin(), names.end()};
}

std::vector<AdaptedLayer> adapted_layers(const JsonObject& config, const ordered_json& document,
                                         const spec::ModelSpec& model, const AdapterConfig& adapter) {
  Names targets(config, "target_modules");
  if (targets.list().empty()) targets.set(default_targets(model));
  Names excluded(config, "exclude_modules");
  const Layers layers(config);
  const Pattern ranks(document, "rank_pattern", config.where());
  const Pattern alphas(document, "alpha_pattern", config.where());
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  std::vector<AdaptedLayer> adapted;
  for (size_t index = 0; index < table.size(); ++index) {
    const spec::ParamSpec& p = table[index];
    if (p.bias || !targets.match(p) || excluded.match(p) || saves_module(adapter, p.module())) continue;
    if (!layers.has(p)) continue;
    if (!p.linear) {
      if (targets.names_kinds()) continue;
      throw_hint(ErrorKind::unsupported,
                 fmt::format("linear layers are: {}", fmt::join(spec::lora_targets(model), ", ")),
                 "{}: target_modules: '{}' is not a linear layer", config.where(), p.module());
    }
    AdaptedLayer layer;
    const double rank = ranks.of(p.module(), static_cast<double>(adapter.lora.rank));
    const double alpha = alphas.of(p.module(), adapter.lora.alpha);
    if (rank != std::floor(rank) || rank > max_rank) {
      throw_error(ErrorKind::corrupt, "{}: rank_pattern gives '{}' the rank {}; ranks must be from 1 to {}",
                  config.where(), p.module(), rank, max_rank);
    }
    layer.param = {std::string(p.module()), index, static_cast<int64_t>(rank), p.shape[1], p.shape[0]};
    layer.factor = static_cast<float>(alpha / (adapter.lora.rslora ? std::sqrt(rank) : rank));
    if (!std::isfinite(layer.factor)) {
      throw_error(ErrorKind::corrupt, "{}: '{}' would be scaled by {} / {}, which is not finite in fp32",
                  config.where(), p.module(), alpha, rank);
    }
    layer.optional = targets.names_kinds() && (p.expert >= 0 || p.role == spec::Role::router);
    adapted.push_back(std::move(layer));
  }
  if (const std::string* unused = targets.unused(); unused != nullptr) {
    throw_hint(ErrorKind::corrupt, fmt::format("its layers: {}", fmt::join(spec::lora_targets(model), ", ")),
               "{}: target_modules: '{}' matches no layer of this model", config.where(), *unused);
  }
  return adapted;
}

}  // namespace

bool saves_module(const AdapterConfig& config, std::string_view module) {
  const std::vector<std::string>& saved = config.modules_to_save;
  return std::any_of(saved.begin(), saved.end(), [&](const std::string& name) {
    for (std::string_view path = module;;) {
      if (spec::names_module(name, path)) return true;
      const size_t dot = path.rfind('.');
      if (dot == std::string_view::npos) return false;
      path = path.substr(0, dot);
    }
  });
}

AdapterConfig read_adapter_config(const std::filesystem::path& file, const spec::ModelSpec& model) {
  const std::string text = read_file(file, uint64_t{1} << 26);
  const json document = parse_json(text, file.string());
  const JsonObject config(document, file.string());
  refuse_unknown_functions(config);
  AdapterConfig adapter;
  adapter.lora.rank = config.integer("r").value_or(8);
  adapter.lora.alpha = config.number("lora_alpha").value_or(8);
  adapter.lora.dropout = config.number("lora_dropout").value_or(0);
  adapter.lora.rslora = config.boolean("use_rslora").value_or(false);
  if (adapter.lora.rank < 1 || adapter.lora.rank > max_rank) {
    throw_error(ErrorKind::corrupt, "{}: \"r\" is {}; ranks must be from 1 to {}", config.where(), adapter.lora.rank,
                max_rank);
  }
  if (!std::isfinite(static_cast<float>(adapter.lora.factor()))) {
    throw_error(ErrorKind::corrupt,
                "{}: \"lora_alpha\" of {} with the rank {} gives a scale that is not finite in fp32", config.where(),
                adapter.lora.alpha, adapter.lora.rank);
  }
  adapter.dora = config.boolean("use_dora").value_or(false);
  const std::string bias = config.string("bias").value_or("none");
  if (bias != "none" && bias != "all" && bias != "lora_only") {
    throw_error(ErrorKind::corrupt, "{}: bias '{}' is not known", config.where(), bias);
  }
  adapter.biases = bias != "none";
  adapter.modules_to_save = config.strings("modules_to_save");
  adapter.base_name = config.string("base_model_name_or_path").value_or("");
  adapter.lora.targets = config.strings("target_modules");
  if (adapter.lora.targets.empty()) adapter.lora.targets = default_targets(model);
  adapter.layers = adapted_layers(config, parse_lenient_ordered_json(text), model, adapter);
  return adapter;
}

std::string write_adapter_config(const spec::LoraSpec& lora, const std::string& base_name,
                                 const spec::ModelSpec& model) {
  std::vector<std::string> targets = lora.targets;
  std::sort(targets.begin(), targets.end());
  bool transposed = false;
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  for (const spec::LoraParam& p : spec::lora_parameters(model, lora))
    transposed = transposed || table[p.base].transposed;
  json config = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", nullptr},
      {"revision", nullptr},
      {"r", lora.rank},
      {"lora_alpha", lora.alpha},
      {"lora_dropout", lora.dropout},
      {"use_rslora", lora.rslora},
      {"target_modules", targets},
      {"exclude_modules", nullptr},
      {"modules_to_save", nullptr},
      {"layers_to_transform", nullptr},
      {"layers_pattern", nullptr},
      {"bias", "none"},
      {"lora_bias", false},
      {"use_dora", false},
      {"fan_in_fan_out", transposed},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"rank_pattern", json::object()},
      {"alpha_pattern", json::object()},
      {"auto_mapping", nullptr},
  };
  if (!base_name.empty()) config["base_model_name_or_path"] = base_name;
  if (lora.alpha == std::floor(lora.alpha)) config["lora_alpha"] = static_cast<int64_t>(lora.alpha);
  if (targets == std::vector<std::string>{"all-linear"}) config["target_modules"] = "all-linear";
  return config.dump(2) + "\n";
}

}  // namespace ingot::checkpoint

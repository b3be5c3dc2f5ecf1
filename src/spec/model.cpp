#include "spec/model.h"

#include <set>

#include "base/error.h"
#include "spec/limits.h"
#include "spec/table.h"

namespace ingot::spec {

namespace {

constexpr int64_t max_layers = 1 << 16;  // and max of their sum, each counted once for each of its experts

int64_t experts_in(const LayerSpec& layer) {
  const Experts* experts = experts_of(layer.mlp);
  return experts ? experts->count : 1;
}

// Calls fn(layer, first, count) for every run of equal layers.
template <class Fn>
void for_runs(const ModelSpec& model, Fn fn) {
  for (size_t first = 0; first < model.layers.size();) {
    size_t end = first + 1;
    while (end < model.layers.size() && model.layers[end] == model.layers[first]) ++end;
    fn(model.layers[first], static_cast<int64_t>(end - first));
    first = end;
  }
}

}  // namespace

int64_t ParamSpec::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string_view ParamSpec::module() const {
  const std::string_view view = name;
  return view.substr(0, view.rfind('.'));
}

std::vector<LayerSpec> repeated(int64_t count, const LayerSpec& layer) {
  if (count < 1 || count > max_layers) {
    throw_error(ErrorKind::corrupt, "the model's number of layers is {}, which is out of range", count);
  }
  return std::vector<LayerSpec>(static_cast<size_t>(count), layer);
}

int64_t longest_row(const ModelSpec& model) {
  return std::max(model.hidden, max_over_layers(model, [](const LayerSpec& layer) {
                    return std::max(layer.attention.query_width(), dense_of(layer.mlp).features);
                  }));
}

void check(const ModelSpec& model) {
  family_named(model.family);
  check_positive("vocabulary size", model.vocab);
  check_positive("hidden size", model.hidden);
  check_positive("context length", model.context);
  check_positive("number of layers", model.num_layers());
  // Bounds the sizes so that no number of elements or bytes overflows 64 bits.
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  double wide = 2 * real(model.vocab) + real(model.context);
  int64_t mlps = 0;
  for_runs(model, [&](const LayerSpec& layer, int64_t count) {
    layer.check();
    const double each = real(experts_in(layer)) * 3 * real(dense_of(layer.mlp).features) +
                        4 * real(layer.attention.heads) * real(layer.attention.head_dim);
    wide += real(count) * each;
    mlps += count * experts_in(layer);
  });
  if (real(model.hidden) * wide > 0x1p56) {
    throw_error(ErrorKind::corrupt, "a model of about {:.1g} parameters is too large", real(model.hidden) * wide);
  }
  // The parameter table is built from these numbers before any file has confirmed them.
  if (mlps > max_layers) {
    throw_error(ErrorKind::corrupt, "{} layers of {} experts are too many", model.num_layers(),
                experts_in(model.layers.back()));
  }
  if (!(model.norm_epsilon >= 0 && model.norm_epsilon < 1)) {
    throw_error(ErrorKind::corrupt, "the norms' epsilon is {}; it must be at least 0 and below 1", model.norm_epsilon);
  }
  check_not_negative("the soft cap of logits", model.final_softcap);
}

ModelSpec with_balanced_routing(ModelSpec model) {
  for (LayerSpec& layer : model.layers) {
    if (auto* experts = std::get_if<Experts>(&layer.mlp)) experts->balanced = true;
  }
  return model;
}

std::vector<ParamSpec> parameters(const ModelSpec& model) {
  TableBuilder table(model);
  table.embedding(Role::embedding, model.vocab);
  if (model.learned_positions) table.embedding(Role::position_embedding, model.context);
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    table.enter_block(layer);
    model.layer(layer).add_parameters(table);
  }
  table.leave_blocks();
  table.norm(Role::final_norm, model.hidden);
  if (!model.tied_head) table.linear(Role::head, {.out = model.vocab, .in = model.hidden});
  return table.take();
}

int64_t num_parameters(const ModelSpec& model) {
  int64_t count = 0;
  for (const ParamSpec& p : parameters(model)) count += p.elements();
  return count;
}

std::vector<std::string> lora_targets(const ModelSpec& model) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const ParamSpec& p : parameters(model)) {
    if (!p.linear) continue;
    const std::string_view module = p.module();
    const size_t dot = module.rfind('.');
    std::string name(dot == std::string_view::npos ? module : module.substr(dot + 1));
    if (seen.insert(name).second) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace ingot::spec

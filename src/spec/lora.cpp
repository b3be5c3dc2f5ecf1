#include "spec/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "spec/module_name.h"

namespace ingot::spec {

double LoraSpec::factor() const {
  const double r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

std::vector<LoraParam> lora_parameters(const ModelSpec& model, const LoraSpec& lora) {
  if (lora.rank < 1) throw_error(ErrorKind::usage, "adapter.rank is {}; it must be at least 1", lora.rank);
  if (!std::isfinite(static_cast<float>(lora.factor()))) {
    throw_error(ErrorKind::usage, "adapter.alpha of {} with the rank {} gives a scale that is not finite", lora.alpha,
                lora.rank);
  }
  if (lora.targets.empty()) throw_error(ErrorKind::usage, "adapter.targets is empty: no layer would be trained");
  const std::vector<ParamSpec> table = parameters(model);
  std::vector<bool> used(lora.targets.size(), false);
  std::vector<LoraParam> adapted;
  for (size_t index = 0; index < table.size(); ++index) {
    const ParamSpec& p = table[index];
    bool wanted = false;
    for (size_t t = 0; t < lora.targets.size(); ++t) {
      const std::string& target = lora.targets[t];
      const bool match = target == "all-linear" ? p.linear && p.role != Role::head
                                                : p.name.ends_with(".weight") && names_module(target, p.module());
      if (!match) continue;
      if (!p.linear) {
        throw_hint(ErrorKind::usage, fmt::format("its layers: {}", fmt::join(lora_targets(model), ", ")),
                   "adapter.targets: '{}' is not a linear layer", target);
      }
      used[t] = true;
      wanted = true;
    }
    if (!wanted) continue;
    if (lora.rank > std::min(p.shape[0], p.shape[1])) {
      throw_error(ErrorKind::usage, "adapter.rank {} is too large for layer {} [{}, {}]", lora.rank, p.module(),
                  p.shape[0], p.shape[1]);
    }
    adapted.push_back({std::string(p.module()), index, lora.rank, p.shape[1], p.shape[0]});
  }
  for (size_t t = 0; t < used.size(); ++t) {
    if (used[t]) continue;
    throw_hint(ErrorKind::usage,
               fmt::format("use one of its layers ({}), or all-linear", fmt::join(lora_targets(model), ", ")),
               "adapter.targets: '{}' matches no layer of this model", lora.targets[t]);
  }
  return adapted;
}

int64_t lowest_adapted_layer(const ModelSpec& model, const LoraSpec& lora) {
  const std::vector<ParamSpec> table = parameters(model);
  int64_t lowest = model.num_layers();
  for (const LoraParam& p : lora_parameters(model, lora)) {
    if (table[p.base].layer >= 0) lowest = std::min(lowest, table[p.base].layer);
  }
  return lowest;
}

int64_t num_parameters(std::span<const LoraParam> parameters) {
  int64_t count = 0;
  for (const LoraParam& p : parameters) count += p.rank * (p.in + p.out);
  return count;
}

}  // namespace ingot::spec

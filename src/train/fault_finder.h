// Where the first value of a step that is not finite came from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/context.h"
#include "tensor/weight_set.h"
#include "train/trained.h"

namespace ingot::train {

// Watches a step that is run again. Ops are told apart by the parameter that they were called with, or that the op
// before them was, so every message names a layer.
class FaultFinder : public ops::Watch {
 public:
  // `weights` by index of spec::parameters(model). Everything outlives it.
  FaultFinder(Device& device, const spec::ModelSpec& model, const WeightSet& weights, const Trained& trained);

  void ran(const char* op, std::span<const Tensor> tensors) override;

  // "linear with model.layers.1.mlp.up_proj.weight"; empty when every value was finite.
  const std::string& found() const { return found_; }

 private:
  struct Known {
    const std::byte* end;
    std::string name;
    bool gradient;
  };
  void know(const void* data, size_t bytes, const std::string& name, bool gradient);
  const Known* known(const Tensor& tensor) const;
  bool finite(const Tensor& tensor) const;

  Device& device_;
  std::map<const std::byte*, Known> known_;  // by where the memory begins
  std::string last_;                         // the parameter of the op that had one last
  std::string found_;
};

}  // namespace ingot::train

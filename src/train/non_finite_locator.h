// Finds the op that produced the first non-finite value of a step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/context.h"
#include "tensor/weight_set.h"
#include "train/optimizer_state.h"

namespace ingot::train {

// Watches the ops of a step that is run again. An op is named after the parameter that it was called with, or else
// after the last parameter that an earlier op was called with, so every message names a layer.
class NonFiniteLocator : public ops::OpObserver {
 public:
  // `weights`: by index of spec::parameters(model), those of this rank. `sharded`: where they are gathered their owner,
  // whose memory has one weight after another; else null. The arguments outlive it.
  NonFiniteLocator(Device& device, const spec::ModelSpec& model, const WeightSet& weights,
                   const OptimizerState& optimizer_state, const ShardedWeights* sharded = nullptr);

  void ran(const char* op, std::span<const Tensor> tensors, const ops::OpWork& work) override;

  // The position of the next computation in a pass through the whole model: forward by virtual stage, then backward.
  // Later positions depend on earlier ones.
  void set_place(int64_t position) { place_ = {position, 0, 0}; }

  // "linear with model.layers.1.mlp.up_proj.weight"; empty when every value was finite.
  const std::string& found() const { return found_; }
  // Where: the position, the number of ops until then that context-parallel or expert-parallel ranks run together
  // (attention, and the combination of experts' results), and the number of the op since. Of several ranks' findings
  // the earliest is the cause.
  struct Place {
    int64_t position = 0;
    int64_t section = 0;
    int64_t op = 0;
    auto operator<=>(const Place&) const = default;
  };
  Place place_found() const { return place_found_; }

 private:
  struct NamedMemory {
    const std::byte* end;
    std::string name;
    bool gradient;
  };
  void add_weights();  // that are in memory now
  void add(const void* data, size_t bytes, const std::string& name, bool gradient);
  const NamedMemory* find(const Tensor& tensor) const;
  bool is_finite(const Tensor& tensor) const;

  Device& device_;
  const std::vector<spec::ParamSpec> table_;
  const WeightSet& weights_;
  const ShardedWeights* sharded_;
  std::map<const std::byte*, NamedMemory> memory_;  // by start address
  std::vector<const std::byte*> sharded_begins_;    // in `memory_`: where weights begin that may be replaced
  std::string last_;                                // the parameter of the last op that was called with one
  std::string found_;
  Place place_, place_found_;
};

}  // namespace ingot::train

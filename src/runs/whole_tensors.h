// The tensors of a model that several ranks have in parts, one at a time, for the rank that writes them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "comm/group.h"
#include "spec/model_shard.h"
#include "tensor/device.h"
#include "tensor/weight_set.h"
#include "train/sharded_weights.h"

namespace ingot::runs {

// What one rank has of tensor `number`: of a slice of a vector or a matrix, flattened, the elements `elements`.
struct HeldTensor {
  size_t number = 0;
  Tensor tensor;  // its elements, on the rank's device
  Shape whole;
  spec::Slice slice;
  spec::Range elements;
};

// The parameters of a model that this rank has, numbered as in spec::parameters, without those that another rank of the
// same copy of the model counts. Matrices have a plain type.
std::vector<HeldTensor> held_tensors(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                     const WeightSet& weights);
// The same of a rank that stores a share of each weight.
std::vector<HeldTensor> held_tensors(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                     const train::ShardedWeights& weights);

// Rank 0 of a group asks with fetch(); meanwhile the others serve(), until rank 0 ends it.
class WholeTensors {
 public:
  // Collective. `ranks`: those that together have one copy. `held`: each element of a tensor is on one rank. The
  // tensors' memory outlives this object.
  WholeTensors(Device& device, std::vector<HeldTensor> held, const comm::Group& ranks);

  // On rank 0: the whole tensor; of this rank's memory, or put together in `memory`. To be called often, since the
  // others wait for the next call no longer than parallel.timeout_s. Errors: internal for a tensor of which parts are
  // missing.
  Tensor fetch(size_t number, Buffer& memory);
  // On rank 0: lets the others return.
  void end();
  // On the other ranks.
  void serve();

 private:
  // A part of a tensor that is on rank `rank`.
  struct Part {
    int rank = 0;
    DType dtype = DType::f32;
    Shape whole;
    spec::Slice slice;
    spec::Range elements;
  };
  int64_t next(int64_t number) const;

  Device& device_;
  comm::Group ranks_;
  std::map<size_t, HeldTensor> held_;              // by number
  std::map<size_t, std::vector<Part>> directory_;  // on rank 0, by number
};

}  // namespace ingot::runs

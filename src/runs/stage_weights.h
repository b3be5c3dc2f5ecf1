// The weights of a pipeline's stages, one parameter at a time, for a rank that writes the whole model.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "tensor/device.h"
#include "tensor/weight_set.h"

namespace ingot::runs {

// Stage 0 asks with fetch(); meanwhile the others serve(), until stage 0 ends it.
class StageWeights {
 public:
  // Collective over `stages`. `weights`: this rank's, by index in the whole model; matrices of a plain type, vectors of
  // f32. They outlive this object.
  StageWeights(Device& device, const WeightSet& weights, const comm::Group& stages);

  // On stage 0: a parameter. One that another stage has is valid until the next call. To be called for every parameter,
  // since the others wait for the next call no longer than parallel.timeout_s. Errors: internal for one that none has.
  Parameter fetch(size_t index);
  // On stage 0: lets the others return.
  void end();
  // On the other stages.
  void serve();

 private:
  // What is asked for, and its shape and type on the rank that has it.
  struct Request {
    int64_t index = -1;  // -1: nothing more
    int64_t stage = 0;
  };
  struct Header {
    DType dtype = DType::f32;
    int64_t rows = 0, columns = 0;  // 0 columns: a vector
  };
  Request next(Request request) const;

  Device& device_;
  const WeightSet& weights_;
  comm::Group stages_;
  std::vector<std::vector<int64_t>> held_;  // by stage: the parameters that it has
  Buffer fetched_;
};

}  // namespace ingot::runs

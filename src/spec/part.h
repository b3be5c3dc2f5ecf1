// What one rank of a process grid holds of a model: an equal share of the attention heads and of the MLPs' inner
// features (tensor parallelism, Shoeybi et al. 2019, arXiv 1909.08053), and a stretch of the blocks (a pipeline's
// stage). Embeddings, norms, routers and the head are whole on every rank of a stage that has them.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/model.h"

namespace ingot::spec {

struct Part {
  int64_t tp = 1;
  int64_t tp_rank = 0;
  int64_t pp = 1;
  int64_t stage = 0;

  bool first() const { return stage == 0; }
  bool last() const { return stage == pp - 1; }
};

// ErrorKind::usage, naming the sizes, when the model cannot be cut so; unsupported for what cannot be split yet.
void check(const ModelSpec& model, const Part& part);

// Elements [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// The blocks that the part has, by their numbers in the model. Earlier stages have one more where it does not come out
// even.
Range blocks_of(const ModelSpec& model, const Part& part);

// Hyper-parameters that give the sizes of the part: its heads, key/value heads, MLP features and blocks.
ModelSpec sizes_of(const ModelSpec& model, const Part& part);

struct HeldParameter {
  size_t whole = 0;         // index in parameters(model)
  ParamSpec held;           // named and numbered as in the model, of the shape that is held
  std::vector<Range> rows;  // of the whole, one behind the other: what is held of it
  Range columns;
};

// The part's parameters in the model's order.
std::vector<HeldParameter> held_parameters(const ModelSpec& model, const Part& part);

}  // namespace ingot::spec

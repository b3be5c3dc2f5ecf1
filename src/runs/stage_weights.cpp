#include "runs/stage_weights.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::runs {

namespace {

// A plain matrix or a vector.
Tensor tensor_of(const Parameter& p) { return p.matrix ? p.matrix.tensor() : p.vector; }

}  // namespace

StageWeights::StageWeights(Device& device, const WeightSet& weights, const comm::Group& stages)
    : device_(device), weights_(weights), stages_(stages) {
  std::vector<int64_t> own;
  for (size_t i = 0; i < weights.parameters.size(); ++i) {
    if (weights.parameters[i].matrix || weights.parameters[i].vector) own.push_back(static_cast<int64_t>(i));
  }
  held_ = stages.gather(std::span<const int64_t>(own));
}

// Collective: what stage 0 asks for.
StageWeights::Request StageWeights::next(Request request) const {
  stages_.begin_broadcast(std::as_writable_bytes(std::span(&request, 1)), 0).wait();
  return request;
}

Parameter StageWeights::fetch(size_t index) {
  const Parameter& here = weights_.parameters[index];
  if (stages_.size() == 1) return here;
  if (here.matrix || here.vector) {
    next({static_cast<int64_t>(index), 0});
    return here;
  }
  const auto has_it = [&](const std::vector<int64_t>& held) {
    return std::ranges::binary_search(held, static_cast<int64_t>(index));
  };
  const auto found = std::ranges::find_if(held_, has_it);
  if (found == held_.end()) throw_error(ErrorKind::internal, "no stage of the pipeline has parameter {}", index);
  const auto stage = static_cast<int>(found - held_.begin());
  next({static_cast<int64_t>(index), stage});
  Header header;
  stages_.begin_receive(std::as_writable_bytes(std::span(&header, 1)), stage).wait();
  const Shape shape = header.columns > 0 ? Shape{header.rows, header.columns} : Shape{header.rows};
  std::vector<std::byte> bytes(static_cast<size_t>(shape.elements()) * size_of(header.dtype));
  stages_.begin_receive(bytes, stage).wait();
  fetched_ = {};  // before its successor is allocated
  fetched_ = Buffer(device_, bytes.size());
  const Tensor tensor = fetched_.view(header.dtype, shape);
  device_.copy_from_host(tensor.data, bytes.data(), bytes.size());
  return header.columns > 0 ? Parameter{weight_of(tensor), {}} : Parameter{{}, tensor};
}

void StageWeights::end() {
  if (stages_.size() > 1) next({});
}

void StageWeights::serve() {
  for (Request request = next({}); request.index >= 0; request = next({})) {
    if (request.stage != stages_.rank()) continue;
    const Tensor tensor = tensor_of(weights_.parameters[static_cast<size_t>(request.index)]);
    const Header header{tensor.dtype, tensor.shape[0], tensor.shape.rank() > 1 ? tensor.shape[1] : 0};
    stages_.begin_send(std::as_bytes(std::span(&header, 1)), 0).wait();
    std::vector<std::byte> bytes(tensor.bytes());
    device_.copy_to_host(bytes.data(), tensor.data, bytes.size());
    stages_.begin_send(bytes, 0).wait();
  }
}

}  // namespace ingot::runs

#include "nn/transfer.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/half.h"

namespace ingot::nn {

namespace {

// Elements that are summed at a time, so that the host memory for them does not grow with the batch.
constexpr int64_t at_once = int64_t{1} << 18;

template <class Widen, class Narrow>
void sum_halves(Device& device, const comm::Group& group, const Tensor& x, Widen widen, Narrow narrow) {
  std::vector<uint16_t> halves(static_cast<size_t>(x.elements()));
  device.copy_to_host(halves.data(), x.data, x.bytes());
  std::vector<float> sums(halves.size());
  for (size_t i = 0; i < halves.size(); ++i) sums[i] = widen(halves[i]);
  group.all_reduce(std::span(sums), comm::ReduceOp::sum);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = narrow(sums[i]);
  device.copy_from_host(x.data, halves.data(), x.bytes());
}

void sum_floats(Device& device, const comm::Group& group, const Tensor& x) {
  std::vector<float> sums(static_cast<size_t>(x.elements()));
  device.copy_to_host(sums.data(), x.data, x.bytes());
  group.all_reduce(std::span(sums), comm::ReduceOp::sum);
  device.copy_from_host(x.data, sums.data(), x.bytes());
}

}  // namespace

void sum_over(Device& device, const comm::Group& group, const Tensor& x) {
  if (group.size() == 1) return;
  const Tensor flat = x.reshape(Shape{x.elements()});
  for (int64_t begin = 0; begin < flat.elements(); begin += at_once) {
    const Tensor part = flat.slice(begin, std::min(flat.elements(), begin + at_once));
    switch (x.dtype) {
      case DType::bf16: sum_halves(device, group, part, bf16_to_float, float_to_bf16); break;
      case DType::f16: sum_halves(device, group, part, f16_to_float, float_to_f16); break;
      case DType::f32: sum_floats(device, group, part); break;
      default: throw_error(ErrorKind::internal, "{} cannot be summed over ranks", x.text());
    }
  }
}

}  // namespace ingot::nn

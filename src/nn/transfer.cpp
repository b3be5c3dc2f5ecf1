#include "nn/transfer.h"

#include <vector>

#include "base/error.h"
#include "base/half.h"

namespace ingot::nn {

namespace {

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

}  // namespace

void sum_over(Device& device, const comm::Group& group, const Tensor& x) {
  if (group.size() == 1) return;
  switch (x.dtype) {
    case DType::bf16: return sum_halves(device, group, x, bf16_to_float, float_to_bf16);
    case DType::f16: return sum_halves(device, group, x, f16_to_float, float_to_f16);
    case DType::f32: break;
    default: throw_error(ErrorKind::internal, "{} cannot be summed over ranks", x.text());
  }
  std::vector<float> sums(static_cast<size_t>(x.elements()));
  device.copy_to_host(sums.data(), x.data, x.bytes());
  group.all_reduce(std::span(sums), comm::ReduceOp::sum);
  device.copy_from_host(x.data, sums.data(), x.bytes());
}

}  // namespace ingot::nn

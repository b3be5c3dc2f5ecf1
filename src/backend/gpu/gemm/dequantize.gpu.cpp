#include "backend/gpu/elementwise/elements.h"
#include "backend/gpu/gemm/block_quant.h"

namespace ingot::gpu {

struct DequantizeArgs {
  void* out;
  const void* weight;
  QuantFormat stored;
  int64_t n;  // elements
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(dequantize, DequantizeArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int V>
GPU_FN void decode_elements(const DequantizeArgs& a) {
  const int64_t at = first_element<V>();
  if (at < a.n) store_floats(static_cast<T*>(a.out) + at, decode<V>(a.stored, a.weight, at));
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(dequantize, DequantizeArgs, decode_elements)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/matmul.h"

namespace ingot::gpu {
namespace {

void run(ops::Context& context, const Tensor& out, const Weight& weight) {
  const Tensor plain = is_block(weight.storage) ? Tensor{} : weight.tensor();
  launch_elements(context, dequantize, {out, plain}, {out.data, weight.data, stored_as(weight), out.elements()});
}

bool not_fp8(const ops::Context&, const Tensor&, const Weight& weight, ops::Refusal refuse) {
  return is_fp8(weight.storage) && refuse("does not support fp8");
}

}  // namespace

void register_dequantize(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Dequantize>(kind, "simt", run, not_fp8);
}

}  // namespace ingot::gpu
#endif

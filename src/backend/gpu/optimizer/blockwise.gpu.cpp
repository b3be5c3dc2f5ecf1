#include "backend/gpu/optimizer/update.h"

namespace ingot::gpu {

struct QuantizeBlockwiseArgs {
  Coded state;
  const float* x;
  const double* decision;  // output of decide_update; may be null
  int64_t n;
};

struct DequantizeBlockwiseArgs {
  float* x;
  Coded state;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL(quantize_blockwise, QuantizeBlockwiseArgs, 256)
GPU_KERNEL(dequantize_blockwise, DequantizeBlockwiseArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

GPU_FN void quantize(const QuantizeBlockwiseArgs& a) {
  if (is_halted(a.decision)) return;
  GPU_SHARED(EncodeRoom, room);
  const int64_t at = first_element<1>();
  encode(room, a.state, at < a.n ? a.x[at] : 0.0F, at, a.n);
}

GPU_FN void dequantize(const DequantizeBlockwiseArgs& a) {
  const int64_t at = first_element<1>();
  if (at >= a.n) return;
  a.x[at] = decode(a.state, at).at[0];
}

}  // namespace

GPU_KERNEL_BODY(quantize_blockwise, QuantizeBlockwiseArgs) { quantize(a); }
GPU_KERNEL_BODY(dequantize_blockwise, DequantizeBlockwiseArgs) { dequantize(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run_quantize(Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x,
                  ops::BlockwiseAttributes attributes) {
  launch(context, quantize_blockwise, {ops::blockwise_blocks(x.elements())},
         {coded(codes, scales, attributes.is_signed), x.as<float>(), decision_of(attributes.decision), x.elements()});
}

void run_dequantize(Context& context, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  launch(context, dequantize_blockwise, {ops::blockwise_blocks(x.elements())},
         {x.as<float>(), coded(codes, scales, is_signed), x.elements()});
}

}  // namespace

void register_blockwise(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::QuantizeBlockwise>(kind, "simt", run_quantize);
  registry.add<ops::DequantizeBlockwise>(kind, "simt", run_dequantize);
}

}  // namespace ingot::gpu
#endif

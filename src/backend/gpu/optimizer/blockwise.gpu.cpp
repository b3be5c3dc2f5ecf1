#include "backend/gpu/elementwise/elements.h"

namespace ingot::gpu {

// One thread block for each block of 256 elements.
struct QuantizeBlockwiseArgs {
  uint8_t* codes;
  float* scales;
  const float* x;
  bool is_signed;
  const double* decision;  // output of decide_update; may be null
  int64_t n;
};

struct DequantizeBlockwiseArgs {
  float* x;
  const uint8_t* codes;
  const float* scales;
  bool is_signed;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL(quantize_blockwise, QuantizeBlockwiseArgs, 256)
GPU_KERNEL(dequantize_blockwise, DequantizeBlockwiseArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// The value of a code (tensor/dynamic_map.h), in the same arithmetic as there.
GPU_FN float value_of(int code, bool is_signed) {
  if (code == 255) return 1.0F;
  const int zero = is_signed ? 127 : 0;
  const int place = code < zero ? zero - code : code - zero;  // from 1 on: cells of all decades in ascending order
  if (place == 0) return 0.0F;
  int first = 1;
  int cells = is_signed ? 1 : 2;
  double unit = 1e-6;
  while (place >= first + cells) {
    first += cells;
    cells *= 2;
    unit *= 10;
  }
  const auto value = static_cast<float>(unit * (0.1 + 0.9 * (place - first + 0.5) / cells));
  return code < zero ? -value : value;
}

struct QuantizeRoom {
  float map[256];
  float bounds[256];  // bounds[c]: a value above it is nearer to code c + 1 than to code c; 255 are used
  float of_warps[8];
};

GPU_FN void quantize(const QuantizeBlockwiseArgs& a) {
  if (a.decision != nullptr && a.decision[2] != 0) return;
  GPU_SHARED(QuantizeRoom, room);
  const int thread = thread_index();
  const int64_t at = static_cast<int64_t>(block_index()) * 256 + thread;
  room.map[thread] = value_of(thread, a.is_signed);
  const float x = at < a.n ? a.x[at] : 0.0F;
  const float largest = block_max<256>(x < 0 ? -x : x, room.of_warps);  // has barriers: `map` is complete
  if (thread < 255) {
    room.bounds[thread] =
        static_cast<float>(0.5 * (static_cast<double>(room.map[thread]) + static_cast<double>(room.map[thread + 1])));
  }
  block_barrier();
  if (thread == 0) a.scales[block_index()] = largest;
  if (at >= a.n) return;
  const float value = x / (largest > 0 ? largest : 1.0F);
  int code = 0;
  for (int step = 128; step > 0; step /= 2) code += value > room.bounds[code + step - 1] ? step : 0;
  a.codes[at] = static_cast<uint8_t>(code);
}

GPU_FN void dequantize(const DequantizeBlockwiseArgs& a) {
  const int64_t at = first_element<1>();
  if (at >= a.n) return;
  a.x[at] = value_of(a.codes[at], a.is_signed) * a.scales[block_index()];
}

}  // namespace

GPU_KERNEL_BODY(quantize_blockwise, QuantizeBlockwiseArgs) { quantize(a); }
GPU_KERNEL_BODY(dequantize_blockwise, DequantizeBlockwiseArgs) { dequantize(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/blockwise.h"

namespace ingot::gpu {
namespace {

using ops::Context;

static_assert(ops::blockwise_elements == 256);

void run_quantize(Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x,
                  ops::BlockwiseAttributes attributes) {
  launch(context, quantize_blockwise, {ops::blockwise_blocks(x.elements())},
         {codes.as<uint8_t>(), scales.as<float>(), x.as<float>(), attributes.is_signed,
          attributes.decision ? attributes.decision.as<double>() : nullptr, x.elements()});
}

void run_dequantize(Context& context, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  launch(context, dequantize_blockwise, {ops::blockwise_blocks(x.elements())},
         {x.as<float>(), codes.as<uint8_t>(), scales.as<float>(), is_signed, x.elements()});
}

}  // namespace

void register_blockwise(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::QuantizeBlockwise>(kind, "simt", run_quantize);
  registry.add<ops::DequantizeBlockwise>(kind, "simt", run_dequantize);
}

}  // namespace ingot::gpu
#endif

#include "backend/gpu/elementwise/elements.h"
#include "backend/gpu/moe/expert_of.h"

namespace ingot::gpu {

struct LoraEntryArgs {  // the layout of ops::LoraEntry
  const void* a;
  const void* b;
  int32_t rank;
  float factor;
};

struct LoraArgs {
  void* y;
  float* low;  // [T, rank]
  const void* x;
  const LoraEntryArgs* entries;
  const int32_t* slots;
  int64_t layers;
  int64_t layer;
  int64_t rank;  // the largest rank
  int64_t in;
  int64_t out;
  int64_t blocks;  // blocks per token
  bool wide;       // y is f32
  // Of rows that are grouped by expert: each row's token, whose slot is meant, and the experts' first rows [experts +
  // 1]; the layer of expert e is layer + e layer_step. null: a row is a token.
  const int32_t* token_of_row;
  const int32_t* offsets;
  int64_t layer_step;
  int experts;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_TYPES(lora_down, LoraArgs, 256)
GPU_KERNEL_FORWARD_TYPES(lora_up, LoraArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// The adapter of a row; rank 0 if it has none.
GPU_FN LoraEntryArgs entry_of(const LoraArgs& a, int64_t row) {
  const bool grouped = a.token_of_row != nullptr;
  const int32_t slot = a.slots[grouped ? a.token_of_row[row] : row];
  if (slot < 0) return {};
  return a.entries[slot * a.layers + a.layer + (grouped ? expert_of_row(a.offsets, a.experts, row) * a.layer_step : 0)];
}

// A block computes one row of A per warp, for one token.
template <class T>
GPU_FN void down(const LoraArgs& a) {
  constexpr int warps = 256 / warp_width;
  const int64_t token = block_index() / a.blocks;
  const int64_t r = block_index() % a.blocks * warps + warp_index();
  const LoraEntryArgs entry = entry_of(a, token);
  if (r >= entry.rank) return;
  const T* row = static_cast<const T*>(entry.a) + r * a.in;
  const T* x = static_cast<const T*>(a.x) + token * a.in;
  float sum = 0;
  for (int64_t i = lane_index(); i < a.in; i += warp_width) sum = fma(to_float(row[i]), to_float(x[i]), sum);
  sum = warp_sum(sum);
  if (lane_index() == 0) a.low[token * a.rank + r] = entry.factor * sum;
}

// One thread per output of a token.
template <class T>
GPU_FN void up(const LoraArgs& a) {
  const int64_t token = block_index() / a.blocks;
  const int64_t o = block_index() % a.blocks * 256 + thread_index();
  const LoraEntryArgs entry = entry_of(a, token);
  if (entry.rank == 0 || o >= a.out) return;
  const T* row = static_cast<const T*>(entry.b) + o * entry.rank;
  const float* low = a.low + token * a.rank;
  float sum = 0;
  for (int64_t r = 0; r < entry.rank; ++r) sum = fma(to_float(row[r]), low[r], sum);
  store_sum<T, 1>(a.y, a.y, a.wide, token * a.out + o, Floats<1>{{sum}});
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_TYPES(lora_down, LoraArgs, down)
GPU_KERNEL_BODY_FORWARD_TYPES(lora_up, LoraArgs, up)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/lora.h"

namespace ingot::gpu {
namespace {

static_assert(sizeof(LoraEntryArgs) == sizeof(ops::LoraEntry));

LoraArgs args_of(const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots, int64_t layer,
                 int64_t rank) {
  LoraArgs args = {};
  args.y = y.data;
  args.x = x.data;
  args.entries = reinterpret_cast<const LoraEntryArgs*>(entries.as<int64_t>());
  args.slots = slots.as<int32_t>();
  args.layers = entries.shape[1];
  args.layer = layer;
  args.rank = rank;
  args.in = x.shape[1];
  args.out = y.shape[1];
  args.wide = y.dtype == DType::f32;
  return args;
}

void multiply(ops::Context& context, DType dtype, int64_t rows, LoraArgs args) {
  const Arena::Scope scope(context.scratch);
  args.low = context.scratch.allocate(DType::f32, Shape{rows, args.rank}).as<float>();
  args.blocks = blocks_of(args.rank, 256 / device_of(context).warp_width());
  launch(context, of_type(lora_down, dtype), {rows * args.blocks}, args);
  args.blocks = blocks_of(args.out, 256);
  launch(context, of_type(lora_up, dtype), {rows * args.blocks}, args);
}

void run(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
         ops::LoraAttributes attributes) {
  multiply(context, x.dtype, x.shape[0], args_of(y, x, entries, slots, attributes.layer, attributes.rank));
}

void run_grouped(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
                 const Tensor& token_of_row, const Tensor& offsets, ops::GroupedLoraAttributes attributes) {
  LoraArgs args = args_of(y, x, entries, slots, attributes.layer, attributes.rank);
  args.token_of_row = token_of_row.as<int32_t>();
  args.offsets = offsets.as<int32_t>();
  args.layer_step = attributes.layer_step;
  args.experts = static_cast<int>(offsets.shape[0] - 1);
  multiply(context, x.dtype, x.shape[0], args);
}

}  // namespace

void register_lora(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Lora>(kind, "simt", run);
  registry.add<ops::GroupedLora>(kind, "simt", run_grouped);
}

}  // namespace ingot::gpu
#endif

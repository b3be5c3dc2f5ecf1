#include "backend/gpu/number.h"

namespace ingot::gpu {

struct ColumnsArgs {
  void* wide;
  void* narrow;
  bool gather;  // copies from wide to narrow; else the other way
  int64_t width;
  int64_t stride;
  int64_t offset;
  int64_t wide_columns;
  int64_t narrow_columns;  // one block per row
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(columns, ColumnsArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int V>
GPU_FN void copy_columns(const ColumnsArgs& a) {
  T* wide = static_cast<T*>(a.wide) + block_index() * a.wide_columns + a.offset;
  T* narrow = static_cast<T*>(a.narrow) + block_index() * a.narrow_columns;
  const auto width = static_cast<int>(a.width);
  for (int j = thread_index() * V; j < a.narrow_columns; j += 256 * V) {
    T* in_wide = wide + j / width * a.stride + j % width;
    T* in_narrow = narrow + j;
    store_pack<T, V>(a.gather ? in_narrow : in_wide, load_pack<T, V>(a.gather ? in_wide : in_narrow));
  }
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(columns, ColumnsArgs, copy_columns)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <numeric>

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/columns.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run(Context& context, const Tensor& wide, const Tensor& narrow, const ops::ColumnsAttributes& attributes,
         bool gather) {
  const int64_t stride = attributes.groups > 1 ? attributes.stride : 0;
  const int64_t n = wide.shape[1];
  const int64_t vector_divisor = std::gcd(std::gcd(attributes.width, stride), std::gcd(attributes.offset, n));
  launch(context, of_rows(columns, vector_divisor, {wide, narrow}), {wide.shape[0]},
         {wide.data, narrow.data, gather, attributes.width, stride, attributes.offset, n, narrow.shape[1]});
}

void run_gather(Context& context, const Tensor& y, const Tensor& x, ops::ColumnsAttributes attributes) {
  run(context, x, y, attributes, true);
}

void run_scatter(Context& context, const Tensor& x, const Tensor& y, ops::ColumnsAttributes attributes) {
  run(context, x, y, attributes, false);
}

}  // namespace

void register_columns(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::GatherColumns>(kind, "simt", run_gather);
  registry.add<ops::ScatterColumns>(kind, "simt", run_scatter);
}

}  // namespace ingot::gpu
#endif

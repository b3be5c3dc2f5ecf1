#include "backend/gpu/number.h"

namespace ingot::gpu {

struct ColumnsArgs {
  static constexpr int max_parts = 3;
  // ops/columns.h
  struct Part {
    void* narrow;
    int64_t width;
    int64_t stride;
    int64_t offset;
    int64_t narrow_columns;
  };
  void* wide;
  bool gather;  // copies from wide to narrow; else the other way
  int64_t wide_columns;
  Part parts[max_parts];  // one block per row and part
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(columns, ColumnsArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int V>
GPU_FN void copy_columns(const ColumnsArgs& a) {
  ColumnsArgs::Part part = a.parts[0];
  GPU_UNROLL
  for (int i = 1; i < ColumnsArgs::max_parts; ++i) {
    if (block_index_y() == i) part = a.parts[i];
  }
  T* wide = static_cast<T*>(a.wide) + block_index() * a.wide_columns + part.offset;
  T* narrow = static_cast<T*>(part.narrow) + block_index() * part.narrow_columns;
  const auto width = static_cast<int>(part.width);
  for (int j = thread_index() * V; j < part.narrow_columns; j += 256 * V) {
    T* in_wide = wide + j / width * part.stride + j % width;
    T* in_narrow = narrow + j;
    store_pack<T, V>(a.gather ? in_narrow : in_wide, load_pack<T, V>(a.gather ? in_wide : in_narrow));
  }
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(columns, ColumnsArgs, copy_columns)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <algorithm>
#include <array>
#include <numeric>

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/columns.h"

namespace ingot::gpu {
namespace {

using ops::Context;

static_assert(ops::max_column_parts == ColumnsArgs::max_parts);

void run(Context& context, const Tensor& wide, std::span<const Tensor> narrow,
         std::span<const ops::ColumnsAttributes> parts, bool gather) {
  ColumnsArgs args{.wide = wide.data, .gather = gather, .wide_columns = wide.shape[1], .parts = {}};
  int64_t vector_divisor = wide.shape[1];
  for (size_t i = 0; i < parts.size(); ++i) {
    const ops::ColumnsAttributes& part = parts[i];
    const int64_t stride = part.groups > 1 ? part.stride : 0;
    args.parts[i] = {narrow[i].data, part.width, stride, part.offset, narrow[i].shape[1]};
    vector_divisor = std::gcd(std::gcd(vector_divisor, part.width), std::gcd(stride, part.offset));
  }
  std::array<Tensor, ColumnsArgs::max_parts> each;  // absent ones are ignored
  std::ranges::copy(narrow, each.begin());
  launch(context, of_rows(columns, vector_divisor, {wide, each[0], each[1], each[2]}),
         {wide.shape[0], std::ssize(parts)}, args);
}

void run_gather(Context& context, std::span<const Tensor> y, const Tensor& x,
                std::span<const ops::ColumnsAttributes> parts) {
  run(context, x, y, parts, true);
}

void run_scatter(Context& context, const Tensor& x, std::span<const Tensor> y,
                 std::span<const ops::ColumnsAttributes> parts) {
  run(context, x, y, parts, false);
}

}  // namespace

void register_columns(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::GatherColumns>(kind, "simt", run_gather);
  registry.add<ops::ScatterColumns>(kind, "simt", run_scatter);
}

}  // namespace ingot::gpu
#endif

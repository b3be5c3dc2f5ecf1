#include "backend/gpu/moe/expert_of.h"
#include "backend/gpu/philox.h"

namespace ingot::gpu {

struct DropoutArgs {
  void* y;
  const void* x;
  const int64_t* rows;
  uint32_t key_low;
  uint32_t key_high;
  uint32_t stream;
  uint32_t first_block;  // of 4 columns
  uint32_t drop_below;   // the element is kept if the 24 random bits are at least this
  float factor;
  int64_t n;  // columns; one block per row
  // Of rows that are grouped by expert: each row's token, whose `rows` is meant, and the experts' first rows [experts +
  // 1]; the stream of expert e is stream + e stream_step. null: a row is a token.
  const int32_t* token_of_row;
  const int32_t* offsets;
  uint32_t stream_step;
  int experts;
};

}  // namespace ingot::gpu

GPU_KERNEL_PACKS(dropout, DropoutArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// A thread draws for 4 or 8 adjacent elements at a time; without packs the last group of a row may have fewer than 4.
template <class T, int V>
GPU_FN void drop(const DropoutArgs& a) {
  constexpr int count = V == 1 ? 4 : V;
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  T* y = static_cast<T*>(a.y) + row * a.n;
  const bool grouped = a.token_of_row != nullptr;
  const auto id = static_cast<uint64_t>(a.rows[grouped ? a.token_of_row[row] : row]);
  const uint32_t expert = grouped ? static_cast<uint32_t>(expert_of_row(a.offsets, a.experts, row)) : 0U;
  const uint32_t stream = a.stream + expert * a.stream_step;
  for (int64_t j = thread_index() * count; j < a.n; j += 256 * count) {
    Floats<count> values;
    if constexpr (V == 1) {
      for (int i = 0; i < count; ++i) values.at[i] = j + i < a.n ? to_float(x[j + i]) : 0.0F;
    } else {
      values = load_floats<count>(x + j);
    }
    for (int begin = 0; begin < count; begin += 4) {
      const Words words = philox({{static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32),
                                   a.first_block + static_cast<uint32_t>((j + begin) / 4), stream}},
                                 a.key_low, a.key_high);
      for (int i = 0; i < 4; ++i) {
        float& value = values.at[begin + i];
        value = (words.at[i] >> 8) >= a.drop_below ? value * a.factor : 0.0F;
      }
    }
    if constexpr (V == 1) {
      for (int i = 0; i < count; ++i) {
        if (j + i < a.n) y[j + i] = from_float<T>(values.at[i]);
      }
    } else {
      store_floats(y + j, values);
    }
  }
}

}  // namespace

GPU_KERNEL_BODY_PACKS(dropout, DropoutArgs, drop)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <cmath>

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/elementwise.h"

namespace ingot::gpu {
namespace {

DropoutArgs args_of(const Tensor& y, const Tensor& x, const Tensor& rows, const ops::DropoutAttributes& attributes) {
  const auto probability = static_cast<double>(attributes.probability);
  return {.y = y.data,
          .x = x.data,
          .rows = rows.as<int64_t>(),
          .key_low = static_cast<uint32_t>(attributes.seed),
          .key_high = static_cast<uint32_t>(attributes.seed >> 32) ^ static_cast<uint32_t>(attributes.stream >> 32),
          .stream = static_cast<uint32_t>(attributes.stream),
          .first_block = static_cast<uint32_t>(attributes.first_column / 4),
          // Keep if uniform >= p. Both are multiples of 2^-24 once p is rounded up to one.
          .drop_below = static_cast<uint32_t>(std::ceil(probability * 0x1p24)),
          .factor = static_cast<float>(1.0 / (1.0 - probability)),
          .n = x.shape[1],
          .token_of_row = nullptr,
          .offsets = nullptr,
          .stream_step = 0,
          .experts = 0};
}

void run(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& rows,
         ops::DropoutAttributes attributes) {
  launch(context, of_rows(dropout, x.shape[1], {y, x}), {x.shape[0]}, args_of(y, x, rows, attributes));
}

void run_grouped(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& rows,
                 const Tensor& token_of_row, const Tensor& offsets, ops::DropoutAttributes attributes,
                 int64_t stream_step) {
  DropoutArgs args = args_of(y, x, rows, attributes);
  args.token_of_row = token_of_row.as<int32_t>();
  args.offsets = offsets.as<int32_t>();
  args.stream_step = static_cast<uint32_t>(stream_step);
  args.experts = static_cast<int>(offsets.shape[0] - 1);
  launch(context, of_rows(dropout, x.shape[1], {y, x}), {x.shape[0]}, args);
}

}  // namespace

void register_dropout(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Dropout>(kind, "simt", run);
  registry.add<ops::GroupedDropout>(kind, "simt", run_grouped);
}

}  // namespace ingot::gpu
#endif

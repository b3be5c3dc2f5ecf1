#include "backend/gpu/elementwise/elements.h"

namespace ingot::gpu {

struct AddFixedArgs {
  int64_t* sum;
  float* parts;  // max |x| of each block
  const float* x;
  const int32_t* range;
  int bits;
  bool accumulate;
  int64_t n;
};

struct LargestArgs {
  float* largest;
  const float* parts;
  int64_t n;
  bool accumulate;
};

struct FixedToFloatArgs {
  float* y;
  const int64_t* sum;
  const float* largest;
  const int32_t* range;
  int bits;
  int64_t n;
};

struct NextRangesArgs {
  int32_t* range;
  const float* largest;
  int64_t n;
};

constexpr int fixed_sum_elements = 16;  // elements per thread of add_fixed

}  // namespace ingot::gpu

GPU_KERNEL(add_fixed, AddFixedArgs, 256)
GPU_KERNEL(largest_of_blocks, LargestArgs, 256)
GPU_KERNEL(fixed_to_float, FixedToFloatArgs, 256)
GPU_KERNEL(next_ranges, NextRangesArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

struct LargestStorage {
  float of_warps[8];
};

GPU_FN uint32_t magnitude_bits(float x) { return bits_of<uint32_t>(x) & 0x7fffffffU; }
GPU_FN float magnitude(float x) {  // infinity if x is NaN
  const uint32_t bits = magnitude_bits(x);
  return bits_of<float>(bits < 0x7f800000U ? bits : 0x7f800000U);
}
// The smallest e with |x| < 2^e; -126 for subnormal numbers.
GPU_FN int exponent_of(float x) { return static_cast<int>(magnitude_bits(x) >> 23) - 126; }

// True if x is finite and below 2^range in magnitude.
GPU_FN bool in_range(float x, int range) { return magnitude_bits(x) < 0x7f800000U && exponent_of(x) <= range; }

// x * 2^power rounded to nearest, ties to even, in integer arithmetic only; |x| * 2^power must be below 2^62.
GPU_FN int64_t fixed_point(float x, int power) {
  const uint32_t bits = magnitude_bits(x);
  const auto biased = static_cast<int>(bits >> 23);
  const int64_t mantissa = (bits & 0x7fffffU) | (biased > 0 ? 0x800000U : 0U);
  const int shift = (biased > 0 ? biased : 1) - 150 + power;
  int64_t value;
  if (shift >= 0) {
    value = mantissa << shift;
  } else if (shift < -25) {
    value = 0;
  } else {
    const int64_t half = int64_t{1} << (-shift - 1);
    const int64_t odd = (mantissa >> -shift) & 1;
    value = (mantissa + half - 1 + odd) >> -shift;
  }
  return x < 0 ? -value : value;
}

GPU_FN void add(const AddFixedArgs& a) {
  GPU_SHARED(LargestStorage, shared);
  const int range = *a.range;
  const int64_t first = static_cast<int64_t>(block_index()) * 256 * fixed_sum_elements + thread_index();
  float largest = 0;
  for (int i = 0; i < fixed_sum_elements; ++i) {
    const int64_t at = first + i * 256;
    if (at >= a.n) break;
    const float x = a.x[at];
    const float size = magnitude(x);
    largest = size > largest ? size : largest;
    const int64_t value = in_range(x, range) ? fixed_point(x, a.bits - range) : 0;
    a.sum[at] = a.accumulate ? a.sum[at] + value : value;
  }
  largest = block_max<256>(largest, shared.of_warps);
  if (thread_index() == 0) a.parts[block_index()] = largest;
}

GPU_FN void find_largest(const LargestArgs& a) {
  GPU_SHARED(LargestStorage, shared);
  float largest = a.accumulate ? *a.largest : 0.0F;
  for (int64_t at = thread_index(); at < a.n; at += 256) largest = a.parts[at] > largest ? a.parts[at] : largest;
  largest = block_max<256>(largest, shared.of_warps);
  if (thread_index() == 0) *a.largest = largest;
}

GPU_FN void to_float(const FixedToFloatArgs& a) {
  const int64_t at = first_element<1>();
  if (at >= a.n) return;
  const int range = *a.range;
  if (!in_range(*a.largest, range)) {
    a.y[at] = not_a_number();
    return;
  }
  // 2^(range - bits), a normal number of fp64
  const auto factor = bits_of<double>(static_cast<uint64_t>(range - a.bits + 1023) << 52);
  a.y[at] = static_cast<float>(static_cast<double>(a.sum[at]) * factor);
}

GPU_FN void set_range(const NextRangesArgs& a) {
  const int64_t at = first_element<1>();
  if (at >= a.n) return;
  const uint32_t bits = magnitude_bits(a.largest[at]);
  if (bits == 0 || bits >= 0x7f800000U) return;
  const int range = exponent_of(a.largest[at]) + 6;
  a.range[at] = range < -88 ? -88 : range;
}

}  // namespace

GPU_KERNEL_BODY(add_fixed, AddFixedArgs) { add(a); }
GPU_KERNEL_BODY(largest_of_blocks, LargestArgs) { find_largest(a); }
GPU_KERNEL_BODY(fixed_to_float, FixedToFloatArgs) { to_float(a); }
GPU_KERNEL_BODY(next_ranges, NextRangesArgs) { set_range(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/fixed_sum.h"
#include "ops/fixed_sum_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

static_assert(ops::fixed_sum_block == 256 * fixed_sum_elements);

void run_add_fixed(Context& context, const Tensor& sum, const Tensor& largest, const Tensor& x, const Tensor& range,
                   int bits, bool accumulate) {
  const Arena::Scope scope(context.scratch);
  const int64_t n = x.elements();
  const int64_t blocks = blocks_of(n, ops::fixed_sum_block);
  auto* parts = static_cast<float*>(context.scratch.allocate_bytes(ops::add_fixed_bytes(n)));
  launch(context, add_fixed, {blocks},
         {sum.as<int64_t>(), parts, x.as<float>(), range.as<int32_t>(), bits, accumulate, n});
  launch(context, largest_of_blocks, {1}, {largest.as<float>(), parts, blocks, accumulate});
}

void run_fixed_to_float(Context& context, const Tensor& y, const Tensor& sum, const Tensor& largest,
                        const Tensor& range, int bits) {
  const int64_t n = y.elements();
  launch(context, fixed_to_float, {blocks_of(n, 256)},
         {y.as<float>(), sum.as<int64_t>(), largest.as<float>(), range.as<int32_t>(), bits, n});
}

void run_next_ranges(Context& context, const Tensor& range, const Tensor& largest) {
  const int64_t n = range.elements();
  launch(context, next_ranges, {blocks_of(n, 256)}, {range.as<int32_t>(), largest.as<float>(), n});
}

}  // namespace

void register_fixed_sum(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::AddFixed>(kind, "simt", run_add_fixed);
  registry.add<ops::FixedToFloat>(kind, "simt", run_fixed_to_float);
  registry.add<ops::NextRanges>(kind, "simt", run_next_ranges);
}

}  // namespace ingot::gpu
#endif

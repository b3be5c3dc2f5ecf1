// Linear layers for few tokens (decoding), bound by the bandwidth for reading the stored weight: y = x W^T with W of
// any storage. Every byte of W is loaded once, 16 at a time, and decoded in shared memory by the warp that loaded it.
//
// A warp has 16 rows of W and processes every `splits`-th span of their columns; the sums of the `splits` warps are
// added in order. With bf16 or f16 activations the 16 rows and the tokens, padded with zeros to 16, form one mma tile:
// with 16 tokens each weight takes part in 32 operations, more than ordinary cores can do in the time that memory needs
// to deliver it, and with fewer tokens the tile costs no more. With f32 activations the ordinary cores multiply. In
// either case tokens do not interact, so that a token's bits do not depend on the number of tokens.
#pragma once

#include "backend/gpu/gemm/block_quant.h"

namespace ingot::gpu {

struct SkinnyGemmArgs {
  void* y;             // [tokens, out]
  const void* addend;  // like y: what is added; y itself to add to it; may be null
  const void* x;       // [tokens, in], rows aligned to 16 bytes
  const void* weight;  // [out, in], aligned to 16 bytes
  int64_t out;
  int in;
  int row_bytes;  // bytes of a row of the weight
  int tokens;     // 1 to 16
  int splits;     // warps that share 16 rows: 1, 2, 4 or 8, at most the block's warps
  bool y_f32;     // y is f32; else it has x's type
};

// Columns that a warp processes at a time: 256 bytes of a plain row, or the elements of the largest block.
constexpr int span_elements(QuantFormat stored) {
  if (stored == QuantFormat::f32) return 64;
  return stored == QuantFormat::bf16 || stored == QuantFormat::f16 ? 128 : 256;
}

}  // namespace ingot::gpu

// The types that models are decoded with: DO(DType of x, StorageType of the weight, x's type in kernels).
#define SKINNY_DECODING_TYPES(DO) \
  DO(f32, f32, float)             \
  DO(bf16, bf16, Bf16)            \
  DO(bf16, q8_0, Bf16)            \
  DO(bf16, q4_0, Bf16)            \
  DO(bf16, q4_k, Bf16)            \
  DO(bf16, q6_k, Bf16)            \
  DO(f16, f16, F16)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

constexpr int skinny_warps = 256 / warp_width;
constexpr int skinny_rows = 16;  // of a warp, and max tokens

// A span of 16 rows in a warp's shared memory. A row may begin at any address at which a unit (block_quant.h) may
// begin. Of each row, the aligned 16-byte chunks that contain any part of it are loaded; the row begins inside the
// first one.
template <QuantFormat S>
struct Span {
  static constexpr int elements = span_elements(S);
  static constexpr int bytes = elements / unit_elements<S> * unit_bytes<S>;
  static constexpr int aligned = (unit_bytes<S> & -unit_bytes<S>) < 16 ? unit_bytes<S> & -unit_bytes<S> : 16;
  static constexpr int chunks = (bytes + 16 - aligned + 15) / 16;
  // Rows that are read together lie in different banks; rows of plain types are read 16 bytes at a time.
  static constexpr int stride = S < QuantFormat::q8_0 ? bytes + 64 : (chunks | 1) * 16;
  static constexpr int shared_bytes = skinny_rows * stride;
  static constexpr int loads = (skinny_rows * chunks + warp_width - 1) / warp_width;

  Bytes16 at[loads];  // the chunks that a lane copies from global to shared memory
};

template <QuantFormat S>
struct SharedStorage {
  alignas(16) uint8_t of_warp[skinny_warps][Span<S>::shared_bytes];
};

// Byte offset of a row's span in the weight. Rows past the last one repeat it.
GPU_FN int64_t row_begin(const SkinnyGemmArgs& a, int64_t row, int column_byte) {
  return (row < a.out ? row : a.out - 1) * a.row_bytes + column_byte;
}

template <QuantFormat S>
GPU_FN Span<S> load_span(const SkinnyGemmArgs& a, int64_t first_row, int span) {
  const auto* weight = static_cast<const uint8_t*>(a.weight);
  const int column_byte = span * Span<S>::bytes;
  const int bytes = a.row_bytes - column_byte < Span<S>::bytes ? a.row_bytes - column_byte : Span<S>::bytes;
  const int64_t total = a.out * a.row_bytes;
  Span<S> loaded;
  GPU_UNROLL
  for (int i = 0; i < Span<S>::loads; ++i) {
    const int index = lane_index() + i * warp_width;
    loaded.at[i] = {};
    if (index >= skinny_rows * Span<S>::chunks) continue;
    const int64_t begin = row_begin(a, first_row + index / Span<S>::chunks, column_byte);
    const int64_t from = begin / 16 * 16 + index % Span<S>::chunks * 16;
    if (from >= begin + bytes) continue;
    loaded.at[i] = from + 16 <= total ? load_streaming(weight + from) : load_first(weight + from, total - from);
  }
  return loaded;
}

template <QuantFormat S>
GPU_FN void store_span(uint8_t* shared, const Span<S>& loaded) {
  GPU_UNROLL
  for (int i = 0; i < Span<S>::loads; ++i) {
    const int index = lane_index() + i * warp_width;
    if (index >= skinny_rows * Span<S>::chunks) continue;
    uint8_t* to = shared + index / Span<S>::chunks * Span<S>::stride + index % Span<S>::chunks * 16;
    *reinterpret_cast<Bytes16*>(to) = loaded.at[i];
  }
}

// A span of a warp's rows in shared memory.
struct SharedSpan {
  const uint8_t* data;
  int64_t first_row;
  int column;  // first column of the span
  int left;    // columns from there to the end of the row
};

template <QuantFormat S>
GPU_FN const uint8_t* row_of(const SkinnyGemmArgs& a, const SharedSpan& span, int row) {
  const uint8_t* at = span.data + row * Span<S>::stride;
  if constexpr (Span<S>::aligned == 16) return at;
  const int column_byte = span.column / unit_elements<S> * unit_bytes<S>;
  return at + static_cast<int>(row_begin(a, span.first_row + row, column_byte) & 15);
}

// 8 weights, from column `element` of the span on.
template <QuantFormat S>
GPU_FN Floats<8> weights_at(const uint8_t* row, int element) {
  return decode_unit<S, 8, Span<S>::aligned>(row + element / unit_elements<S> * unit_bytes<S>,
                                             element % unit_elements<S>);
}
// The same, rounded to T.
template <class T, QuantFormat S>
GPU_FN Bytes16 rounded_weights_at(const uint8_t* row, int element) {
  if constexpr (S == (is_f16<T> ? QuantFormat::f16 : QuantFormat::bf16)) {
    return *reinterpret_cast<const Bytes16*>(row + element * 2);
  } else {
    const Floats<8> values = weights_at<S>(row, element);
    Bytes16 rounded;
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) rounded.at[i] = pack_rounded<T>(values.at[2 * i], values.at[2 * i + 1]);
    return rounded;
  }
}

// A warp's sums for 16 rows and 16 tokens, as its lanes hold them; add() adds a span.
template <class X>
struct Sums {
  MmaAccumulator at = {};

  template <QuantFormat S>
  GPU_FN void add(const SkinnyGemmArgs& a, const SharedSpan& span) {
    const auto* x = static_cast<const X*>(a.x);
    const int end = span.left < Span<S>::elements ? span.left : Span<S>::elements;
    GPU_ROLLED
    for (int first = 0; first < end; first += 32) {
      const MmaLongA weights = mma_long_a([&](int row, int chunk) {
        const int element = first + chunk * 8;
        return element < span.left ? rounded_weights_at<X, S>(row_of<S>(a, span, row), element) : Bytes16{};
      });
      const MmaLongB tokens = mma_long_b([&](int token, int chunk) {
        const int element = first + chunk * 8;
        const bool valid = token < a.tokens && element < span.left;
        return valid ? load_pack<X, 8>(x + static_cast<int64_t>(token) * a.in + span.column + element) : Pack<X, 8>{};
      });
      GPU_UNROLL
      for (int t = 0; t < 32 / mma_k; ++t) mma<X>(at, weights.at[t], tokens.at[t]);
    }
  }
  GPU_FN void store(float* to) {  // [token][row]
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; ++i) to[mma_column(i) * skinny_rows + mma_row(i)] = at.at[i];
  }
};

// Lane l has row l % 16 and every second (with 64 lanes every fourth) group of 8 columns.
template <>
struct Sums<float> {
  float at[skinny_rows] = {};

  template <QuantFormat S>
  GPU_FN void add(const SkinnyGemmArgs& a, const SharedSpan& span) {
    const uint8_t* row = row_of<S>(a, span, lane_index() % skinny_rows);
    const int end = span.left < Span<S>::elements ? span.left : Span<S>::elements;
    for (int element = lane_index() / skinny_rows * 8; element < end; element += warp_width / skinny_rows * 8) {
      const Floats<8> weights = weights_at<S>(row, element);
      const float* x = static_cast<const float*>(a.x) + span.column + element;
      GPU_UNROLL
      for (int t = 0; t < skinny_rows; ++t) {
        if (t < a.tokens) {
          const Floats<8> token = load_floats<8>(x + static_cast<uint32_t>(t * a.in));
          GPU_UNROLL
          for (int i = 0; i < 8; ++i) at[t] = fma(weights.at[i], token.at[i], at[t]);
        }
      }
    }
  }
  GPU_FN void store(float* to) {
    GPU_UNROLL
    for (int t = 0; t < skinny_rows; ++t) {
      float sum = at[t];
      for (int mask = skinny_rows; mask < warp_width; mask *= 2) sum += shuffle_xor(sum, mask);
      if (lane_index() < skinny_rows) to[t * skinny_rows + lane_index()] = sum;
    }
  }
};

// Computes block `block` of y: some groups of 16 rows of the weight.
template <class X, QuantFormat S>
GPU_FN void skinny_gemm(const SkinnyGemmArgs& a, int block) {
  GPU_SHARED(SharedStorage<S>, shared);
  const int groups = skinny_warps / a.splits;  // of 16 rows
  const int64_t first_group = static_cast<int64_t>(block) * groups;
  const int64_t first_row = (first_group + warp_index() / a.splits) * skinny_rows;
  const int spans = (a.in + Span<S>::elements - 1) / Span<S>::elements;
  uint8_t* warp_shared = shared.of_warp[warp_index()];

  Sums<X> sums;
  int span = warp_index() % a.splits;
  Span<S> next = {};
  if (span < spans) next = load_span<S>(a, first_row, span);
  for (; span < spans; span += a.splits) {
    store_span<S>(warp_shared, next);
    if (span + a.splits < spans) next = load_span<S>(a, first_row, span + a.splits);
    warp_barrier();
    const int column = span * Span<S>::elements;
    sums.template add<S>(a, {warp_shared, first_row, column, a.in - column});
    warp_barrier();
  }
  sums.store(reinterpret_cast<float*>(warp_shared));
  block_barrier();

  const int64_t token = thread_index() / skinny_rows;
  for (int group = 0; group < groups; ++group) {
    const int64_t row = (first_group + group) * skinny_rows + thread_index() % skinny_rows;
    if (token >= a.tokens || row >= a.out) continue;
    float sum = 0;
    for (int w = group * a.splits; w < (group + 1) * a.splits; ++w) {
      sum += reinterpret_cast<const float*>(shared.of_warp[w])[thread_index()];
    }
    store_sum<X, 1>(a.y, a.addend, a.y_f32, token * a.out + row, {sum});
  }
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/arch/tuning.h"
#include "backend/gpu/launch.h"
#include "ops/refusal.h"

namespace ingot::gpu {

// A kernel for one of the SKINNY_DECODING_TYPES.
template <class Args>
struct SkinnyDecodingKernel {
  DType x;
  StorageType weight;
  const Kernel<Args>* kernel;
};

// Null where there is none.
template <class Args, size_t count>
const Kernel<Args>* kernel_of(const SkinnyDecodingKernel<Args> (&kernels)[count], DType x, StorageType weight) {
  for (const SkinnyDecodingKernel<Args>& each : kernels) {
    if (each.x == x && each.weight == weight) return each.kernel;
  }
  return nullptr;
}

// Whether a kernel does not support a call. `tokens`: rows that share a weight, at most.
inline bool skinny_declines(const ops::Context& context, const Tensor& x, const Weight& weight, int64_t tokens,
                            bool row_invariant, ops::Refusal refuse) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  if (row_invariant) return refuse("not row-invariant: its summation order differs from the other gemms'");
  if (is_fp8(weight.storage)) return refuse("does not support fp8");
  if (tokens > tuning_of(device_of(context)).skinny_tokens) return refuse("supports few tokens only");
  if (weight.in % 8 != 0 || !aligned(x.data) || !aligned(weight.data))
    return refuse("rows are not aligned to or multiples of 16 bytes");
  return weight.in >= int64_t{1} << 27 && refuse("rows are too long for 32-bit indices");
}

inline SkinnyGemmArgs skinny_args(const ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                                  const void* addend) {
  // For a device, the number of splits depends on the row's length only, and so do the bits.
  const int warps = 256 / device_of(context).warp_width();
  const int64_t spans = blocks_of(weight.in, span_elements(stored_as(weight)));
  int splits = 1;
  while (splits < warps && splits * tuning_of(device_of(context)).skinny_spans < spans) splits *= 2;
  return {.y = y.data,
          .addend = addend,
          .x = x.data,
          .weight = weight.data,
          .out = weight.out,
          .in = static_cast<int>(weight.in),
          .row_bytes = static_cast<int>(row_bytes(weight.storage, weight.in)),
          .tokens = static_cast<int>(x.shape[0]),
          .splits = splits,
          .y_f32 = y.dtype == DType::f32};
}

// Blocks for all rows of the weight.
inline int64_t skinny_blocks(const ops::Context& context, const SkinnyGemmArgs& args) {
  const int warps = 256 / device_of(context).warp_width();
  return blocks_of(args.out, int64_t{16} * warps / args.splits);
}

}  // namespace ingot::gpu
#endif

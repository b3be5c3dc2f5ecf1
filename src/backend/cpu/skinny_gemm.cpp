// Linear layers with few tokens, at memory bandwidth: simd/skinny_gemm.h over slices of the weight's rows.
#include "backend/cpu/simd/skinny_gemm.h"

#include "backend/cpu/decode.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/workspace.h"
#include "ops/linear_group.h"
#include "ops/matmul.h"

namespace ingot::cpu {
namespace {

// With more tokens than this, the gemm engines that pack their operands are faster.
constexpr int64_t max_tokens = 2;

// From this many tokens on, operands are widened before they are multiplied (simd/widened_gemm.h), and at most so many
// rows of a quantised weight are decoded at a time.
constexpr int64_t widened_tokens = 12;
constexpr int64_t widened_rows = 192;

size_t row_bytes_of(const Weight& weight, DType decoded) { return static_cast<size_t>(weight.in) * size_of(decoded); }

// `serves`: whether row-invariant calls with prefer_skinny are accepted, for any number of tokens.
template <bool serves>
bool declines(const ops::Context&, const Tensor&, const Tensor& x, const Weight& weight,
              ops::LinearAttributes attributes, ops::Refusal refuse) {
  if (!in_place(weight, x.dtype) && row_bytes_of(weight, x.dtype) > thread_workspace) {
    return refuse("a decoded row of the weight does not fit into the workspace");
  }
  if (attributes.row_invariant) {
    if (serves && attributes.prefer_skinny) return false;
    return refuse("not row-invariant: its summation order differs from the other gemms'");
  }
  return x.shape[0] > max_tokens && refuse("supports one or two tokens only");
}

// Rows [lo, hi) of the weight. T is the type of the activations, to which the weight is decoded.
template <class T, const SkinnyGemmKernels& K, const ElementwiseKernels& E, RowOrder order>
void multiply_rows(const Tensor& y, const Tensor& x, const Weight& weight, int64_t lo, int64_t hi, bool accumulate,
                   std::span<std::byte> workspace) {
  const auto put = [&](auto kernel, int64_t row, int64_t rows, const auto* data) {
    float* y_float = y.dtype == DType::f32 ? y.as<float>() + row : nullptr;
    T* y_typed = y.dtype == DType::f32 ? nullptr : elements<T>(y) + row;
    kernel(y_float, y_typed, weight.out, elements<T>(x), data, x.shape[0], rows, weight.in, accumulate, order);
  };
  WorkspaceArrays arrays(workspace);
  const size_t row_bytes = row_bytes_of(weight, x.dtype);
  float* pack = nullptr;
  constexpr size_t pack_bytes = WorkspaceArrays::footprint(widened_gemm_pack * sizeof(float));
  if (std::is_same_v<T, Bf16> && K.widened != nullptr && x.shape[0] >= widened_tokens &&
      pack_bytes + row_bytes <= workspace.size()) {
    pack = arrays.take<float>(widened_gemm_pack);
  }
  const auto multiply = [&](int64_t row, int64_t rows, const void* data) {
    if constexpr (std::is_same_v<T, Bf16>) {
      if (pack != nullptr) {
        float* y_float = y.dtype == DType::f32 ? y.as<float>() + row : nullptr;
        Bf16* y_bf16 = y.dtype == DType::f32 ? nullptr : bf16(y) + row;
        return K.widened(y_float, y_bf16, weight.out, bf16(x), static_cast<const Bf16*>(data), x.shape[0], rows,
                         weight.in, accumulate, pack);
      }
    }
    put(of_type<T>(K.skinny_gemm), row, rows, static_cast<const T*>(data));
  };
  if (in_place(weight, x.dtype)) return multiply(lo, hi - lo, weight.slice(lo, hi).data);
  if constexpr (std::is_same_v<T, Bf16>) {
    BlockSkinnyGemm* blocks = weight.storage == StorageType::q8_0   ? K.q8
                              : weight.storage == StorageType::q4_0 ? K.q4
                                                                    : nullptr;
    if (blocks != nullptr && x.shape[0] <= K.tile_tokens) return put(blocks, lo, hi - lo, weight.slice(lo, hi).data);
  }
  const size_t room = workspace.size() - (pack == nullptr ? 0 : pack_bytes);
  const size_t max_rows = pack == nullptr ? 16 : widened_rows;
  const auto at_once = static_cast<int64_t>(std::clamp(room / std::max<size_t>(1, row_bytes), size_t{1}, max_rows));
  auto* decoded = arrays.take<std::byte>(at_once * static_cast<int64_t>(row_bytes));
  for (int64_t row = lo; row < hi; row += at_once) {
    const int64_t rows = std::min(at_once, hi - row);
    for (int64_t i = 0; i < rows; ++i) {
      decode_row(E, weight, row + i, decoded + static_cast<size_t>(i) * row_bytes, x.dtype);
    }
    multiply(row, rows, decoded);
  }
}

template <bool serves>
bool declines_group(const ops::Context& context, std::span<const Tensor> y, const Tensor& x,
                    std::span<const Weight> weights, ops::LinearGroupAttributes attributes, ops::Refusal refuse) {
  if (attributes.int8_activations) return refuse("does not round activations to 8 bits");
  for (size_t i = 0; i < weights.size(); ++i) {
    if (declines<serves>(context, y[i], x, weights[i], attributes.linear, refuse)) return true;
  }
  return false;
}

template <const SkinnyGemmKernels& K, const ElementwiseKernels& E, RowOrder order>
void run_group(ops::Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
               ops::LinearGroupAttributes attributes) {
  const Weight& first = weights.front();
  const int64_t rows = num_rows(weights);
  const int64_t grain = weight_row_grain(rows, first.in, row_bytes(first.storage, first.in), x.shape[0],
                                         context.threads->threads(), K.widened != nullptr && x.dtype == DType::bf16);
  const ThreadPool::Workspace workspace(*context.threads);
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, rows, grain, [&](int64_t begin, int64_t end, int thread) {
      for_each_weight(weights, begin, end, [&](size_t i, int64_t lo, int64_t hi) {
        multiply_rows<T, K, E, order>(y[i], x, weights[i], lo, hi, attributes.linear.accumulate, workspace.of(thread));
      });
    });
  });
}

template <const SkinnyGemmKernels& K, const ElementwiseKernels& E, RowOrder order>
void run_skinny_gemm(ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                     ops::LinearAttributes attributes) {
  run_group<K, E, order>(context, std::span(&y, 1), x, std::span(&weight, 1), {.linear = attributes});
}

// Calls add for the kernels of the level and the order of rows.
template <const SkinnyGemmKernels& K, const ElementwiseKernels& E, bool serves, class Add>
void add_in_order(RowOrder order, Add add) {
  switch (order) {
    case RowOrder::streams: return add.template operator()<K, E, RowOrder::streams, serves>();
    case RowOrder::interleaved: return add.template operator()<K, E, RowOrder::interleaved, serves>();
    case RowOrder::prefetched: return add.template operator()<K, E, RowOrder::prefetched, serves>();
  }
}

template <class Add>
void add_best(Levels levels, Add add) {
#if defined(INGOT_SIMD_X86)
  // `serves` only with AVX-512 and no AMX: AMX tiles are much faster for prompts, and this kernel is much slower with
  // narrower registers, so there the engines that pack are better.
  if (levels.best == Isa::amx)
    return add_in_order<avx512::skinny_gemm_kernels, avx512::elementwise_kernels, false>(levels.row_order, add);
  if (levels.best == Isa::avx512_fma)
    return add_in_order<avx512::skinny_gemm_fma_kernels, avx512::elementwise_kernels, true>(levels.row_order, add);
  if (levels.best >= Isa::avx512)
    return add_in_order<avx512::skinny_gemm_kernels, avx512::elementwise_kernels, true>(levels.row_order, add);
  if (levels.best == Isa::avx2)
    return add_in_order<avx2::skinny_gemm_kernels, avx2::elementwise_kernels, false>(levels.row_order, add);
#endif
  add_in_order<plain::skinny_gemm_kernels, plain::elementwise_kernels, false>(levels.row_order, add);
}

}  // namespace

void register_skinny_gemm(ops::Registry& registry, Levels levels) {
  add_best(levels, [&]<const SkinnyGemmKernels & K, const ElementwiseKernels & E, RowOrder order, bool serves>() {
    registry.add<ops::Linear>(DeviceKind::cpu, "dot", run_skinny_gemm<K, E, order>, declines<serves>);
  });
}

void register_skinny_group(ops::Registry& registry, Levels levels) {
  add_best(levels, [&]<const SkinnyGemmKernels & K, const ElementwiseKernels & E, RowOrder order, bool serves>() {
    registry.add<ops::LinearGroup>(DeviceKind::cpu, "dot", run_group<K, E, order>, declines_group<serves>);
  });
}

}  // namespace ingot::cpu

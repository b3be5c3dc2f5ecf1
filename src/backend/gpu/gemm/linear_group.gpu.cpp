// Linear layers with one input for few tokens, such as the projections to queries, keys and values, in one launch:
// skinny_gemm.h, where each layer has a range of the blocks. For the types that models are decoded with.
#include "backend/gpu/gemm/skinny_gemm.h"

namespace ingot::gpu {

struct SkinnyGroupArgs {
  static constexpr int max_more = 2;
  struct Layer {
    void* y;
    const void* weight;
    int64_t out;
    int first_block;  // past the last one of the grid where there is no such layer
  };
  SkinnyGemmArgs gemm;   // of the first layer
  Layer more[max_more];  // the others, in the order of their blocks
};

}  // namespace ingot::gpu

#define SKINNY_GROUP_KERNEL(X, S, T) GPU_KERNEL(skinny_group_##X##_##S, SkinnyGroupArgs, 256)
SKINNY_DECODING_TYPES(SKINNY_GROUP_KERNEL)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class X, QuantFormat S>
GPU_FN void group(const SkinnyGroupArgs& args) {
  SkinnyGemmArgs a = args.gemm;
  int block = block_index();
  GPU_UNROLL
  for (int i = 0; i < SkinnyGroupArgs::max_more; ++i) {
    const SkinnyGroupArgs::Layer& layer = args.more[i];
    if (block_index() < layer.first_block) continue;
    a.y = layer.y;
    a.weight = layer.weight;
    a.out = layer.out;
    block = block_index() - layer.first_block;
  }
  skinny_gemm<X, S>(a, block);
}

}  // namespace

#define SKINNY_GROUP_BODY(X, S, T) \
  GPU_KERNEL_BODY(skinny_group_##X##_##S, SkinnyGroupArgs) { group<T, QuantFormat::S>(a); }
SKINNY_DECODING_TYPES(SKINNY_GROUP_BODY)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <limits>

#include "backend/gpu/ops.h"
#include "ops/linear_group.h"

namespace ingot::gpu {
namespace {

#define SKINNY_GROUP_ENTRY(X, S, T) {DType::X, StorageType::S, &skinny_group_##X##_##S},
constexpr SkinnyDecodingKernel<SkinnyGroupArgs> kernels[] = {SKINNY_DECODING_TYPES(SKINNY_GROUP_ENTRY)};

bool decline(const ops::Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
             ops::LinearGroupAttributes attributes, ops::Refusal refuse) {
  if (attributes.int8_activations) return refuse("does not round activations to int8");
  if (attributes.linear.accumulate || attributes.linear.residual) return refuse("adds to nothing");
  for (size_t i = 0; i < weights.size(); ++i) {
    if (skinny_declines(context, x, weights[i], x.shape[0], attributes.linear.row_invariant, refuse)) return true;
    if (y[i].dtype != y[0].dtype) return refuse("has one type of results");
    if (weights[i].out == 0 || kernel_of(kernels, x.dtype, weights[i].storage) == nullptr) {
      return refuse("has no kernel for these types");
    }
  }
  return false;
}

// Layers [0, weights.size()) of one storage.
void run_layers(ops::Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights) {
  SkinnyGroupArgs args{.gemm = skinny_args(context, y[0], x, weights[0], nullptr), .more = {}};
  int64_t blocks = skinny_blocks(context, args.gemm);
  for (SkinnyGroupArgs::Layer& layer : args.more) layer.first_block = std::numeric_limits<int>::max();
  for (size_t i = 1; i < weights.size(); ++i) {
    args.more[i - 1] = {y[i].data, weights[i].data, weights[i].out, static_cast<int>(blocks)};
    blocks += skinny_blocks(context, skinny_args(context, y[i], x, weights[i], nullptr));
  }
  launch(context, *kernel_of(kernels, x.dtype, weights[0].storage), {blocks}, args);
}

// Neighbours of one storage together.
void run(ops::Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
         ops::LinearGroupAttributes) {
  for (size_t begin = 0; begin < weights.size();) {
    size_t end = begin + 1;
    while (end < weights.size() && end - begin <= SkinnyGroupArgs::max_more &&
           weights[end].storage == weights[begin].storage) {
      ++end;
    }
    run_layers(context, y.subspan(begin, end - begin), x, weights.subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace

void register_linear_group(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::LinearGroup>(kind, "few", run, decline);
  ops::add_linear_group_joined(registry, kind);
  ops::add_linear_group_apart(registry, kind);
}

}  // namespace ingot::gpu
#endif

// Attention over packed sequences by cuDNN, on Hopper where it takes the call. The backward pass stays ours: cuDNN's is
// either not deterministic or keeps a square of every sequence's length in memory.
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/attention_library.h"
#include "base/error.h"
#include "ops/attention.h"
#include "ops/attention_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

// The library must be told of a longest sequence, and the host knows that of the pack: blocks that find nothing to do
// grow with the sequences. Not measured.
constexpr int64_t most_sequences = 16;

PackedAttention call_of(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& offsets, const ops::AttentionAttributes& attributes) {
  return {.out = out.data,
          .lse = lse ? lse.as<float>() : nullptr,
          .q = q.data,
          .k = k.data,
          .v = v.data,
          .offsets = offsets.as<int32_t>(),
          .tokens = q.shape[0],
          .sequences = offsets.shape[0] - 1,
          .heads = attributes.heads,
          .kv_heads = attributes.kv_heads,
          .d = attributes.head_dim,
          .window = attributes.window,
          .scale = attributes.scale};
}

void run(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
         const Tensor& offsets, ops::AttentionAttributes attributes) {
  GpuDevice& device = device_of(context);
  AttentionLibrary& library = device.attention_library();
  const Arena::Scope scope(context.scratch);
  void* const workspace = context.scratch.take_bytes(ops::attention_library_bytes);
  device.call_library(
      "cuDNN", [&](void* stream) { library.run(call_of(out, lse, q, k, v, offsets, attributes), workspace, stream); });
}

std::string decline(const Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                    const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes) {
  if (context.device.arch() != "sm_90") return "takes sm_90 only";
  if (q.dtype != DType::bf16) return "takes bf16 only";
  if (attributes.softcap > 0) return "a softcap";
  if (attributes.slopes) return "slopes (ALiBi)";
  if (!in_packs(attributes.head_dim, {q, k, v, out})) return "heads that are not whole multiples of 16 bytes";
  const PackedAttention call = call_of(out, lse, q, k, v, offsets, attributes);
  if (call.tokens == 0 || call.sequences == 0) return "an empty batch";
  if (call.sequences > most_sequences) {
    return fmt::format("{} sequences; at most {}, each is given the blocks of the whole pack", call.sequences,
                       most_sequences);
  }
  return device_of(context).attention_library().decline(call);
}

}  // namespace

AttentionLibrary& GpuDevice::attention_library() {
  throw_error(ErrorKind::internal, "{} has no vendor's attention", name());
}

void register_vendor_attention(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::cuda) registry.add<ops::Attention>(kind, "cudnn", run, decline);
}

}  // namespace ingot::gpu

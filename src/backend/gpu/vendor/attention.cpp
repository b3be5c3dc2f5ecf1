// Attention over packed sequences by cuDNN, on Hopper, where cuDNN supports the call. The backward pass uses our own
// kernels: cuDNN's is either not deterministic or needs memory that is quadratic in the length of every sequence.
#include "ops/attention.h"

#include <fmt/format.h>

#include "backend/gpu/attention/sequence_tables.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/attention_library.h"
#include "base/error.h"
#include "ops/attention_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

// cuDNN needs an upper bound of the sequence length, and the host only knows the length of the whole pack. So thread
// blocks for the whole pack are launched for each sequence, and more sequences mean more idle blocks. The limit is an
// estimate, not measured.
constexpr int64_t max_sequences = 16;
constexpr size_t table_bytes = sizeof(int32_t) * (max_sequences + 1);
static_assert(attention_workspace_bytes + 3 * (table_bytes + Arena::alignment) <= ops::attention_library_bytes);

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
  PackedAttention call = call_of(out, lse, q, k, v, offsets, attributes);
  void* const workspace = context.scratch.allocate_bytes(attention_workspace_bytes);
  if (library.needs_tables()) {
    const auto table = [&] { return static_cast<int32_t*>(context.scratch.allocate_bytes(table_bytes)); };
    const SequenceTables tables{.offsets = call.offsets,
                                .lengths = table(),
                                .q_offsets = table(),
                                .kv_offsets = table(),
                                .sequences = call.sequences,
                                .q_row = call.heads * call.d,
                                .kv_row = call.kv_heads * call.d};
    assign_sequence_tables(context, tables);
    call.lengths = tables.lengths;
    call.q_offsets = tables.q_offsets;
    call.kv_offsets = tables.kv_offsets;
  }
  device.run_in_library("cuDNN", [&](void* stream) { library.run(call, workspace, stream); });
}

bool has_reason(const Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                const Tensor& v, const Tensor& offsets, const ops::AttentionAttributes& attributes,
                ops::Refusal refuse) {
  if (context.device.arch() != "sm_90") return refuse("supports sm_90 only");
  if (q.dtype != DType::bf16) return refuse("supports bf16 only");
  if (attributes.first_key) return refuse("does not support keys of a part of the tokens");
  if (q.shape[0] != k.shape[0]) return refuse("does not support queries of a part of the tokens");
  if (attributes.softcap > 0) return refuse("does not support a softcap");
  if (attributes.slopes) return refuse("does not support slopes (ALiBi)");
  if (!is_vectorizable(attributes.head_dim, {q, k, v, out}))
    return refuse("heads are not aligned to multiples of 16 bytes");
  const PackedAttention call = call_of(out, lse, q, k, v, offsets, attributes);
  if (call.tokens == 0 || call.sequences == 0) return refuse("the batch is empty");
  if (call.sequences > max_sequences) {
    return refuse("more than {} sequences: each launches the blocks of the whole pack", max_sequences);
  }
  const std::string_view reason = device_of(context).attention_library().decline(call);
  return !reason.empty() && refuse("{}", reason);
}

bool decline(const Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
             const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes, ops::Refusal refuse) {
  GpuDevice& device = device_of(context);
  if (!device.logs()) return has_reason(context, out, lse, q, k, v, offsets, attributes, refuse);
  std::string reason;
  if (!has_reason(context, out, lse, q, k, v, offsets, attributes, ops::Refusal(reason))) return false;
  const std::string line = fmt::format("{}: our kernels run attention, not cudnn: {}", device.name(), reason);
  device.log_once(line, line);
  return refuse("{}", reason);
}

}  // namespace

AttentionLibrary& GpuDevice::attention_library() {
  throw_error(ErrorKind::internal, "{} has no vendor attention library", name());
}

void register_vendor_attention(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::cuda) registry.add<ops::Attention>(kind, "cudnn", run, decline);
}

}  // namespace ingot::gpu

// The list of all ops. A line has the noun of an op's files and the structs of ops/NOUN.h that name its ops. From it
// follow the ids of ops, the registration functions of every backend (backend/cpu/ops.h, backend/gpu/ops.h), the op
// table (ops/testing/op_table.h) and, through these, docs/support-matrix.md.
#pragma once

#include <cstddef>
#include <cstdint>

// clang-format off
#define INGOT_OP_LIST(NOUN, OP)                                                                                         \
  NOUN(activation) OP(Activate) OP(ActivateBackward)                                                                    \
  NOUN(adamw) OP(Adamw) OP(SumSquares) OP(DecideUpdate)                                                                 \
  NOUN(attention) OP(Attention) OP(AttentionBackward) OP(KvStore) OP(PagedAttention)                                    \
  NOUN(columns) OP(GatherColumns) OP(ScatterColumns)                                                                    \
  NOUN(cross_entropy) OP(CrossEntropy) OP(LogSumExp) OP(SoftmaxGradient)                                                \
  NOUN(elementwise) OP(Add) OP(Scale) OP(Clamp) OP(ClampBackward) OP(Softcap) OP(SoftcapBackward) OP(AddBias)           \
                    OP(AddBiasBackward) OP(Dropout) OP(GroupedDropout)                                                  \
  NOUN(embedding) OP(Embedding) OP(EmbeddingBackward)                                                                   \
  NOUN(fixed_sum) OP(AddFixed) OP(FixedToFloat) OP(NextRanges)                                                          \
  NOUN(glu) OP(Glu) OP(GluJoined) OP(GluBackward)                                                                       \
  NOUN(grouped_linear) OP(GroupedLinear) OP(GroupedLinearBackwardInput) OP(GroupedWeightGradient)                       \
  NOUN(layer_norm) OP(LayerNorm) OP(LayerNormBackward)                                                                  \
  NOUN(linear_fp8) OP(QuantizeFp8) OP(DequantizeFp8) OP(Fp8Scales) OP(GemmFp8) OP(GemmFp8BackwardInput)                 \
  NOUN(linear_glu) OP(LinearGlu)                                                                                        \
  NOUN(linear_group) OP(LinearGroup)                                                                                    \
  NOUN(linear_int8) OP(LinearInt8)                                                                                      \
  NOUN(lora) OP(Lora) OP(GroupedLora)                                                                                   \
  NOUN(matmul) OP(Matmul) OP(Linear) OP(LinearBackwardInput) OP(Dequantize) OP(LinearBias)                              \
               OP(LinearLowRank) OP(LinearLowRankBackwardInput)                                                         \
  NOUN(moe) OP(MoeRoute) OP(MoeRouteBackward) OP(MoeGroup) OP(GatherRows) OP(CombineRows) OP(CombineRowsBackward)       \
  NOUN(momentum) OP(Sgd) OP(Lion)                                                                                       \
  NOUN(muon) OP(MuonMomentum) OP(MuonNormalize) OP(MuonCombine) OP(MuonApply)                                           \
  NOUN(rms_norm) OP(RmsNorm) OP(RmsNormBackward)                                                                        \
  NOUN(rope) OP(Rope)                                                                                                   \
  NOUN(rope_kv_store) OP(RopeKvStore)                                                                                   \
  NOUN(sampling) OP(Sample) OP(InsertSampled)                                                                           \
  NOUN(sum_parts) OP(SumParts)
// clang-format on

// The list's nouns alone, and its ops alone.
#define INGOT_OP_NOTHING(name)
#define INGOT_OP_NOUNS(NOUN) INGOT_OP_LIST(NOUN, INGOT_OP_NOTHING)
#define INGOT_OP_STRUCTS(OP) INGOT_OP_LIST(INGOT_OP_NOTHING, OP)

namespace ingot::ops {

#define INGOT_OP_ID(Op) Op,
enum class OpId : uint16_t { INGOT_OP_STRUCTS(INGOT_OP_ID) };
#undef INGOT_OP_ID

#define INGOT_OP_COUNT(Op) +1
inline constexpr size_t num_ops = 0 INGOT_OP_STRUCTS(INGOT_OP_COUNT);
#undef INGOT_OP_COUNT

// The id of an op's struct: op_id<RmsNorm> is OpId::RmsNorm. Does not compile for a struct that is not in the list.
template <class Op>
struct OpIdOf;
#define INGOT_OP_ID(Op)                     \
  struct Op;                                \
  template <>                               \
  struct OpIdOf<Op> {                       \
    static constexpr OpId value = OpId::Op; \
  };
INGOT_OP_STRUCTS(INGOT_OP_ID)
#undef INGOT_OP_ID
template <class Op>
inline constexpr OpId op_id = OpIdOf<Op>::value;

}  // namespace ingot::ops

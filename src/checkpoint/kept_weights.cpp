#include "checkpoint/kept_weights.h"

#include "base/error.h"
#include "checkpoint/row_codec.h"
#include "spec/block_linear.h"

namespace ingot::checkpoint {

Storage KeptWeights::of(const spec::ParamSpec& p, std::optional<Storage> stored) const {
  const std::optional<Storage> kept = blocks && spec::is_block_linear(p) ? blocks : matrices;
  if (!kept && stored) return *stored;
  if (!kept) throw_error(ErrorKind::internal, "{} has the type that a file gives it", p.name);
  const bool summed = p.role == spec::Role::position_embedding || p.role == spec::Role::router;
  return summed && is_block(*kept) ? Storage::f32 : *kept;
}

bool KeptWeights::decoded(DType activation) const { return blocks || matrices != storage_of(activation); }

std::optional<KeptWeights> kept_weights(const std::string& word, DType activation) {
  const Storage own = storage_of(activation);
  if (word == "auto") return KeptWeights{own, {}};
  if (word == "stored") return KeptWeights{};
  if (word == "bf16") return KeptWeights{Storage::bf16, {}};
  if (word == "fp16") return KeptWeights{Storage::f16, {}};
  if (word == "fp32") return KeptWeights{Storage::f32, {}};
  if (word == "int8") return KeptWeights{Storage::q8_0, {}};
  if (word == "int4") return KeptWeights{Storage::q8_0, Storage::q4_0};
  if (word == "fp8") return KeptWeights{own, Storage::fp8_e4m3};
  return std::nullopt;
}

}  // namespace ingot::checkpoint

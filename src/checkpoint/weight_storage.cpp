#include "checkpoint/weight_storage.h"

#include "base/error.h"
#include "checkpoint/row_codec.h"
#include "spec/block_linear.h"

namespace ingot::checkpoint {

StorageType WeightStorage::of(const spec::ParamSpec& p, std::optional<StorageType> stored) const {
  const std::optional<StorageType> storage = blocks && spec::is_block_linear(p) ? blocks : matrices;
  if (!storage && stored) return *stored;
  if (!storage)
    throw_error(ErrorKind::internal, "the storage type of {} is that of its file, but there is no file", p.name);
  return p.precise && is_block(*storage) ? StorageType::f32 : *storage;
}

bool WeightStorage::decoded(DType activation) const { return blocks || matrices != storage_of(activation); }

std::optional<WeightStorage> weight_storage(const std::string& word, DType activation) {
  const StorageType activation_storage = storage_of(activation);
  if (word == "auto") return WeightStorage{activation_storage, {}};
  if (word == "stored") return WeightStorage{};
  if (word == "bf16") return WeightStorage{StorageType::bf16, {}};
  if (word == "fp16") return WeightStorage{StorageType::f16, {}};
  if (word == "fp32") return WeightStorage{StorageType::f32, {}};
  if (word == "int8") return WeightStorage{StorageType::q8_0, {}};
  if (word == "int4") return WeightStorage{StorageType::q8_0, StorageType::q4_0};
  if (word == "fp8") return WeightStorage{activation_storage, StorageType::fp8_e4m3};
  return std::nullopt;
}

}  // namespace ingot::checkpoint

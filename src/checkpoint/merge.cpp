#include <algorithm>

#include "base/error.h"
#include "checkpoint/adapter.h"
#include "checkpoint/row_codec.h"

namespace ingot::checkpoint {

namespace {

std::vector<float> to_f32(const Tensor& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.elements()));
  decode_row(storage_of(matrix.dtype), matrix.data, matrix.elements(), values.data());
  return values;
}

}  // namespace

void merge_adapter(WeightSet& weights, Device& device, const AdapterFile& adapter, double sign, ThreadPool* pool) {
  const auto scale = static_cast<float>(sign * adapter.lora.factor());
  for (const AdapterModule& module : adapter.modules) {
    const Weight& weight = weights.parameters.at(module.param.base).matrix;
    if (!device.host_visible() || (weight.storage != Storage::f32 && weight.storage != Storage::bf16)) {
      throw_hint(ErrorKind::unsupported, "load the model in f32 or bf16 on the CPU to merge",
                 "layer '{}', {} on {}, cannot take an adapter in", module.param.module, weight.text(), device.name());
    }
  }
  for (const AdapterModule& module : adapter.modules) {
    const Weight& weight = weights.parameters[module.param.base].matrix;
    const std::vector<float> a = to_f32(module.a);
    const std::vector<float> b = to_f32(module.b);
    const int64_t rank = module.param.rank;
    const size_t bytes = row_bytes(weight.storage, weight.in);
    auto* data = static_cast<std::byte*>(const_cast<void*>(weight.data));  // writable by contract
    const auto merge_rows = [&](int64_t begin, int64_t end) {
      std::vector<float> delta(static_cast<size_t>(weight.in));
      std::vector<float> row(static_cast<size_t>(weight.in));
      for (int64_t o = begin; o < end; ++o) {
        std::fill(delta.begin(), delta.end(), 0.0F);
        for (int64_t r = 0; r < rank; ++r) {
          const float factor = b[static_cast<size_t>(o * rank + r)];
          const float* a_row = a.data() + r * weight.in;
          for (size_t i = 0; i < delta.size(); ++i) delta[i] += factor * a_row[i];
        }
        std::byte* stored = data + static_cast<size_t>(o) * bytes;
        decode_row(weight.storage, stored, weight.in, row.data());
        for (size_t i = 0; i < row.size(); ++i) row[i] += scale * delta[i];
        encode_row(weight.storage, row.data(), weight.in, stored);
      }
    };
    if (pool != nullptr) {
      pool->parallel_for(0, weight.out, std::max<int64_t>(1, (1 << 16) / (weight.in * rank)), merge_rows);
    } else {
      merge_rows(0, weight.out);
    }
  }
}

}  // namespace ingot::checkpoint

#include <algorithm>
#include <cmath>
#include <cstring>

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

double row_norm(const std::vector<float>& row) {
  double sum = 0;
  for (float value : row) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

std::byte* writable(const void* data) { return static_cast<std::byte*>(const_cast<void*>(data)); }

// Merges an adapter into rows [begin, end) of a layer's weight.
struct LayerMerge {
  const AdapterModule& module;
  const Weight& weight;
  std::vector<float> a, b, magnitude;
  float factor;

  void rows(int64_t begin, int64_t end) const {
    const size_t bytes = row_bytes(weight.storage, weight.in);
    std::vector<float> delta(static_cast<size_t>(weight.in));
    std::vector<float> row(static_cast<size_t>(weight.in));
    for (int64_t o = begin; o < end; ++o) {
      std::fill(delta.begin(), delta.end(), 0.0F);
      for (int64_t r = 0; r < module.param.rank; ++r) {
        const float left = b[static_cast<size_t>(o * module.param.rank + r)];
        const float* right = a.data() + r * weight.in;
        for (size_t i = 0; i < delta.size(); ++i) delta[i] += left * right[i];
      }
      std::byte* stored = writable(weight.data) + static_cast<size_t>(o) * bytes;
      decode_row(weight.storage, stored, weight.in, row.data());
      for (size_t i = 0; i < row.size(); ++i) row[i] += factor * delta[i];
      if (!magnitude.empty()) scale_to(row, magnitude[static_cast<size_t>(o)]);
      encode_row(weight.storage, row.data(), weight.in, stored);
    }
  }

  // A row of zeros is left as it is, whatever the magnitude.
  static void scale_to(std::vector<float>& row, float norm) {
    const double now = row_norm(row);
    if (now == 0) return;
    const auto scale = static_cast<float>(static_cast<double>(norm) / now);
    for (float& value : row) value *= scale;
  }
};

void replace(const Parameter& parameter, const SavedParameter& saved) {
  const std::vector<float> values = to_f32(saved.values);
  if (!parameter.matrix) {
    std::memcpy(parameter.vector.data, values.data(), values.size() * sizeof(float));
    return;
  }
  const Weight& weight = parameter.matrix;
  const size_t bytes = row_bytes(weight.storage, weight.in);
  std::vector<float> row(static_cast<size_t>(weight.in));
  for (int64_t o = 0; o < weight.out; ++o) {
    for (int64_t i = 0; i < weight.in; ++i) {
      row[static_cast<size_t>(i)] =
          values[static_cast<size_t>(saved.transposed ? i * weight.out + o : o * weight.in + i)];
    }
    encode_row(weight.storage, row.data(), weight.in, writable(weight.data) + static_cast<size_t>(o) * bytes);
  }
}

void check_writable(const Parameter& parameter, const Device& device, const std::string& what) {
  const Weight& weight = parameter.matrix;
  const bool plain = !weight || is_plain(weight.storage);
  if (device.host_visible() && plain) return;
  throw_hint(ErrorKind::unsupported, "load the model in f32, bf16 or f16 on the CPU to merge",
             "cannot merge an adapter into layer '{}', {} on {}", what, weight ? weight.text() : "a vector",
             device.name());
}

}  // namespace

void merge_adapter(WeightSet& weights, Device& device, const AdapterFile& adapter, double sign, ThreadPool* pool) {
  if (sign < 0 && adapter.replaces_weights()) {
    throw_error(ErrorKind::usage, "an adapter that replaces weights (DoRA, modules_to_save) cannot be unmerged");
  }
  for (const AdapterModule& module : adapter.modules) {
    check_writable(weights.parameters.at(module.param.base), device, module.param.module);
  }
  for (const SavedParameter& saved : adapter.saved) {
    check_writable(weights.parameters.at(saved.base), device, "of modules_to_save");
  }
  for (const AdapterModule& module : adapter.modules) {
    const Weight& weight = weights.parameters[module.param.base].matrix;
    const LayerMerge merge{module,
                           weight,
                           to_f32(module.a),
                           to_f32(module.b),
                           module.magnitude ? to_f32(module.magnitude) : std::vector<float>{},
                           static_cast<float>(sign) * module.factor};
    if (pool != nullptr) {
      const int64_t grain = std::max<int64_t>(1, (1 << 16) / (weight.in * module.param.rank));
      pool->parallel_for(0, weight.out, grain, [&](int64_t begin, int64_t end) { merge.rows(begin, end); });
    } else {
      merge.rows(0, weight.out);
    }
  }
  for (const SavedParameter& saved : adapter.saved) replace(weights.parameters[saved.base], saved);
}

}  // namespace ingot::checkpoint

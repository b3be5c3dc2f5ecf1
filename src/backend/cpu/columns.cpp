#include "ops/columns.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// Calls body(address in `wide`, address in `narrow`, bytes) for every token's group of columns (ops/columns.h).
template <class Body>
void each_group(Context& context, const Tensor& wide, const Tensor& narrow, const ops::ColumnsAttributes& attributes,
                Body body) {
  const size_t size = size_of(wide.dtype);
  const auto at = [size](const Tensor& tensor, int64_t element) {
    return static_cast<std::byte*>(tensor.data) + static_cast<size_t>(element) * size;
  };
  const size_t bytes = static_cast<size_t>(attributes.width) * size;
  context.threads->parallel_for(0, wide.shape[0], row_grain(narrow.shape[1]), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      for (int64_t g = 0; g < attributes.groups; ++g) {
        body(at(wide, t * wide.shape[1] + g * attributes.stride + attributes.offset),
             at(narrow, t * narrow.shape[1] + g * attributes.width), bytes);
      }
    }
  });
}

void run_gather(Context& context, std::span<const Tensor> y, const Tensor& x,
                std::span<const ops::ColumnsAttributes> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    each_group(context, x, y[i], parts[i],
               [](const std::byte* wide, std::byte* narrow, size_t bytes) { std::memcpy(narrow, wide, bytes); });
  }
}

void run_scatter(Context& context, const Tensor& x, std::span<const Tensor> y,
                 std::span<const ops::ColumnsAttributes> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    each_group(context, x, y[i], parts[i],
               [](std::byte* wide, const std::byte* narrow, size_t bytes) { std::memcpy(wide, narrow, bytes); });
  }
}

int64_t column_of(const ops::ColumnsAttributes& attributes, int64_t narrow) {
  return narrow / attributes.width * attributes.stride + attributes.offset + narrow % attributes.width;
}

void reference_gather(Context&, std::span<const Tensor> y, const Tensor& x,
                      std::span<const ops::ColumnsAttributes> parts) {
  for (size_t part = 0; part < parts.size(); ++part) {
    const int64_t n = y[part].shape[1];
    for (int64_t i = 0; i < y[part].elements(); ++i)
      set_element(y[part], i, element(x, i / n * x.shape[1] + column_of(parts[part], i % n)));
  }
}

void reference_scatter(Context&, const Tensor& x, std::span<const Tensor> y,
                       std::span<const ops::ColumnsAttributes> parts) {
  for (size_t part = 0; part < parts.size(); ++part) {
    const int64_t n = y[part].shape[1];
    for (int64_t i = 0; i < y[part].elements(); ++i)
      set_element(x, i / n * x.shape[1] + column_of(parts[part], i % n), element(y[part], i));
  }
}

}  // namespace

void register_columns(ops::Registry& registry, Levels) {
  registry.add<ops::GatherColumns>(DeviceKind::cpu, "plain", run_gather);  // only copies: no SIMD variants
  registry.add<ops::GatherColumns>(DeviceKind::cpu, "reference", reference_gather);
  registry.add<ops::ScatterColumns>(DeviceKind::cpu, "plain", run_scatter);
  registry.add<ops::ScatterColumns>(DeviceKind::cpu, "reference", reference_scatter);
}

}  // namespace ingot::cpu

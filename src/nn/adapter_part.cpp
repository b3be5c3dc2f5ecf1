#include "nn/adapter_part.h"

#include <cstring>

#include "base/error.h"
#include "tensor/arena.h"

namespace ingot::nn {

namespace {

spec::HeldAdapter part_of(const LoraWeights& layer, const spec::HeldParameter& base) {
  return spec::held_adapter({"", base.whole, layer.a.shape[0], layer.a.shape[1], layer.b.shape[0]}, base);
}

Shape shape_of(const spec::Slice& slice) { return Shape{slice.num_rows(), slice.columns.count()}; }

void copy_slice(const Tensor& to, const Tensor& whole, const spec::Slice& slice) {
  if (whole.device != nullptr && !whole.device->host_visible())
    throw_error(ErrorKind::internal, "an adapter that is to be divided is not in host memory");
  const auto size = static_cast<int64_t>(size_of(whole.dtype));
  spec::for_runs(slice, whole.shape[1], [&](int64_t first, int64_t count, int64_t at) {
    std::memcpy(static_cast<std::byte*>(to.data) + at * size, static_cast<const std::byte*>(whole.data) + first * size,
                static_cast<size_t>(count * size));
  });
}

}  // namespace

Adapter adapter_part(const Adapter& whole, std::span<const spec::HeldParameter> held,
                     FunctionRef<Tensor(DType, const Shape&)> allocate) {
  Adapter part{.factor = whole.factor, .dropout = whole.dropout, .layers = {}};
  part.layers.resize(whole.layers.size());
  for (const spec::HeldParameter& base : held) {
    const LoraWeights& from = whole.layers[base.whole];
    if (!from.a) continue;
    const spec::HeldAdapter slices = part_of(from, base);
    LoraWeights& to = part.layers[base.whole];
    to.a = allocate(from.a.dtype, shape_of(slices.a.slice));
    to.b = allocate(from.b.dtype, shape_of(slices.b.slice));
    copy_slice(to.a, from.a, slices.a.slice);
    copy_slice(to.b, from.b, slices.b.slice);
  }
  return part;
}

size_t adapter_part_bytes(const Adapter& whole, std::span<const spec::HeldParameter> held) {
  size_t bytes = 0;
  for (const spec::HeldParameter& base : held) {
    const LoraWeights& layer = whole.layers[base.whole];
    if (!layer.a) continue;
    const spec::HeldAdapter slices = part_of(layer, base);
    bytes += Arena::footprint(layer.a.dtype, shape_of(slices.a.slice)) +
             Arena::footprint(layer.b.dtype, shape_of(slices.b.slice));
  }
  return bytes;
}

}  // namespace ingot::nn

#include "infer/adapter_part.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "infer/engine_link.h"
#include "tensor/arena.h"

namespace ingot::infer {

namespace {

void require_on_host(const Tensor& tensor) {
  if (tensor.device != nullptr && !tensor.device->host_visible())
    throw_error(ErrorKind::internal, "an adapter that ranks share is not in host memory");
}

// The slice of a matrix with rows of `width`, at `to`.
Tensor copied(const Tensor& whole, const spec::Slice& slice, std::byte* to) {
  require_on_host(whole);
  const auto size = static_cast<int64_t>(size_of(whole.dtype));
  const auto* from = static_cast<const std::byte*>(whole.data);
  spec::for_runs(slice, whole.shape[1], [&](int64_t first, int64_t count, int64_t at) {
    std::memcpy(to + at * size, from + first * size, static_cast<size_t>(count * size));
  });
  return {to, whole.dtype, Shape{slice.num_rows(), slice.columns.count()}, nullptr};
}

struct PackedLayer {
  int64_t parameter = 0, rank = 0, in = 0, out = 0;
};

}  // namespace

std::shared_ptr<const HostAdapter> adapter_part(const HostAdapter& whole, std::span<const spec::HeldParameter> held) {
  struct Part {
    size_t parameter;
    spec::HeldAdapter adapter;
  };
  std::vector<Part> parts;
  size_t bytes = 0;
  for (const spec::HeldParameter& base : held) {
    const nn::LoraWeights& layer = whole.weights.layers[base.whole];
    if (!layer.a) continue;
    const spec::LoraParam adapter{"", base.whole, layer.a.shape[0], layer.a.shape[1], layer.b.shape[0]};
    parts.push_back({base.whole, spec::held_adapter(adapter, base)});
    for (const spec::HeldAdapterMatrix* matrix : {&parts.back().adapter.a, &parts.back().adapter.b})
      bytes += Arena::footprint(static_cast<size_t>(matrix->slice.elements()) * size_of(layer.a.dtype));
  }
  const auto memory = std::make_shared<const HostMemory>(bytes, HostMemory::Pages::small, "an adapter");
  std::byte* next = memory->data();
  const auto take_part = [&](const Tensor& from, const spec::HeldAdapterMatrix& matrix) {
    const Tensor part = copied(from, matrix.slice, next);
    next += Arena::footprint(part.bytes());
    return part;
  };
  nn::Adapter weights;
  weights.factor = whole.weights.factor;
  weights.layers.resize(whole.weights.layers.size());
  for (const Part& part : parts) {
    const nn::LoraWeights& from = whole.weights.layers[part.parameter];
    nn::LoraWeights& layer = weights.layers[part.parameter];
    layer.a = take_part(from.a, part.adapter.a);
    layer.b = take_part(from.b, part.adapter.b);
  }
  const auto made = std::make_shared<HostAdapter>(whole.name, std::move(weights), memory);
  made->identity = whole.identity;
  return made;
}

std::vector<std::byte> pack_adapter(const HostAdapter& adapter) {
  std::vector<std::byte> bytes;
  const auto add = [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  const auto add_value = [&](const auto& value) { add(std::as_bytes(std::span(&value, 1))); };
  std::vector<PackedLayer> packed;
  const std::vector<nn::LoraWeights>& layers = adapter.weights.layers;
  DType type = DType::f32;
  for (size_t p = 0; p < layers.size(); ++p) {
    const auto& [a, b, a_trainable, b_trainable] = layers[p];
    if (!a) continue;
    require_on_host(a);
    type = a.dtype;
    packed.push_back({static_cast<int64_t>(p), a.shape[0], a.shape[1], b.shape[0]});
  }
  add_value(adapter.weights.factor);
  add_value(type);
  add_value(layers.size());
  add_value(packed.size());
  add(bytes_of(packed));
  for (const PackedLayer& layer : packed) {
    for (const Tensor* tensor :
         {&layers[static_cast<size_t>(layer.parameter)].a, &layers[static_cast<size_t>(layer.parameter)].b})
      add({static_cast<const std::byte*>(tensor->data), tensor->bytes()});
  }
  return bytes;
}

std::shared_ptr<const HostAdapter> unpack_adapter(std::span<const std::byte> bytes) {
  nn::Adapter weights;
  weights.factor = take<float>(bytes);
  const auto type = take<DType>(bytes);
  weights.layers.resize(take<size_t>(bytes));
  const auto count = take<size_t>(bytes);
  for (const auto& [parameter, rank, in, out] : take_all<PackedLayer>(bytes, count)) {
    const auto taken = [&](Shape shape) {
      const size_t size = static_cast<size_t>(shape.elements()) * size_of(type);
      return Tensor{const_cast<std::byte*>(take_bytes(bytes, size).data()), type, shape, nullptr};
    };
    nn::LoraWeights& layer = weights.layers.at(static_cast<size_t>(parameter));
    layer.a = taken(Shape{rank, in});
    layer.b = taken(Shape{out, rank});
  }
  return std::make_shared<const HostAdapter>("", std::move(weights), nullptr);
}

}  // namespace ingot::infer

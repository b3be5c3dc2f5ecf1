#include "infer/adapter_message.h"

#include "base/error.h"
#include "infer/engine_link.h"

namespace ingot::infer {

namespace {

void require_on_host(const Tensor& tensor) {
  if (tensor.device != nullptr && !tensor.device->host_visible())
    throw_error(ErrorKind::internal, "an adapter that ranks share is not in host memory");
}

struct PackedLayer {
  int64_t parameter = 0, rank = 0, in = 0, out = 0;
};

}  // namespace

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

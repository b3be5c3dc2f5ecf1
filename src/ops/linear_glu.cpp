#include "ops/linear_glu.h"

#include <array>

#include "base/error.h"
#include "ops/check.h"
#include "ops/linear_int8.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

void run_grouped(Context& context, const Tensor& y, const Tensor& x, const GatedLinears& layers,
                 LinearGluAttributes attributes) {
  const Weight weights[] = {layers.gate, layers.up};
  linear_group(context, layers.tensors(), x, weights, attributes.group);
  glu(context, y, layers.gate_memory, layers.up_memory, attributes.activation);
}

void run_apart(Context& context, const Tensor& y, const Tensor& x, const GatedLinears& layers,
               LinearGluAttributes attributes) {
  const auto run = attributes.group.int8_activations ? linear_int8 : linear;
  run(context, layers.gate_memory, x, layers.gate, attributes.group.linear);
  run(context, layers.up_memory, x, layers.up, attributes.group.linear);
  glu(context, y, layers.gate_memory, layers.up_memory, attributes.activation);
}

// The memory of both layers as one matrix [T, 2 F], which it is if the up layer's is where the gate's ends.
Tensor joined_memory(const GatedLinears& layers) {
  Tensor all = layers.gate_memory;
  all.shape = {all.shape[0], 2 * all.shape[1]};
  return all;
}

bool declines_joined_glu(const Context&, const Tensor&, const Tensor& x, const GatedLinears& layers,
                         LinearGluAttributes attributes, Refusal refuse) {
  if (attributes.group.int8_activations) return refuse("does not round activations to int8");
  if (layers.up_memory.data != static_cast<const std::byte*>(layers.gate_memory.data) + layers.gate_memory.bytes())
    return refuse("needs the layers' memory one after the other");
  return declines_joining(x, std::array{layers.gate, layers.up}, refuse);
}

void run_joined_glu(Context& context, const Tensor& y, const Tensor& x, const GatedLinears& layers,
                    LinearGluAttributes attributes) {
  const Tensor both = joined_memory(layers);
  linear(context, both, x, joined(std::array{layers.gate, layers.up}), attributes.group.linear);
  glu_joined(context, y, both, attributes.activation);
}

}  // namespace

void linear_glu(Context& context, const Tensor& y, const Tensor& x, const GatedLinears& layers,
                LinearGluAttributes attributes) {
  constexpr const char* op = LinearGlu::name;
  check_rank(op, "x", x, 2);
  check(op, "y", context, y, {x.shape[0], layers.gate.out}, {x.dtype});
  const auto check_layer = [&](const Weight& weight, const char* what, const Tensor& memory, const char* memory_name) {
    check_linear(op, context, memory, memory_name, weight.out, x, "x", weight.in, weight, forward_types);
    check(op, memory_name, context, memory, y.shape, {x.dtype});
    if (attributes.group.int8_activations) check_int8_weight(op, weight);
    if (weight.out != layers.gate.out || weight.in != layers.gate.in) {
      throw_error(ErrorKind::internal, "{}: {} is {}, the gate {}", op, what, weight.text(), layers.gate.text());
    }
  };
  check_layer(layers.gate, "gate", layers.gate_memory, "gate_memory");
  check_layer(layers.up, "up", layers.up_memory, "up_memory");
  const LinearAttributes& linear = attributes.group.linear;
  if (linear.accumulate || linear.residual) throw_error(ErrorKind::internal, "{}: a sum", op);
  if (y.elements() != 0) dispatch<LinearGlu>(context, y, x, layers, attributes);
}

OpWork LinearGlu::work(const Tensor& y, const Tensor& x, const GatedLinears& layers, LinearGluAttributes) {
  OpWork work{.bytes = static_cast<double>(x.bytes() + y.bytes()), .wide = x.dtype == DType::f32};
  for (const Weight& weight : {layers.gate, layers.up}) {
    work.bytes += static_cast<double>(row_bytes(weight.storage, weight.in)) * static_cast<double>(weight.out);
  }
  work.gemm = {x.shape[0], 2 * layers.gate.out, x.shape[1]};
  return work;
}

void add_linear_glu_joined(Registry& registry, DeviceKind kind) {
  registry.add<LinearGlu>(kind, "joined", run_joined_glu, declines_joined_glu);
}

void add_linear_glu_grouped(Registry& registry, DeviceKind kind) {
  registry.add<LinearGlu>(kind, "grouped", run_grouped);
}

void add_linear_glu_apart(Registry& registry, DeviceKind kind) { registry.add<LinearGlu>(kind, "apart", run_apart); }

}  // namespace ingot::ops

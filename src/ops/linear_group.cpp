#include "ops/linear_group.h"

#include <array>

#include "base/error.h"
#include "ops/check.h"
#include "ops/columns.h"
#include "ops/linear_int8.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

void run_apart(Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
               LinearGroupAttributes attributes) {
  const auto run = attributes.int8_activations ? linear_int8 : linear;
  for (size_t i = 0; i < weights.size(); ++i) run(context, y[i], x, weights[i], attributes.linear);
}

bool declines_joined(const Context&, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
                     LinearGroupAttributes attributes, Refusal refuse) {
  if (weights.size() < 2 || weights.size() > max_column_parts) return refuse("joins two or three layers");
  if (attributes.int8_activations) return refuse("does not round activations to int8");
  if (attributes.linear.accumulate) return refuse("adds to nothing");
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].out == 0) return refuse("has no empty layers");
    if (y[i].dtype != y[0].dtype) return refuse("has one type of results");
  }
  return declines_joining(x, weights, refuse);
}

void run_joined(Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
                LinearGroupAttributes attributes) {
  std::array<ColumnsAttributes, max_column_parts> parts;
  int64_t columns = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    parts[i] = {.width = weights[i].out, .offset = columns};
    columns += weights[i].out;
  }
  const Arena::Scope scope(context.scratch);
  const Tensor all = context.scratch.allocate(y[0].dtype, Shape{x.shape[0], columns});
  linear(context, all, x, joined(weights), attributes.linear);
  gather_columns(context, y, all, std::span(parts).first(weights.size()));
}

}  // namespace

void linear_group(Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
                  LinearGroupAttributes attributes) {
  constexpr const char* op = LinearGroup::name;
  if (weights.empty() || y.size() != weights.size()) {
    throw_error(ErrorKind::internal, "{}: {} results for {} weights", op, y.size(), weights.size());
  }
  if (attributes.linear.residual) throw_error(ErrorKind::internal, "{}: a residual of several results", op);
  for (size_t i = 0; i < weights.size(); ++i) {
    check_linear(op, context, y[i], "y", weights[i].out, x, "x", weights[i].in, weights[i], forward_types);
    if (attributes.int8_activations) check_int8_weight(op, weights[i]);
  }
  if (x.elements() != 0) dispatch<LinearGroup>(context, y, x, weights, attributes);
}

OpWork LinearGroup::work(std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
                         LinearGroupAttributes) {
  OpWork work{.bytes = static_cast<double>(x.bytes()), .wide = x.dtype == DType::f32};
  int64_t out = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    out += weights[i].out;
    work.bytes += static_cast<double>(y[i].bytes());
    if (is_plain(weights[i].storage)) work.bytes += static_cast<double>(weights[i].tensor().bytes());
  }
  work.gemm = {x.shape[0], out, x.shape[1]};
  return work;
}

bool declines_joining(const Tensor& x, std::span<const Weight> weights, Refusal refuse) {
  const void* end = weights.front().data;
  for (const Weight& weight : weights) {
    if (!is_plain(weight.storage) || weight.tensor().dtype != x.dtype) return refuse("has weights of x's type");
    if (weight.data != end) return refuse("needs weights one after the other in memory");
    end = weight.slice(weight.out, weight.out).data;
  }
  return false;
}

Weight joined(std::span<const Weight> weights) {
  Weight all = weights.front();
  for (const Weight& weight : weights.subspan(1)) all.out += weight.out;
  return all;
}

void add_linear_group_joined(Registry& registry, DeviceKind kind) {
  registry.add<LinearGroup>(kind, "joined", run_joined, declines_joined);
}

void add_linear_group_apart(Registry& registry, DeviceKind kind) {
  registry.add<LinearGroup>(kind, "apart", run_apart);
}

}  // namespace ingot::ops

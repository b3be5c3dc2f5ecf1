#include "ops/elementwise.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

struct Named {
  const char* name;
  const Tensor& tensor;
};

// All tensors have the dtype of the first, which is one of `types`, and the same number of elements.
void check_alike(const char* op, const Context& context, const Named& first, std::initializer_list<Named> others,
                 std::initializer_list<DType> types = forward_types) {
  check_dtype(op, first.name, first.tensor, types);
  check_device(op, first.name, context, first.tensor);
  for (const Named& other : others) {
    check_dtype(op, other.name, other.tensor, {first.tensor.dtype});
    check_device(op, other.name, context, other.tensor);
    if (other.tensor.elements() != first.tensor.elements()) {
      throw_error(ErrorKind::internal, "{}: {} is {}, {} is {}: they must have the same number of elements", op,
                  other.name, other.tensor.text(), first.name, first.tensor.text());
    }
  }
}

void check_positive(const char* op, const char* what, float value) {
  if (!(value > 0.0F)) throw_error(ErrorKind::internal, "{}: the {} is {}, it should be above 0", op, what, value);
}

}  // namespace

void add(Context& context, const Tensor& y, const Tensor& a, const Tensor& b) {
  check_alike("add", context, {"y", y}, {{"a", a}, {"b", b}});
  if (y.elements() == 0) return;
  dispatch<Add>(context, y, a, b);
}

void scale(Context& context, const Tensor& y, const Tensor& x, float factor) {
  check_dtype("scale", "y", y, forward_types);
  check_dtype("scale", "x", x, forward_types);
  check_device("scale", "y", context, y);
  check_device("scale", "x", context, x);
  if (x.elements() != y.elements()) {
    throw_error(ErrorKind::internal, "scale: x is {}, y is {}: they must have the same number of elements", x.text(),
                y.text());
  }
  if (y.data == x.data && y.dtype != x.dtype && y) {
    throw_error(ErrorKind::internal, "scale: x, {}, and y, {}, share memory but differ in type", x.text(), y.text());
  }
  if (y.elements() == 0) return;
  dispatch<Scale>(context, y, x, factor);
}

void clamp(Context& context, const Tensor& y, const Tensor& x, float limit) {
  check_alike(Clamp::name, context, {"y", y}, {{"x", x}});
  check_positive(Clamp::name, "limit", limit);
  if (y.elements() == 0) return;
  dispatch<Clamp>(context, y, x, limit);
}

void clamp_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, float limit) {
  check_alike(ClampBackward::name, context, {"dx", dx}, {{"dy", dy}, {"x", x}}, optimizer_types);
  check_positive(ClampBackward::name, "limit", limit);
  if (dx.elements() == 0) return;
  dispatch<ClampBackward>(context, dx, dy, x, limit);
}

void softcap(Context& context, const Tensor& y, const Tensor& x, float cap) {
  check_alike(Softcap::name, context, {"y", y}, {{"x", x}});
  check_positive(Softcap::name, "cap", cap);
  if (y.elements() == 0) return;
  dispatch<Softcap>(context, y, x, cap);
}

void softcap_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  check_alike(SoftcapBackward::name, context, {"dx", dx}, {{"dy", dy}, {"y", y}}, optimizer_types);
  check_positive(SoftcapBackward::name, "cap", cap);
  if (dx.elements() == 0) return;
  dispatch<SoftcapBackward>(context, dx, dy, y, cap);
}

void add_bias(Context& context, const Tensor& y, const Tensor& bias) {
  check_rank("add_bias", "y", y, 2);
  check_dtype("add_bias", "y", y, forward_types);
  check_device("add_bias", "y", context, y);
  check("add_bias", "bias", context, bias, Shape{y.shape[1]}, {DType::f32});
  if (y.elements() == 0) return;
  dispatch<AddBias>(context, y, bias);
}

void add_bias_backward(Context& context, const Tensor& dbias, const Tensor& dy, bool accumulate) {
  check_rank("add_bias_backward", "dy", dy, 2);
  check_dtype("add_bias_backward", "dy", dy, optimizer_types);
  check_device("add_bias_backward", "dy", context, dy);
  check("add_bias_backward", "dbias", context, dbias, Shape{dy.shape[1]}, {DType::f32});
  if (dbias.elements() == 0) return;
  dispatch<AddBiasBackward>(context, dbias, dy, accumulate);
}

namespace {

void check_dropout(const char* op, const Context& context, const Tensor& y, const Tensor& x,
                   const DropoutAttributes& attributes) {
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, optimizer_types);
  check_device(op, "x", context, x);
  check(op, "y", context, y, x.shape, {x.dtype});
  if (!(attributes.probability >= 0.0F && attributes.probability < 1.0F)) {
    throw_error(ErrorKind::internal, "{}: the probability is {}, it should be in [0, 1)", op, attributes.probability);
  }
  if (attributes.first_column < 0 || attributes.first_column % 4 != 0) {
    throw_error(ErrorKind::internal, "{}: the first column is {}, it should be a multiple of 4", op,
                attributes.first_column);
  }
}

}  // namespace

void dropout(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows, DropoutAttributes attributes) {
  check_dropout("dropout", context, y, x, attributes);
  check("dropout", "rows", context, rows, Shape{x.shape[0]}, {DType::i64});
  if (x.elements() == 0) return;
  dispatch<Dropout>(context, y, x, rows, attributes);
}

void grouped_dropout(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows, const Tensor& token_of_row,
                     const Tensor& offsets, DropoutAttributes attributes, int64_t stream_step) {
  constexpr const char* op = GroupedDropout::name;
  check_dropout(op, context, y, x, attributes);
  check_rank(op, "rows", rows, 1);
  check(op, "rows", context, rows, rows.shape, {DType::i64});
  check(op, "token_of_row", context, token_of_row, Shape{x.shape[0]}, {DType::i32});
  check_rank(op, "offsets", offsets, 1);
  check(op, "offsets", context, offsets, offsets.shape, {DType::i32});
  const uint64_t last = attributes.stream + static_cast<uint64_t>((offsets.shape[0] - 2) * stream_step);
  if (attributes.stream >> 32 != last >> 32) {
    throw_error(ErrorKind::internal, "{}: streams {} to {} differ in their upper words", op, attributes.stream, last);
  }
  if (x.elements() == 0) return;
  dispatch<GroupedDropout>(context, y, x, rows, token_of_row, offsets, attributes, stream_step);
}

}  // namespace ingot::ops

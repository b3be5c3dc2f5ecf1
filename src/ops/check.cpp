#include "ops/check.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::ops {

void check_shape(const char* op, const char* what, const Tensor& tensor, const Shape& wanted) {
  if (tensor.shape == wanted) return;
  throw_error(ErrorKind::internal, "{}: {} is {}, its shape should be {}", op, what, tensor.text(), wanted.text());
}

void check_rank(const char* op, const char* what, const Tensor& tensor, int wanted) {
  if (tensor.shape.rank() == wanted) return;
  throw_error(ErrorKind::internal, "{}: {} is {}, it should have {} dimensions", op, what, tensor.text(), wanted);
}

void check_dtype(const char* op, const char* what, const Tensor& tensor, std::initializer_list<DType> wanted) {
  if (std::find(wanted.begin(), wanted.end(), tensor.dtype) != wanted.end()) return;
  std::string names;
  for (const DType dtype : wanted) names += names.empty() ? name(dtype) : fmt::format(" or {}", name(dtype));
  throw_error(ErrorKind::internal, "{}: {} is {}, its type should be {}", op, what, tensor.text(), names);
}

void check_device(const char* op, const char* what, const Context& context, const Tensor& tensor) {
  if (!tensor) {
    if (tensor.elements() != 0) throw_error(ErrorKind::internal, "{}: {} is missing", op, what);
  } else if (tensor.device != &context.device) {
    throw_error(ErrorKind::internal, "{}: {} is {}, the op runs on {}", op, what, tensor.text(), context.device.name());
  }
}

void check_device(const char* op, const char* what, const Context& context, const Weight& weight) {
  if (!weight) throw_error(ErrorKind::internal, "{}: {} is missing", op, what);
  if (weight.device != &context.device) {
    throw_error(ErrorKind::internal, "{}: {} is {} on another device, the op runs on {}", op, what, weight.text(),
                context.device.name());
  }
}

void check(const char* op, const char* what, const Context& context, const Tensor& tensor, const Shape& shape,
           std::initializer_list<DType> dtypes) {
  check_shape(op, what, tensor, shape);
  check_dtype(op, what, tensor, dtypes);
  check_device(op, what, context, tensor);
}

void check_linear(const char* op, const Context& context, const Tensor& result, const char* result_name,
                  int64_t result_width, const Tensor& given, const char* given_name, int64_t given_width,
                  const Weight& weight, std::initializer_list<DType> types) {
  check_device(op, "weight", context, weight);
  check_rank(op, given_name, given, 2);
  check(op, given_name, context, given, Shape{given.shape[0], given_width}, types);
  check_shape(op, result_name, result, Shape{given.shape[0], result_width});
  check_dtype(op, result_name, result, {given.dtype, DType::f32});
  check_device(op, result_name, context, result);
}

}  // namespace ingot::ops

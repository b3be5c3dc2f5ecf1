// Argument checks of the ops. A wrong argument is a bug in the caller: ErrorKind::internal, naming the op, the argument
// and what it should have been.
#pragma once

#include <initializer_list>

#include "ops/context.h"
#include "tensor/weight.h"

namespace ingot::ops {

// Activation dtypes of forward ops (forward_types), and of backward ops and ops that only training uses
// (optimizer_types). f16 is not trained in: small gradients would underflow to 0.
inline constexpr std::initializer_list<DType> forward_types = {DType::f32, DType::bf16, DType::f16};
inline constexpr std::initializer_list<DType> optimizer_types = {DType::f32, DType::bf16};

// `what` names the argument: "x", "dweight".
void check_shape(const char* op, const char* what, const Tensor& tensor, const Shape& wanted);
void check_rank(const char* op, const char* what, const Tensor& tensor, int wanted);
void check_dtype(const char* op, const char* what, const Tensor& tensor, std::initializer_list<DType> wanted);
// Checks that `tensor` is present, unless it has no elements, and that it is on the context's device.
void check_device(const char* op, const char* what, const Context& context, const Tensor& tensor);
void check_device(const char* op, const char* what, const Context& context, const Weight& weight);

// All three checks: `shape`, one of `dtypes`, on the context's device.
void check(const char* op, const char* what, const Context& context, const Tensor& tensor, const Shape& shape,
           std::initializer_list<DType> dtypes);

// For a linear layer or its input gradient: `given` [T, given_width] has one of `types`, `result` [T, result_width] has
// the dtype of `given` or f32.
void check_linear(const char* op, const Context& context, const Tensor& result, const char* result_name,
                  int64_t result_width, const Tensor& given, const char* given_name, int64_t given_width,
                  const Weight& weight, std::initializer_list<DType> types);

}  // namespace ingot::ops

// Argument checks of the ops. A wrong argument is a mistake of the caller's code: ErrorKind::internal, naming the op,
// the argument and what it should have been.
#pragma once

#include <initializer_list>

#include "ops/context.h"
#include "tensor/weight.h"

namespace ingot::ops {

// Types of activations: of every forward op, and of the backward ones and what only they need. Nothing is trained in
// f16, whose small gradients become 0.
inline constexpr std::initializer_list<DType> forward_types = {DType::f32, DType::bf16, DType::f16};
inline constexpr std::initializer_list<DType> trained_types = {DType::f32, DType::bf16};

// `what` names the argument: "x", "dweight".
void check_shape(const char* op, const char* what, const Tensor& tensor, const Shape& wanted);
void check_rank(const char* op, const char* what, const Tensor& tensor, int wanted);
void check_dtype(const char* op, const char* what, const Tensor& tensor, std::initializer_list<DType> wanted);
// `tensor` is present unless it has no elements, and lies on the context's device.
void check_place(const char* op, const char* what, const Context& context, const Tensor& tensor);
void check_place(const char* op, const char* what, const Context& context, const Weight& weight);

// All three: [T, H] of one of these types, on the context's device.
void check(const char* op, const char* what, const Context& context, const Tensor& tensor, const Shape& shape,
           std::initializer_list<DType> dtypes);

// Of a linear layer or the gradient of its input: `given` [T, given_width] of one of `types`, `result` [T,
// result_width] of given's type or f32.
void check_linear(const char* op, const Context& context, const Tensor& result, const char* result_name,
                  int64_t result_width, const Tensor& given, const char* given_name, int64_t given_width,
                  const Weight& weight, std::initializer_list<DType> types);

}  // namespace ingot::ops

#include "comm/combine.h"

#include <algorithm>
#include <concepts>
#include <type_traits>

namespace ingot::comm {

namespace {

template <class T>
bool combine_typed(T* into, const T* from, size_t count, ReduceOp how) {
  if (how == ReduceOp::max) {
    for (size_t i = 0; i < count; ++i) into[i] = std::max(into[i], from[i]);
    return true;
  }
  if constexpr (std::floating_point<T>) {
    for (size_t i = 0; i < count; ++i) into[i] += from[i];
    return true;
  } else {
    using Wrapping = std::make_unsigned_t<T>;
    T overflow = 0;  // becomes negative when the sign of a sum differs from that of both operands
    for (size_t i = 0; i < count; ++i) {
      const T sum = static_cast<T>(static_cast<Wrapping>(into[i]) + static_cast<Wrapping>(from[i]));
      overflow |= (into[i] ^ sum) & (from[i] ^ sum);
      into[i] = sum;
    }
    return overflow >= 0;
  }
}

}  // namespace

size_t size_of(Number number) { return number == Number::i32 || number == Number::f32 ? 4 : 8; }

bool combine(void* into, const void* from, size_t count, Number number, ReduceOp how) {
  const auto typed = [&]<class T>(T*) {
    return combine_typed(static_cast<T*>(into), static_cast<const T*>(from), count, how);
  };
  switch (number) {
    case Number::i32: return typed(static_cast<int32_t*>(nullptr));
    case Number::i64: return typed(static_cast<int64_t*>(nullptr));
    case Number::f32: return typed(static_cast<float*>(nullptr));
    case Number::f64: return typed(static_cast<double*>(nullptr));
  }
  throw_error(ErrorKind::internal, "unknown number type {}", static_cast<int>(number));
}

}  // namespace ingot::comm

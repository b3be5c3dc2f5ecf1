// FunctionRef<R(Args...)>: a non-owning reference to a callable that the caller keeps alive. Two pointers, no
// allocation, never empty. For parameters only: it must not outlive the full expression in which a temporary callable
// was passed.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace ingot {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& callable)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {
    static_assert(!std::is_function_v<std::remove_reference_t<F>>, "wrap a plain function in a lambda");
  }

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace ingot

// Registry: for every op and kind of device, an ordered list of implementations, best first, a plain reference last.
//
// An op is a struct with a name and the signature of its implementations:
//   struct RmsNorm { static constexpr const char* name = "rms_norm"; using Signature = void(Context&, ...); };
// Each backend exports `register_ops(Registry&)`; the order of its calls to add() is the order of preference. An
// implementation may decline a call with a reason; the first one that does not decline runs.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/context.h"
#include "tensor/weight.h"

namespace ingot::ops {

template <class Signature>
struct SignatureOf;
template <class... Args>
struct SignatureOf<void(Context&, Args...)> {
  using Run = void (*)(Context&, Args...);
  using Decline = std::string (*)(const Context&, Args...);  // empty string: accepts the call
};

template <class Op>
using RunOf = typename SignatureOf<typename Op::Signature>::Run;
template <class Op>
using DeclineOf = typename SignatureOf<typename Op::Signature>::Decline;

class Registry {
 public:
  using Untyped = void (*)();
  struct Entry {
    std::string name;  // of the implementation, for instance "onednn", "avx512", "reference"
    Untyped run;
    Untyped decline;  // may be null: accepts every call
  };
  struct Listing {
    std::string op;
    DeviceKind device;
    std::vector<std::string> implementations;
  };

  template <class Op>
  void add(DeviceKind device, std::string implementation, RunOf<Op> run, DeclineOf<Op> decline = nullptr) {
    add(Op::name, device,
        {std::move(implementation), reinterpret_cast<Untyped>(run), reinterpret_cast<Untyped>(decline)});
  }

  // Implementations in order of preference; empty when none is registered.
  const std::vector<Entry>& list(const char* op, DeviceKind device) const;

  // Keeps only this implementation of the op, for tests and comparisons. ErrorKind::usage, listing the names that
  // exist, when the op has no implementation of that name on any device.
  void select_implementation(const std::string& op, const std::string& implementation);
  // Applies "op=implementation,op=implementation" (the environment variable INGOT_OPS).
  void select_implementation(const std::string& list);

  // Everything registered, sorted by op; the support matrix is generated from it.
  std::vector<Listing> listings() const;

 private:
  void add(const char* op, DeviceKind device, Entry entry);
  std::map<std::pair<std::string, DeviceKind>, std::vector<Entry>> lists_;
};

// Reports a call to the context's watch.
template <class... Args>
void notify_observer(Context& context, const char* op, const Args&... args) {
  std::vector<Tensor> tensors;
  const auto add = [&](const auto& arg) {
    using Arg = std::decay_t<decltype(arg)>;
    if constexpr (std::is_same_v<Arg, Tensor>) {
      if (arg) tensors.push_back(arg);
    } else if constexpr (std::is_same_v<Arg, Weight>) {
      if (arg && is_plain(arg.storage)) tensors.push_back(arg.tensor());
    } else if constexpr (requires { arg.tensors(); }) {
      for (const Tensor& tensor : arg.tensors()) {
        if (tensor) tensors.push_back(tensor);
      }
    }
  };
  (add(args), ...);
  context.watch->ran(op, tensors);
}

// Reports to the device which op the following launches belong to.
template <class... Args>
void report_to_device(Context& context, const char* op, const Args&... args) {
  std::array<Operand, sizeof...(Args)> operands;
  size_t count = 0;
  const auto add = [&](const auto& arg) {
    using Arg = std::decay_t<decltype(arg)>;
    if constexpr (std::is_same_v<Arg, Tensor>) {
      if (arg) operands[count++] = {ingot::name(arg.dtype), arg.shape};
    } else if constexpr (std::is_same_v<Arg, Weight>) {
      operands[count++] = {ingot::name(arg.storage), Shape{arg.out, arg.in}};
    }
  };
  (add(args), ...);
  context.device.set_current_op(op, std::span<const Operand>(operands.data(), count));
}

// Runs the first implementation that accepts the call. ErrorKind::unsupported, with every reason, when none does.
template <class Op, class... Args>
void dispatch(Context& context, const Args&... args) {
  std::string reasons;
  for (const Registry::Entry& entry : context.registry.list(Op::name, context.device.kind())) {
    if (entry.decline) {
      std::string reason = reinterpret_cast<DeclineOf<Op>>(entry.decline)(context, args...);
      if (!reason.empty()) {
        reasons += fmt::format("; {}: {}", entry.name, reason);
        continue;
      }
    }
    if (!context.device.host_visible()) report_to_device(context, Op::name, args...);
    if (context.watch) context.watch->begins(Op::name);
    reinterpret_cast<RunOf<Op>>(entry.run)(context, args...);
    if (context.watch) notify_observer(context, Op::name, args...);
    return;
  }
  throw_error(ErrorKind::unsupported, "no implementation of {} on {} supports this call{}", Op::name,
              context.device.name(), reasons.empty() ? std::string("; none is registered") : reasons);
}

}  // namespace ingot::ops

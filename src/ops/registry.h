// Registry: for every op and kind of device, an ordered list of implementations, best first, a plain reference last.
//
// An op is a struct with a name and the signature of its implementations, which the list of ops/op_list.h names:
//   struct RmsNorm { static constexpr const char* name = "rms_norm"; using Signature = void(Context&, ...); };
// Each backend exports `register_ops(Registry&)`; the order of its calls to add() is the order of preference. An
// implementation may decline a call with a reason; the first one that does not decline runs.
#pragma once

#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/context.h"
#include "ops/op_list.h"
#include "ops/refusal.h"
#include "tensor/weight.h"

namespace ingot::ops {

template <class Signature>
struct SignatureOf;
template <class... Args>
struct SignatureOf<void(Context&, Args...)> {
  static void nothing(Context&, Args...) {}
  using Run = void (*)(Context&, Args...);
  using Decline = bool (*)(const Context&, Args..., Refusal refuse);  // true: declines the call, and says why
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
    Untyped nothing;  // of the type of `run`; does nothing
  };
  enum class Feature : uint8_t {
    residual,       // reads LinearAttributes::residual; others add to the result alone (ops::with_residual_in)
    padded_columns  // takes matrices with more columns than the op computes with (ops/matmul.h)
  };
  struct Listing {
    std::string op;
    DeviceKind device;
    std::vector<std::string> implementations;
  };

  template <class Op>
  void add(DeviceKind device, std::string implementation, RunOf<Op> run, DeclineOf<Op> decline = nullptr) {
    Slot& slot = slots_[static_cast<size_t>(op_id<Op>)];
    slot.op = Op::name;
    slot.entries[static_cast<size_t>(device)].push_back(
        {std::move(implementation), reinterpret_cast<Untyped>(run), reinterpret_cast<Untyped>(decline),
         reinterpret_cast<Untyped>(SignatureOf<typename Op::Signature>::nothing)});
  }

  // States what all implementations of the op for this kind of device support; an op's header says where it matters.
  template <class Op>
  void support(DeviceKind device, Feature feature) {
    features_of(op_id<Op>, device)[static_cast<size_t>(feature)] = true;
  }
  bool supports(OpId op, DeviceKind device, Feature feature) const {
    return slots_[static_cast<size_t>(op)].features[static_cast<size_t>(device)][static_cast<size_t>(feature)];
  }

  // Implementations in order of preference; empty when none is registered.
  template <class Op>
  const std::vector<Entry>& list(DeviceKind device) const {
    return slots_[static_cast<size_t>(op_id<Op>)].entries[static_cast<size_t>(device)];
  }

  // Keeps only this implementation of the op, for tests and comparisons. ErrorKind::usage, listing the names that
  // exist, when the op has no implementation of that name on any device.
  void select_implementation(const std::string& op, const std::string& implementation);
  // Applies "op=implementation,op=implementation" (the environment variable INGOT_OPS).
  void select_implementation(const std::string& list);

  // The same implementations with kernels that do nothing and decline the same calls, to time a call's dispatch.
  Registry without_kernels() const;

  // Everything registered, sorted by op; the support matrix is generated from it.
  std::vector<Listing> listings() const;

 private:
  static constexpr size_t num_device_kinds = static_cast<size_t>(DeviceKind::sim) + 1;
  using Features = std::array<bool, 2>;  // by Feature
  struct Slot {
    const char* op = "";  // empty: nothing is registered
    std::array<std::vector<Entry>, num_device_kinds> entries;
    std::array<Features, num_device_kinds> features{};
  };
  Features& features_of(OpId op, DeviceKind device) {
    return slots_[static_cast<size_t>(op)].features[static_cast<size_t>(device)];
  }
  std::array<Slot, num_ops> slots_;  // by OpId
};

// Reports a call to the context's watch.
template <class Op, class... Args>
void notify_observer(Context& context, const Args&... args) {
  std::vector<Tensor> tensors;
  double encoded_bytes = 0;
  const auto add_weight = [&](const Weight& weight) {
    if (!weight) return;
    if (is_plain(weight.storage)) {
      tensors.push_back(weight.tensor());
    } else {
      encoded_bytes += static_cast<double>(row_bytes(weight.storage, weight.in)) * static_cast<double>(weight.out);
    }
  };
  const auto add = [&](const auto& arg) {
    using Arg = std::decay_t<decltype(arg)>;
    if constexpr (std::is_same_v<Arg, Tensor>) {
      if (arg) tensors.push_back(arg);
    } else if constexpr (std::is_same_v<Arg, std::span<const Tensor>>) {
      tensors.insert(tensors.end(), arg.begin(), arg.end());
    } else if constexpr (std::is_same_v<Arg, Weight>) {
      add_weight(arg);
    } else if constexpr (std::is_same_v<Arg, std::span<const Weight>>) {
      for (const Weight& weight : arg) add_weight(weight);
    } else if constexpr (requires { arg.tensors(); }) {
      for (const Tensor& tensor : arg.tensors()) {
        if (tensor) tensors.push_back(tensor);
      }
    }
  };
  (add(args), ...);
  OpWork work = work_of<Op>(tensors, args...);
  if (work.is_gemm()) work.bytes += encoded_bytes;
  context.watch->ran(Op::name, tensors, work);
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
    } else if constexpr (std::is_same_v<Arg, std::span<const Tensor>>) {
      operands[count++] = {ingot::name(arg.front().dtype), arg.front().shape};
    } else if constexpr (std::is_same_v<Arg, Weight>) {
      operands[count++] = {ingot::name(arg.storage), Shape{arg.out, arg.in}};
    } else if constexpr (std::is_same_v<Arg, std::span<const Weight>>) {
      operands[count++] = {ingot::name(arg.front().storage), Shape{std::ssize(arg), arg.front().out, arg.front().in}};
    }
  };
  (add(args), ...);
  context.device.set_current_op(op, std::span<const Operand>(operands.data(), count));
}

// ErrorKind::unsupported: `reasons` has the name of each implementation and why it declined.
[[noreturn]] void throw_unsupported(const Context& context, const char* op,
                                    const std::vector<std::pair<std::string, std::string>>& reasons);

template <class Op, class... Args>
bool declines(const Registry::Entry& entry, const Context& context, Refusal refuse, const Args&... args) {
  return entry.decline != nullptr && reinterpret_cast<DeclineOf<Op>>(entry.decline)(context, args..., refuse);
}

// Runs the first implementation that accepts the call. ErrorKind::unsupported, with every reason, when none does: only
// then are the reasons formatted.
template <class Op, class... Args>
void dispatch(Context& context, const Args&... args) {
  const std::vector<Registry::Entry>& entries = context.registry.list<Op>(context.device.kind());
  for (const Registry::Entry& entry : entries) {
    if (declines<Op>(entry, context, Refusal(), args...)) continue;
    if (!context.device.host_visible()) report_to_device(context, Op::name, args...);
    if (context.watch) context.watch->begins(Op::name);
    reinterpret_cast<RunOf<Op>>(entry.run)(context, args...);
    if (context.watch) notify_observer<Op>(context, args...);
    return;
  }
  std::vector<std::pair<std::string, std::string>> reasons;
  for (const Registry::Entry& entry : entries) {
    std::string reason;
    declines<Op>(entry, context, Refusal(reason), args...);
    reasons.emplace_back(entry.name, std::move(reason));
  }
  throw_unsupported(context, Op::name, reasons);
}

}  // namespace ingot::ops

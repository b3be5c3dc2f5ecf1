// What every op receives: the device, the registered implementations, and scratch memory.
#pragma once

#include <span>

#include "ops/work.h"
#include "tensor/arena.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::ops {

class Registry;

// Is called around every op that runs, to find the source of wrong values or to measure time. The calls for a composite
// op enclose those for the ops that it runs.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void begins(const char*) {}
  // Called after an op with the tensors and the unencoded matrices among its arguments, in the order of its signature
  // (outputs first). Absent tensors, encoded matrices (block-quantised, fp8), and tensors inside attributes or inside
  // structs without tensors() are left out. `work` is the call's work_of.
  virtual void ran(const char* op, std::span<const Tensor> tensors, const OpWork& work) = 0;
};

// One thread uses a Context at a time. Everything it points to outlives it.
struct Context {
  Device& device;
  const Registry& registry;
  Arena& scratch;       // an op allocates what its `*_bytes` function returns, and frees it when it ends
  ThreadPool* threads;  // used by the CPU backend; null elsewhere
  OpObserver* watch = nullptr;
};

}  // namespace ingot::ops

// What every op is given: where to run, with which implementations, and scratch memory.
#pragma once

#include <span>

#include "tensor/arena.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::ops {

class Registry;

// Is told of every op that runs: for finding out where a computation went wrong, or where its time went. An op that is
// made of others is told around them.
class Watch {
 public:
  virtual ~Watch() = default;
  virtual void begins(const char*) {}
  // The tensors and the plain matrices that the op was called with, in the order of its signature (outputs first);
  // without absent ones, coded matrices (block-quantised, fp8), and those inside attributes and structs that
  // have no tensors().
  virtual void ran(const char* op, std::span<const Tensor> tensors) = 0;
};

// One thread uses a Context at a time. Everything it points to outlives it.
struct Context {
  Device& device;
  const Registry& registry;
  Arena& scratch;       // an op takes what its `*_bytes` function says and gives it back before it returns
  ThreadPool* threads;  // for the CPU backend; null elsewhere
  Watch* watch = nullptr;
};

}  // namespace ingot::ops

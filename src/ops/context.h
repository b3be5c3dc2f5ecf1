// What every op is given: where to run, with which implementations, and scratch memory.
#pragma once

#include "tensor/arena.h"
#include "tensor/device.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::ops {

class Registry;

// One thread uses a Context at a time. Everything it points to outlives it.
struct Context {
  Device& device;
  const Registry& registry;
  Arena& scratch;       // an op takes what its `*_bytes` function says and gives it back before it returns
  ThreadPool* threads;  // for the CPU backend; null elsewhere
};

}  // namespace ingot::ops

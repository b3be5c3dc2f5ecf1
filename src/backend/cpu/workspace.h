// The CPU backend's share of a pool's workspace (ThreadPool::Workspace): its sizes, and typed arrays in it. An op's
// memory that has one size for all shapes is there; memory that grows with the shapes is in Context::scratch.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/thread_pool.h"

namespace ingot::cpu {

// Bytes that an op may use of each thread's part, and of the part that the threads share: only the gemm engine `amx`
// uses that.
constexpr size_t thread_workspace = size_t{4} << 20;
constexpr size_t amx_shared_workspace = size_t{24} << 20;

// Divides a part of the workspace into arrays.
class WorkspaceArrays {
 public:
  explicit WorkspaceArrays(std::span<std::byte> memory) : rest_(memory) {}

  // The next array, 64-byte aligned; its contents are undefined. ErrorKind::internal when the rest is too small: the op
  // then accepted a shape that it has no memory for.
  template <class T>
  T* take(int64_t elements) {
    const size_t bytes = footprint(static_cast<size_t>(elements) * sizeof(T));
    if (bytes > rest_.size()) {
      throw_error(ErrorKind::internal, "a thread's workspace has {} bytes left, {} wanted", rest_.size(), bytes);
    }
    T* array = reinterpret_cast<T*>(rest_.data());
    rest_ = rest_.subspan(bytes);
    return array;
  }
  // What an array of `bytes` takes.
  static constexpr size_t footprint(size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  std::span<std::byte> rest_;
};

}  // namespace ingot::cpu

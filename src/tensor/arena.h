// Arena: a bump allocator over one device allocation. There is one arena per lifetime (weights, gradients, optimizer,
// saved activations, scratch, KV cache).
#pragma once

#include <cstddef>
#include <string>

#include "tensor/tensor.h"

namespace ingot {

class Arena {
 public:
  static constexpr size_t alignment = 64;
  // Bytes that a tensor occupies in an arena: its size rounded up to the alignment. Sizing functions add these up.
  static size_t footprint(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  static size_t footprint(DType dtype, const Shape& shape);

  Arena() = default;
  // Allocates `bytes` once. `label` names the arena in error messages ("saved activations"), also when allocation
  // fails.
  Arena(Device& device, size_t bytes, std::string label);

  // Allocates the next tensor; its memory is not cleared. ErrorKind::internal, with label and sizes, when the arena is
  // full: the sizing function then disagrees with the code that uses the arena.
  Tensor allocate(DType dtype, Shape shape);
  void* allocate_bytes(size_t bytes);

  // release(mark) frees everything that was allocated after the matching mark().
  size_t mark() const { return used_; }
  void release(size_t mark);
  size_t used() const { return used_; }
  size_t peak() const { return peak_; }
  size_t capacity() const { return buffer_.bytes(); }
  Device* device() const { return buffer_.device(); }

  // Frees everything that was allocated during its lifetime.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { arena_.release(mark_); }

   private:
    Arena& arena_;
    size_t mark_;
  };

 private:
  Buffer buffer_;
  std::string label_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace ingot

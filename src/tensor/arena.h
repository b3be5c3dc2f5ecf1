// Arena: one allocation, handed out in order. One arena a lifetime (weights, gradients, optimizer, saved, scratch, KV).
#pragma once

#include <cstddef>
#include <string>

#include "tensor/tensor.h"

namespace ingot {

class Arena {
 public:
  static constexpr size_t alignment = 64;
  // Bytes that a tensor takes in an arena: rounded up to the alignment. Sizing functions add these.
  static size_t footprint(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  static size_t footprint(DType dtype, const Shape& shape);

  Arena() = default;
  // Allocates `bytes` once. `label` is used in messages ("saved activations"), that of missing memory too.
  Arena(Device& device, size_t bytes, std::string label);

  // The next tensor; contents are what was there before. ErrorKind::internal, with label and sizes, when it is full:
  // then the sizing function and the user of the arena disagree.
  Tensor take(DType dtype, Shape shape);
  void* take_bytes(size_t bytes);

  // Everything taken after `mark()` is given back by `release(mark)`.
  size_t mark() const { return used_; }
  void release(size_t mark);
  size_t used() const { return used_; }
  size_t peak() const { return peak_; }
  size_t capacity() const { return buffer_.bytes(); }
  Device* device() const { return buffer_.device(); }

  // Releases what was taken inside a scope.
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

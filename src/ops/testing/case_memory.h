// The operands of an op-table case in a device's memory.
#pragma once

#include <cstddef>
#include <vector>

#include "base/philox.h"
#include "ops/testing/op_table.h"
#include "tensor/device.h"

namespace ingot::ops::testing {

bool is_real(DType dtype);

// Values as stored in `dtype`, rounded to nearest, and back.
std::vector<std::byte> encode(DType dtype, const std::vector<double>& values);
std::vector<double> decode(DType dtype, const std::vector<std::byte>& bytes);

// Whether the element at `at` still is what outputs are filled with: NaN, or unwritten_integer.
bool has_poison(DType dtype, const std::byte* at);

// The memory of one operand. If the host can access the device's memory, it is a heap allocation of exactly the
// operand's size, so that the address sanitizer detects a kernel that reads or writes past the end.
class OperandMemory {
 public:
  OperandMemory(Device& device, size_t bytes);
  OperandMemory(OperandMemory&& other) noexcept;
  OperandMemory& operator=(OperandMemory&&) = delete;
  ~OperandMemory();

  void* data() const { return heap_ != nullptr ? heap_ : buffer_.data(); }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  void* heap_ = nullptr;
  Buffer buffer_;
};

// Fills the operands of `op_case`, which must outlive it, from `seed`.
class CaseMemory {
 public:
  CaseMemory(Device& device, const OpCase& op_case, uint64_t seed);

  const Arguments& arguments() const { return arguments_; }
  const Values& before() const { return values_; }

  std::vector<std::byte> bytes_of(size_t i) const;
  std::vector<double> after(size_t i) const;
  void wait() const;

 private:
  void make(size_t i, uint64_t seed);
  void make_large(size_t i, RandomStream& random);
  void share(size_t i);

  Device& device_;
  const OpCase& case_;
  Values values_;
  Arguments arguments_;
  std::vector<OperandMemory> memory_;
};

}  // namespace ingot::ops::testing

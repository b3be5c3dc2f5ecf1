// A kernel of a module, ready to run: instructions with their handlers, and the layout of a warp's registers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/backend/gpu/ptx/syntax.h"
#include "tests/backend/gpu/ptx/warp.h"

namespace ingot::ptx {

// Arrays of a warp's register file that are filled before it runs.
struct Constant {
  uint32_t offset = 0;
  int bytes = 0;  // 0: a predicate, of all lanes
  uint64_t bits = 0;
};
struct SpecialRegister {
  enum class Kind { tid_x, ntid_x, ctaid_x, ctaid_y, nctaid_x };
  uint32_t offset = 0;
  Kind kind = Kind::tid_x;
};

class Kernel {
 public:
  // Refers to the module and its text. Errors: unsupported, naming the line, for an instruction that the emulator does
  // not have, or an operand whose register has another size than the instruction's.
  Kernel(const Module& module, std::string_view name);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const KernelText& text() const { return *text_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  // Bytes of a warp's registers, a multiple of 64.
  size_t register_bytes() const { return register_bytes_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<SpecialRegister>& special_registers() const { return special_registers_; }
  // Bytes of static shared memory; dynamic shared memory begins there, at a multiple of 16 or of what it asks for.
  size_t static_shared_bytes() const { return static_shared_bytes_; }
  // Bytes of local memory of a thread.
  size_t local_bytes() const { return local_bytes_; }

 private:
  struct Register {
    uint32_t offset = 0;
    int bytes = 0;  // 0: a predicate
  };

  uint32_t reserve(int bytes);
  void place_variables(const Module& module);
  std::optional<Register> find_register(std::string_view name) const;
  Register use_register(const Operand& operand) const;
  uint32_t constant(int bytes, uint64_t bits);
  // The array of an operand whose type has this many bytes (0: a predicate).
  uint32_t array_of(const Operand& operand, int bytes);
  uint32_t address_array(const Operand& operand, int bytes);
  void add_operands(const Operand& operand, const std::string& form, size_t& at);

  void decode(const Statement& statement);
  void decode_control(const Statement& statement, Instruction& instruction);
  bool decode_movement(const Statement& statement, Instruction& instruction);
  bool decode_copy(const Statement& statement, Instruction& instruction);
  bool decode_warpgroup(const Statement& statement, Instruction& instruction);
  bool decode_lanewise(const Statement& statement, Instruction& instruction);
  void mark_leaders();

  const KernelText* text_;
  std::vector<Instruction> instructions_;
  std::vector<uint32_t> arrays_;         // of all operands; instructions refer to them
  std::vector<size_t> first_array_;      // of each instruction
  std::vector<uint32_t> range_offsets_;  // of text_->registers
  size_t register_bytes_ = 0;
  std::vector<Constant> constants_;
  std::map<std::pair<int, uint64_t>, uint32_t> constant_offsets_;
  std::vector<SpecialRegister> special_registers_;
  std::map<std::string_view, uint32_t> special_offsets_;
  std::map<std::string_view, size_t> shared_offsets_;
  std::map<std::string_view, size_t> local_offsets_;
  size_t static_shared_bytes_ = 0, local_bytes_ = 0;
};

}  // namespace ingot::ptx

// The text of a PTX module as kernels with statements, without meaning. PTX ISA, "Syntax", "Directives" and
// "Instruction Operands"; only what nvcc writes for our kernels. Everything refers to the text, which must outlive the
// module.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ingot::ptx {

struct Operand {
  enum class Kind {
    name,     // a register, a symbol or a label; `second` is p in "d|p"
    integer,  // `bits` is its value in two's complement
    f32,      // 0f and 8 hexadecimal digits, `bits` of it
    f64,      // 0d and 16 of them
    memory,   // [name + bits]
    vector,   // {items}
  };
  Kind kind = Kind::name;
  std::string_view name, second;
  uint64_t bits = 0;
  std::vector<Operand> items;
};

struct Statement {
  std::string_view opcode;  // with its modifiers: "ld.global.v2.f32"
  std::string_view guard;   // the predicate of "@p" and "@!p", or empty
  bool guard_negated = false;
  std::vector<Operand> operands;
  int line = 0;  // from 1
};

// ".reg .b32 %r<5>" declares %r0 to %r4, ".reg .b32 tmp" in a block of inline assembly only tmp. Blocks may use a name
// again, for the same type.
struct RegisterRange {
  std::string_view name;
  int bytes = 0;  // 0: predicates
  int count = 0;  // 0: one register, of this name
};

// An array of bytes in shared memory, or in local memory, of which each thread has its own.
struct Variable {
  std::string_view name;
  size_t alignment = 1;
  size_t bytes = 0;  // 0: dynamic shared memory
};

struct KernelText {
  std::string_view name;
  std::string_view parameter;  // the name of its only parameter
  size_t parameter_bytes = 0;
  int max_threads = 1024;  // .maxntid
  std::vector<RegisterRange> registers;
  std::vector<Variable> shared, local;
  std::vector<Statement> statements;
  std::unordered_map<std::string_view, size_t> labels;  // index of the statement that follows
};

struct Module {
  std::vector<KernelText> kernels;
  std::vector<Variable> shared;  // of the module

  // Error: not_found.
  const KernelText& kernel(std::string_view name) const;
};

// Errors: unsupported, with the line, for text that is not of this form.
Module parse(std::string_view text);

}  // namespace ingot::ptx

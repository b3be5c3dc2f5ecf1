#include "tests/backend/gpu/ptx/kernel.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "tests/backend/gpu/ptx/arithmetic.h"
#include "tests/backend/gpu/ptx/data_movement.h"
#include "tests/backend/gpu/ptx/warp_wide.h"
#include "tests/backend/gpu/ptx/warpgroup.h"

namespace ingot::ptx {
namespace {

using Kind = Operand::Kind;

const std::map<std::string_view, SpecialRegister::Kind> special_kinds = {
    {"%tid.x", SpecialRegister::Kind::tid_x},       {"%ntid.x", SpecialRegister::Kind::ntid_x},
    {"%ctaid.x", SpecialRegister::Kind::ctaid_x},   {"%ctaid.y", SpecialRegister::Kind::ctaid_y},
    {"%nctaid.x", SpecialRegister::Kind::nctaid_x},
};

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

int size_of_letter(char letter) { return letter == 'p' ? 0 : letter - '0'; }

[[noreturn]] void unknown_operand(const Operand& operand) {
  throw_error(ErrorKind::unsupported, "the operand '{}' is not supported here", operand.name);
}

bool is_integer(const Operand& operand, uint64_t value) {
  return operand.kind == Kind::integer && operand.bits == value;
}

}  // namespace

Kernel::Kernel(const Module& module, std::string_view name) : text_(&module.kernel(name)) {
  for (const RegisterRange& range : text_->registers) {
    range_offsets_.push_back(static_cast<uint32_t>(register_bytes_));
    for (int i = 0; i < std::max(range.count, 1); ++i) reserve(range.bytes);
  }
  place_variables(module);
  for (const Statement& statement : text_->statements) {
    try {
      decode(statement);
    } catch (const Error& error) {
      throw_error(ErrorKind::unsupported, "line {}: {}: {}", statement.line, statement.opcode, error.message());
    }
  }
  for (size_t i = 0; i < instructions_.size(); ++i) instructions_[i].at = arrays_.data() + first_array_[i];
  mark_leaders();
  register_bytes_ = round_up(register_bytes_, 64);
}

// Predicates have 4 bytes; other registers begin at multiples of their own size, and arrays are 64 bytes and more.
uint32_t Kernel::reserve(int bytes) {
  const auto offset = static_cast<uint32_t>(register_bytes_);
  register_bytes_ += bytes == 0 ? 64 : static_cast<size_t>(bytes) * lanes;
  return offset;
}

void Kernel::place_variables(const Module& module) {
  const auto place = [](const std::vector<Variable>& variables, std::map<std::string_view, size_t>& offsets) {
    size_t bytes = 0;
    for (const Variable& variable : variables) {
      bytes = round_up(bytes, variable.alignment);
      offsets[variable.name] = bytes;
      bytes += variable.bytes;
    }
    return round_up(bytes, 16);
  };
  local_bytes_ = place(text_->local, local_offsets_);
  static_shared_bytes_ = place(text_->shared, shared_offsets_);
  for (const Variable& variable : module.shared) {
    if (variable.bytes != 0) {
      throw_error(ErrorKind::unsupported, "the shared variable '{}' of the module is not supported", variable.name);
    }
    static_shared_bytes_ = round_up(static_shared_bytes_, variable.alignment);
  }
  for (const Variable& variable : module.shared) shared_offsets_[variable.name] = static_shared_bytes_;
}

// "%rd12" is in the range of the name "%rd".
std::optional<Kernel::Register> Kernel::find_register(std::string_view name) const {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  for (size_t i = 0; i < text_->registers.size(); ++i) {
    const RegisterRange& range = text_->registers[i];
    if (range.count == 0 && range.name == name) return Register{range_offsets_[i], range.bytes};
    if (range.name != name.substr(0, digits)) continue;
    int number = -1;
    std::from_chars(name.data() + digits, name.data() + name.size(), number);
    if (number < 0 || number >= range.count) return std::nullopt;
    const size_t array_bytes = range.bytes == 0 ? 64 : static_cast<size_t>(range.bytes) * lanes;
    return Register{range_offsets_[i] + static_cast<uint32_t>(number * array_bytes), range.bytes};
  }
  return std::nullopt;
}

Kernel::Register Kernel::use_register(const Operand& operand) const {
  const std::optional<Register> found = operand.kind == Kind::name ? find_register(operand.name) : std::nullopt;
  if (!found) unknown_operand(operand);
  return *found;
}

uint32_t Kernel::constant(int bytes, uint64_t bits) {
  if (bytes > 0 && bytes < 8) bits &= (uint64_t{1} << 8 * bytes) - 1;
  const auto [at, added] = constant_offsets_.try_emplace({bytes, bits}, 0);
  if (added) {
    at->second = reserve(bytes);
    constants_.push_back({at->second, bytes, bits});
  }
  return at->second;
}

uint32_t Kernel::array_of(const Operand& operand, int bytes) {
  if (operand.kind == Kind::integer) return constant(bytes, operand.bits);
  if ((operand.kind == Kind::f32 && bytes == 4) || (operand.kind == Kind::f64 && bytes == 8)) {
    return constant(bytes, operand.bits);
  }
  if (operand.kind != Kind::name) unknown_operand(operand);
  if (const std::optional<Register> found = find_register(operand.name)) {
    if (found->bytes != bytes) {
      throw_error(ErrorKind::unsupported, "'{}' has {} bytes and not {}", operand.name, found->bytes, bytes);
    }
    return found->offset;
  }
  if (const auto special = special_kinds.find(operand.name); special != special_kinds.end() && bytes == 4) {
    const auto [at, added] = special_offsets_.try_emplace(operand.name, 0);
    if (added) {
      at->second = reserve(bytes);
      special_registers_.push_back({at->second, special->second});
    }
    return at->second;
  }
  if (const auto shared = shared_offsets_.find(operand.name); shared != shared_offsets_.end() && bytes == 4) {
    return constant(bytes, shared->second);
  }
  if (const auto local = local_offsets_.find(operand.name); local != local_offsets_.end() && bytes == 8) {
    return constant(bytes, local->second);
  }
  if (operand.name == text_->parameter && bytes == 8) return constant(bytes, 0);
  unknown_operand(operand);
}

uint32_t Kernel::address_array(const Operand& operand, int bytes) {
  if (operand.kind != Kind::memory) unknown_operand(operand);
  Operand base;
  base.name = operand.name;
  return array_of(base, bytes);
}

// Adds the arrays of an operand, whose letters in `form` begin at `at`.
void Kernel::add_operands(const Operand& operand, const std::string& form, size_t& at) {
  if (operand.kind == Kind::vector) {
    for (const Operand& item : operand.items) add_operands(item, form, at);
    return;
  }
  if (at == form.size()) unknown_operand(operand);
  const int bytes = size_of_letter(form[at++]);
  arrays_.push_back(operand.kind == Kind::memory ? address_array(operand, bytes) : array_of(operand, bytes));
  if (operand.second.empty()) return;
  Operand second;
  second.name = operand.second;
  add_operands(second, form, at);
}

void Kernel::decode(const Statement& statement) {
  Instruction instruction;
  instruction.line = statement.line;
  first_array_.push_back(arrays_.size());
  if (!statement.guard.empty()) {
    Operand guard;
    guard.name = statement.guard;
    instruction.guard = array_of(guard, 0);
    instruction.guarded = true;
    instruction.guard_negated = statement.guard_negated;
  }
  const bool known = decode_movement(statement, instruction) || decode_copy(statement, instruction) ||
                     decode_warpgroup(statement, instruction) || decode_lanewise(statement, instruction);
  if (!known) decode_control(statement, instruction);
  instructions_.push_back(instruction);
}

void Kernel::decode_control(const Statement& statement, Instruction& instruction) {
  const std::vector<Operand>& operands = statement.operands;
  if ((statement.opcode == "bra" || statement.opcode == "bra.uni") && operands.size() == 1) {
    const auto label = text_->labels.find(operands[0].name);
    if (label == text_->labels.end()) unknown_operand(operands[0]);
    instruction.control = Control::branch;
    instruction.target = static_cast<uint32_t>(label->second);
  } else if (statement.opcode == "ret" && operands.empty()) {
    instruction.control = Control::exit;
  } else if (statement.opcode == "bar.sync" && operands.size() == 1 && is_integer(operands[0], 0)) {
    instruction.control = Control::block_barrier;
  } else {
    throw_error(ErrorKind::unsupported, "the emulator does not have this instruction");
  }
}

bool Kernel::decode_movement(const Statement& statement, Instruction& instruction) {
  Movement movement;
  if (!parse_movement(statement.opcode, movement)) return false;
  if (statement.operands.size() != 2) throw_error(ErrorKind::unsupported, "it has two operands");
  const Operand& address = statement.operands[movement.is_load ? 1 : 0];
  const Operand& values = statement.operands[movement.is_load ? 0 : 1];
  const bool is_vector = values.kind == Kind::vector;
  if (is_vector ? values.items.size() != static_cast<size_t>(movement.items) : movement.items != 1) {
    throw_error(ErrorKind::unsupported, "it moves {} values", movement.items);
  }
  const int bytes = use_register(is_vector ? values.items[0] : values).bytes;
  std::string form(static_cast<size_t>(movement.items), static_cast<char>('0' + bytes));
  form.insert(movement.is_load ? form.size() : 0, 1, static_cast<char>('0' + movement.address_bytes));
  size_t at = 0;
  for (const Operand& operand : statement.operands) add_operands(operand, form, at);
  instruction.literal = address.bits;
  instruction.items = static_cast<uint8_t>(movement.items);
  instruction.run = bytes == 0 ? nullptr : movement_handler(movement, bytes);
  if (instruction.run == nullptr) throw_error(ErrorKind::unsupported, "its registers have {} bytes", bytes);
  return true;
}

bool Kernel::decode_copy(const Statement& statement, Instruction& instruction) {
  const std::vector<Operand>& operands = statement.operands;
  size_t at = 0;
  if (statement.opcode == "cp.async.cg.shared.global" && operands.size() == 4 && is_integer(operands[2], 16)) {
    if (operands[0].bits != 0 || operands[1].bits != 0) unknown_operand(operands[0]);
    for (const Operand& operand : operands) add_operands(operand, "4844", at);
    instruction.run = copy_async;
  } else if (statement.opcode == "cp.async.commit_group" && operands.empty()) {
    instruction.run = commit_copies;
  } else if (statement.opcode == "cp.async.wait_group" && operands.size() == 1 && operands[0].kind == Kind::integer) {
    instruction.literal = operands[0].bits;
    instruction.run = wait_copies;
  } else if (statement.opcode == "atom.shared.add.u64" && operands.size() == 3) {
    for (const Operand& operand : operands) add_operands(operand, "848", at);
    instruction.literal = operands[1].bits;
    instruction.run = atomic_add_shared;
  } else if (const bool is_ordered = statement.opcode == "atom.acq_rel.gpu.global.add.s32";
             (is_ordered || statement.opcode == "atom.relaxed.gpu.global.add.s32") && operands.size() == 3) {
    for (const Operand& operand : operands) add_operands(operand, "484", at);
    instruction.literal = operands[1].bits;
    instruction.run = is_ordered ? atomic_add_global<true> : atomic_add_global<false>;
  } else {
    return false;
  }
  return true;
}

bool Kernel::decode_warpgroup(const Statement& statement, Instruction& instruction) {
  const std::vector<Operand>& operands = statement.operands;
  if (statement.opcode == "fence.proxy.async.shared::cta" && operands.empty()) {
    instruction.run = fence_proxy;
    return true;
  }
  if (statement.opcode == "wgmma.fence.sync.aligned" && operands.empty()) {
    instruction.run = fence_registers;
  } else if (statement.opcode == "wgmma.commit_group.sync.aligned" && operands.empty()) {
    instruction.run = commit_products;
  } else if (statement.opcode == "wgmma.wait_group.sync.aligned" && operands.size() == 1 &&
             operands[0].kind == Kind::integer) {
    instruction.literal = operands[0].bits;
    instruction.run = wait_products;
  } else if (const int columns = product_columns(statement.opcode); columns > 0) {
    // sums, a, b, scale-d, imm-scale-a, imm-scale-b, imm-trans-a (of a in shared memory), imm-trans-b
    const bool in_registers = operands.size() > 1 && operands[1].kind == Kind::vector;
    if (operands.size() != (in_registers ? 7 : 8)) throw_error(ErrorKind::unsupported, "it has other operands");
    for (const size_t i : {size_t{4}, size_t{5}}) {
      if (!is_integer(operands[i], 1)) unknown_operand(operands[i]);
    }
    if (!in_registers && !is_integer(operands[6], 0)) unknown_operand(operands[6]);
    const bool transposed = is_integer(operands.back(), 1);
    if (!transposed && !is_integer(operands.back(), 0)) unknown_operand(operands.back());
    const std::string form = std::string(static_cast<size_t>(columns / 2), '4') + (in_registers ? "4444" : "8") + "8p";
    size_t at = 0;
    for (size_t i = 0; i < 4; ++i) add_operands(operands[i], form, at);
    if (at != form.size()) throw_error(ErrorKind::unsupported, "it has {} operands", form.size());
    instruction.items = static_cast<uint8_t>(columns / 2);
    instruction.flags = static_cast<uint8_t>((in_registers ? a_in_registers : 0) | (transposed ? b_transposed : 0));
    instruction.run = issue_product;
  } else {
    return false;
  }
  instruction.control = Control::warp_wide;
  return true;
}

bool Kernel::decode_lanewise(const Statement& statement, Instruction& instruction) {
  const std::vector<Operand>& operands = statement.operands;
  size_t at = 0;
  const bool moves_bits = statement.opcode == "mov.b32" || statement.opcode == "mov.b64";
  if (moves_bits && operands.size() == 2 && (operands[0].kind == Kind::vector || operands[1].kind == Kind::vector)) {
    const bool packs = operands[1].kind == Kind::vector;
    const bool is_long = statement.opcode == "mov.b64";
    if (operands[packs ? 1 : 0].items.size() != 2) unknown_operand(operands[0]);
    const std::string form = is_long ? (packs ? "844" : "448") : (packs ? "422" : "224");
    for (const Operand& operand : operands) add_operands(operand, form, at);
    if (packs) {
      instruction.run = is_long ? pack_halves<uint32_t, uint64_t> : pack_halves<uint16_t, uint32_t>;
    } else {
      instruction.run = is_long ? unpack_halves<uint32_t, uint64_t> : unpack_halves<uint16_t, uint32_t>;
    }
    return true;
  }
  if (const int types = integer_conversion(statement.opcode); types >= 0 && operands.size() == 2) {
    for (int i : {0, 1}) {
      const Register used = use_register(operands[static_cast<size_t>(i)]);
      instruction.bytes[i] = static_cast<uint8_t>(used.bytes);
      arrays_.push_back(used.offset);
    }
    instruction.flags = static_cast<uint8_t>(types);
    instruction.run = convert_integers;
    return true;
  }
  // Addresses of global memory are generic addresses.
  std::string opcode(statement.opcode == "cvta.to.global.u64" ? "mov.u64" : statement.opcode);
  Operation operation = warp_wide_operation(opcode);
  if (operation.run != nullptr) {
    instruction.control = Control::warp_wide;
    if (!operands.empty()) instruction.literal = operands.back().kind == Kind::memory ? operands.back().bits : 0;
  } else {
    const auto found = arithmetic().find(opcode);
    if (found == arithmetic().end()) return false;
    operation = found->second;
  }
  for (const Operand& operand : operands) add_operands(operand, operation.form, at);
  if (at != operation.form.size()) throw_error(ErrorKind::unsupported, "it has {} operands", operation.form.size());
  instruction.run = operation.run;
  return true;
}

void Kernel::mark_leaders() {
  const bool ends = !instructions_.empty() && !instructions_.back().guarded &&
                    (instructions_.back().control == Control::branch || instructions_.back().control == Control::exit);
  if (!ends) throw_error(ErrorKind::unsupported, "the last instruction of the kernel is neither ret nor bra");
  for (const Instruction& instruction : instructions_) {
    if (instruction.control != Control::branch) continue;
    if (instruction.target >= instructions_.size()) {
      throw_error(ErrorKind::unsupported, "line {}: the branch leads to the end of the kernel", instruction.line);
    }
    instructions_[instruction.target].leader = true;
  }
}

}  // namespace ingot::ptx

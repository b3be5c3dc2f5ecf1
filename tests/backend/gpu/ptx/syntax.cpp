#include "tests/backend/gpu/ptx/syntax.h"

#include <charconv>

#include "base/error.h"

namespace ingot::ptx {
namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Splits text into words (identifiers, directives, opcodes, literals), quoted strings and single characters.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) { advance(); }

  std::string_view peek() const { return token_; }  // empty at the end
  int line() const { return token_line_; }
  std::string_view take() {
    const std::string_view token = token_;
    advance();
    return token;
  }
  bool take_if(std::string_view wanted) {
    if (token_ != wanted) return false;
    advance();
    return true;
  }
  void expect(std::string_view wanted) {
    if (!take_if(wanted)) fail(fmt::format("'{}' is expected before '{}'", wanted, token_));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw_error(ErrorKind::unsupported, "line {}: {}", token_line_, what);
  }

  // An integer literal, without sign: "Integer Constants".
  uint64_t integer() {
    std::string_view digits = take();
    if (!digits.empty() && digits.back() == 'U') digits.remove_suffix(1);
    int radix = 10;
    if (digits.starts_with("0x")) {
      digits.remove_prefix(2);
      radix = 16;
    }
    return number(digits, radix);
  }
  uint64_t number(std::string_view digits, int radix) const {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, radix);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.empty()) {
      fail(fmt::format("'{}' is no number", digits));
    }
    return value;
  }
  size_t size() { return static_cast<size_t>(integer()); }
  int count() { return static_cast<int>(integer()); }

 private:
  void advance() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') ++line_;
      if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r') {
        ++at_;
      } else {
        break;
      }
    }
    token_line_ = line_;
    size_t end = at_;
    if (end < text_.size() && text_[end] == '"') {
      end = std::min(text_.find('"', end + 1), text_.size() - 1) + 1;
    } else {
      while (end < text_.size() && (in_word(text_[end]) || text_.substr(end, 2) == "::")) {
        end += text_[end] == ':' ? 2 : 1;
      }
      if (end == at_ && end < text_.size()) ++end;
    }
    token_ = text_.substr(at_, end - at_);
    at_ = end;
  }

  std::string_view text_, token_;
  size_t at_ = 0;
  int line_ = 1, token_line_ = 1;
};

Operand read_operand(Reader& reader) {
  Operand operand;
  if (reader.take_if("{")) {
    operand.kind = Operand::Kind::vector;
    do {
      operand.items.push_back(read_operand(reader));
    } while (reader.take_if(","));
    reader.expect("}");
  } else if (reader.take_if("[")) {
    operand.kind = Operand::Kind::memory;
    operand.name = reader.take();
    if (reader.take_if("+")) {
      const bool negative = reader.take_if("-");
      const uint64_t offset = reader.integer();
      operand.bits = negative ? -offset : offset;
    }
    reader.expect("]");
  } else if (reader.take_if("-")) {
    operand.kind = Operand::Kind::integer;
    operand.bits = -reader.integer();
  } else if (const std::string_view word = reader.peek(); word.starts_with("0f") || word.starts_with("0d")) {
    const bool single = word[1] == 'f';  // "Floating-Point Constants"
    if (word.size() != (single ? 10 : 18)) reader.fail(fmt::format("'{}' is no number", word));
    operand.kind = single ? Operand::Kind::f32 : Operand::Kind::f64;
    operand.bits = reader.number(reader.take().substr(2), 16);
  } else if (!word.empty() && is_digit(word[0])) {
    operand.kind = Operand::Kind::integer;
    operand.bits = reader.integer();
  } else {
    if (word.empty() || !in_word(word[0])) reader.fail(fmt::format("'{}' is no operand", word));
    operand.name = reader.take();
    if (reader.take_if("|")) operand.second = reader.take();
  }
  return operand;
}

Statement read_statement(Reader& reader) {
  Statement statement;
  statement.line = reader.line();
  if (reader.take_if("@")) {
    statement.guard_negated = reader.take_if("!");
    statement.guard = reader.take();
  }
  statement.opcode = reader.take();
  if (reader.take_if(";")) return statement;
  do {
    statement.operands.push_back(read_operand(reader));
  } while (reader.take_if(","));
  reader.expect(";");
  return statement;
}

// After ".reg".
RegisterRange read_registers(Reader& reader) {
  RegisterRange range;
  const std::string_view type = reader.take();
  if (type != ".pred") {
    if (type.size() < 3) reader.fail(fmt::format("registers of type '{}' are not known", type));
    range.bytes = static_cast<int>(reader.number(type.substr(2), 10)) / 8;
    if (range.bytes != 2 && range.bytes != 4 && range.bytes != 8) {
      reader.fail(fmt::format("registers of type '{}' are not known", type));
    }
  }
  range.name = reader.take();
  if (reader.take_if("<")) {
    range.count = reader.count();
    reader.expect(">");
  }
  reader.expect(";");
  return range;
}

// After ".shared" or ".local": ".align 16 .b8 name[bytes];", without a number if it is dynamic.
Variable read_variable(Reader& reader) {
  Variable variable;
  if (reader.take_if(".align")) variable.alignment = reader.size();
  reader.expect(".b8");
  variable.name = reader.take();
  reader.expect("[");
  if (reader.peek() != "]") variable.bytes = reader.size();
  reader.expect("]");
  reader.expect(";");
  return variable;
}

void add_registers(const Reader& reader, KernelText& kernel, const RegisterRange& added) {
  for (const RegisterRange& range : kernel.registers) {
    if (range.name != added.name) continue;
    if (range.bytes != added.bytes || range.count > 0 || added.count > 0) {
      reader.fail(fmt::format("the register '{}' has two types", added.name));
    }
    return;
  }
  kernel.registers.push_back(added);
}

void read_block(Reader& reader, KernelText& kernel) {
  reader.expect("{");
  while (!reader.take_if("}")) {
    const std::string_view word = reader.peek();
    if (word.empty()) reader.fail("the text ends in a kernel");
    if (word == "{") {
      read_block(reader, kernel);
    } else if (reader.take_if(".reg")) {
      add_registers(reader, kernel, read_registers(reader));
    } else if (reader.take_if(".shared")) {
      kernel.shared.push_back(read_variable(reader));
    } else if (reader.take_if(".local")) {
      kernel.local.push_back(read_variable(reader));
    } else if (reader.take_if(".pragma")) {
      reader.take();
      reader.expect(";");
    } else if (word[0] == '$') {
      kernel.labels[reader.take()] = kernel.statements.size();
      reader.expect(":");
    } else {
      kernel.statements.push_back(read_statement(reader));
    }
  }
}

// After ".entry".
KernelText read_kernel(Reader& reader) {
  KernelText kernel;
  kernel.name = reader.take();
  reader.expect("(");
  reader.expect(".param");
  reader.expect(".align");
  reader.take();
  reader.expect(".b8");
  kernel.parameter = reader.take();
  reader.expect("[");
  kernel.parameter_bytes = reader.size();
  reader.expect("]");
  reader.expect(")");
  if (reader.take_if(".maxntid")) {
    kernel.max_threads = reader.count();
    while (reader.take_if(",")) kernel.max_threads *= reader.count();
  }
  if (reader.take_if(".minnctapersm")) reader.count();  // limits registers, which ptxas allocates
  read_block(reader, kernel);
  return kernel;
}

}  // namespace

const KernelText& Module::kernel(std::string_view name) const {
  for (const KernelText& found : kernels) {
    if (found.name == name) return found;
  }
  throw_error(ErrorKind::not_found, "the module has no kernel '{}'", name);
}

Module parse(std::string_view text) {
  Module module;
  Reader reader(text);
  while (!reader.peek().empty()) {
    const std::string_view word = reader.take();
    if (word == ".version" || word == ".target" || word == ".address_size") {
      reader.take();
    } else if (word == ".extern" && reader.take_if(".shared")) {
      module.shared.push_back(read_variable(reader));
    } else if (word == ".visible" && reader.take_if(".entry")) {
      module.kernels.push_back(read_kernel(reader));
    } else {
      reader.fail(fmt::format("'{}' is not known here", word));
    }
  }
  return module;
}

}  // namespace ingot::ptx

#include "ops/testing/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "base/thread_pool.h"
#include "tensor/block_quant.h"
#include "tensor/fp8.h"
#include "tensor/tolerance.h"

namespace ingot::ops::testing {

Fill normal(double scale, double mean) {
  return [=](std::vector<double>& values, RandomStream& random) {
    for (double& value : values) value = mean + scale * random.normal();
  };
}

Fill integers(int64_t low, int64_t high) {
  return [=](std::vector<double>& values, RandomStream& random) {
    const uint64_t count = static_cast<uint64_t>(high - low) + 1;
    for (double& value : values) value = static_cast<double>(low + static_cast<int64_t>(random.below(count)));
  };
}

Fill fixed(std::vector<double> wanted) {
  return [wanted = std::move(wanted)](std::vector<double>& values, RandomStream&) { values = wanted; };
}

std::vector<double> absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

struct Drawn::State {
  std::function<Values()> make;
  Values values = {};
};

Drawn::Drawn(std::function<Values()> make) : state_(std::make_shared<State>(State{std::move(make)})) {}

Fill Drawn::operator[](size_t i) const {
  return [state = state_, i](std::vector<double>& values, RandomStream&) {
    if (state->values.empty()) state->values = state->make();
    values = state->values.at(i);
  };
}

OpCase timing(OpCase c) {
  c.timing_only = true;
  c.reference = {};
  c.gradients = {};
  return c;
}

OpCase large(OpCase c, std::initializer_list<size_t> drawn) {
  c = timing(std::move(c));
  c.large = true;
  for (const size_t i : drawn) c.operands[i].fill = normal();
  return c;
}

namespace {

OpCase in_f16(OpCase c) {
  c.name.replace(c.name.find("bf16"), 4, "f16");
  for (Operand& operand : c.operands) {
    if (operand.dtype == DType::bf16) operand.dtype = DType::f16;
  }
  return c;
}

std::vector<OpCase> f16_cases(const std::vector<OpCase>& cases) {
  std::vector<OpCase> all;
  for (const OpCase& c : cases) {
    const bool has = std::any_of(c.operands.begin(), c.operands.end(),
                                 [](const Operand& operand) { return operand.dtype == DType::bf16; });
    if (c.also_f16 && has && !c.large) all.push_back(in_f16(c));
  }
  return all;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> cases;
#define INGOT_CASES(noun) noun##_cases,
    for (const auto& cases_of_noun : {INGOT_OP_NOUNS(INGOT_CASES)}) {
      for (OpCase& c : cases_of_noun()) cases.push_back(std::move(c));
    }
#undef INGOT_CASES
    const std::vector<OpCase> halves = f16_cases(cases);
    cases.insert(cases.end(), halves.begin(), halves.end());
    return cases;
  }();
  return all;
}

namespace {

// Memory of one operand. If the host can access the device's memory, it is a heap allocation of exactly the operand's
// size, so that the address sanitizer detects a kernel that reads or writes past the end.
class Memory {
 public:
  Memory(Device& device, size_t bytes) : bytes_(bytes) {
    if (!device.host_visible()) {
      buffer_ = Buffer(device, bytes);
    } else if (posix_memalign(&heap_, 64, std::max<size_t>(bytes, 1)) != 0) {
      throw_error(ErrorKind::resource, "{} bytes of memory are needed", bytes);
    }
  }
  Memory(Memory&& other) noexcept
      : bytes_(other.bytes_), heap_(std::exchange(other.heap_, nullptr)), buffer_(std::move(other.buffer_)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() { std::free(heap_); }  // NOLINT: from posix_memalign

  void* data() const { return heap_ != nullptr ? heap_ : buffer_.data(); }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  void* heap_ = nullptr;
  Buffer buffer_;
};

template <class T>
void put(std::vector<std::byte>& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}
template <class T>
T get(const std::vector<std::byte>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

std::vector<std::byte> encode(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::f32: put(bytes, i, static_cast<float>(values[i])); break;
      case DType::f64: put(bytes, i, values[i]); break;
      case DType::bf16: put(bytes, i, float_to_bf16(static_cast<float>(values[i]))); break;
      case DType::f16: put(bytes, i, float_to_f16(static_cast<float>(values[i]))); break;
      case DType::i8: put(bytes, i, static_cast<int8_t>(values[i])); break;
      case DType::u8: put(bytes, i, static_cast<uint8_t>(values[i])); break;
      case DType::i32: put(bytes, i, static_cast<int32_t>(values[i])); break;
      case DType::i64: put(bytes, i, static_cast<int64_t>(values[i])); break;
    }
  }
  return bytes;
}

std::vector<double> decode(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::f32: values[i] = static_cast<double>(get<float>(bytes, i)); break;
      case DType::f64: values[i] = get<double>(bytes, i); break;
      case DType::bf16: values[i] = static_cast<double>(bf16_to_float(get<uint16_t>(bytes, i))); break;
      case DType::f16: values[i] = static_cast<double>(f16_to_float(get<uint16_t>(bytes, i))); break;
      case DType::i8: values[i] = get<int8_t>(bytes, i); break;
      case DType::u8: values[i] = get<uint8_t>(bytes, i); break;
      case DType::i32: values[i] = get<int32_t>(bytes, i); break;
      case DType::i64: values[i] = static_cast<double>(get<int64_t>(bytes, i)); break;
    }
  }
  return values;
}

bool is_real(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

// What outputs are filled with. Bytes have no value that no op computes, and no op has outputs of bytes.
std::vector<std::byte> poison(DType dtype, size_t count) {
  if (dtype == DType::i8 || dtype == DType::u8) throw_error(ErrorKind::internal, "an output of {}", name(dtype));
  const double value = is_real(dtype) ? std::numeric_limits<double>::quiet_NaN() : double{unwritten_integer};
  return encode(dtype, std::vector<double>(count, value));
}

// Encodes a weight's rows in a storage type that is not plain: from `values` where there is an encoder, else random
// blocks with scales of typical size.
std::vector<std::byte> encode_weight(Storage storage, const Shape& shape, const std::vector<double>& values,
                                     RandomStream& random) {
  const size_t row = row_bytes(storage, shape[1]);
  std::vector<std::byte> bytes(row * static_cast<size_t>(shape[0]));
  const std::vector<float> floats(values.begin(), values.end());
  const auto for_rows = [&](auto encode_row) {
    for (int64_t r = 0; r < shape[0]; ++r) {
      encode_row(floats.data() + r * shape[1], bytes.data() + static_cast<size_t>(r) * row);
    }
  };
  if (is_fp8(storage)) {
    for_rows([&](const float* from, std::byte* to) { encode_fp8(storage, from, shape[1], to); });
    return bytes;
  }
  const BlockCodec& codec = block_codec(storage);
  if (codec.encode != nullptr) {
    for_rows([&](const float* from, std::byte* to) { codec.encode(from, shape[1], to); });
    return bytes;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u32());
  const size_t block = block_bytes(storage);
  for (size_t begin = 0; begin < bytes.size(); begin += block) {
    const auto set_half = [&](size_t offset, double value) {
      const uint16_t half = float_to_f16(static_cast<float>(value));
      std::memcpy(bytes.data() + begin + offset, &half, sizeof half);
    };
    const bool last = storage == Storage::q6_k;
    set_half(last ? block - 2 : 0, 0.01 * random.normal());
    if (storage == Storage::q5_1 || storage == Storage::q4_k) set_half(2, 0.1 * random.normal());
  }
  return bytes;
}

std::vector<double> decode_weight(Storage storage, const Shape& shape, const std::vector<std::byte>& bytes) {
  std::vector<float> floats(static_cast<size_t>(shape.elements()));
  const size_t row = row_bytes(storage, shape[1]);
  for (int64_t r = 0; r < shape[0]; ++r) {
    const std::byte* from = bytes.data() + static_cast<size_t>(r) * row;
    float* to = floats.data() + r * shape[1];
    if (is_fp8(storage)) {
      decode_fp8(storage, from, shape[1], 0, shape[1], to);
    } else {
      block_codec(storage).decode(from, shape[1], to);
    }
  }
  return {floats.begin(), floats.end()};
}

DType plain_dtype(Storage storage) {
  switch (storage) {
    case Storage::f32: return DType::f32;
    case Storage::bf16: return DType::bf16;
    case Storage::f16: return DType::f16;
    default: throw_error(ErrorKind::internal, "{} is not a plain type", name(storage));
  }
}

// Number of random values that fill operands of a large case by repetition: prime, so that rows differ.
constexpr size_t pool_elements = 1'048'573;

// The operands of a case in a device's memory.
class Setting {
 public:
  Setting(Device& device, const OpCase& op_case, uint64_t seed) : device_(device), case_(op_case) {
    const size_t count = op_case.operands.size();
    values_.resize(count);
    arguments_.tensors.resize(count);
    arguments_.weights.resize(count);
    memory_.reserve(count);
    for (size_t i = 0; i < count; ++i) make(i, seed);
    for (size_t i = 0; i < count; ++i) {
      if (op_case.operands[i].alias >= 0) share(i);
    }
  }

  const Arguments& arguments() const { return arguments_; }
  const Values& before() const { return values_; }

  std::vector<std::byte> bytes_of(size_t i) const {
    const Tensor& tensor = arguments_.tensors[i];
    std::vector<std::byte> bytes(tensor.bytes());
    device_.copy_to_host(bytes.data(), tensor.data, bytes.size());
    return bytes;
  }
  std::vector<double> after(size_t i) const { return decode(case_.operands[i].dtype, bytes_of(i)); }
  void wait() const {
    std::byte one{};
    if (!memory_.empty()) device_.copy_to_host(&one, memory_[0].data(), std::min<size_t>(1, memory_[0].bytes()));
  }

 private:
  void make(size_t i, uint64_t seed) {
    const Operand& operand = case_.operands[i];
    RandomStream random(seed, i);
    const size_t count = static_cast<size_t>(operand.shape.elements());
    if (case_.large && !operand.storage && count > pool_elements) return make_large(i, random);
    std::vector<double> wanted(count);
    if (operand.role != Role::output) operand.fill(wanted, random);
    std::vector<std::byte> bytes;
    DType dtype = operand.dtype;
    if (operand.storage && !is_plain(*operand.storage)) {
      bytes = encode_weight(*operand.storage, operand.shape, wanted, random);
      values_[i] = decode_weight(*operand.storage, operand.shape, bytes);
    } else {
      if (operand.storage) dtype = plain_dtype(*operand.storage);
      bytes = operand.role == Role::output ? poison(dtype, count) : encode(dtype, wanted);
      values_[i] = decode(dtype, bytes);
    }
    memory_.emplace_back(device_, bytes.size());
    if (operand.absent) return;
    device_.copy_from_host(memory_[i].data(), bytes.data(), bytes.size());
    if (operand.storage) {
      arguments_.weights[i] = Weight{*operand.storage, memory_[i].data(), operand.shape[0], operand.shape[1], &device_};
    } else {
      arguments_.tensors[i] = Tensor{memory_[i].data(), dtype, operand.shape, &device_};
    }
  }

  // Fills the operand from a pool, without keeping its values on the host.
  void make_large(size_t i, RandomStream& random) {
    const Operand& operand = case_.operands[i];
    const size_t bytes = static_cast<size_t>(operand.shape.elements()) * size_of(operand.dtype);
    memory_.emplace_back(device_, bytes);
    if (operand.absent) return;
    std::vector<double> wanted(pool_elements);
    if (operand.role != Role::output) operand.fill(wanted, random);
    const std::vector<std::byte> pool =
        operand.role == Role::output ? poison(operand.dtype, wanted.size()) : encode(operand.dtype, wanted);
    auto* to = static_cast<std::byte*>(memory_[i].data());
    for (size_t at = 0; at < bytes; at += pool.size()) {
      device_.copy_from_host(to + at, pool.data(), std::min(pool.size(), bytes - at));
    }
    arguments_.tensors[i] = Tensor{memory_[i].data(), operand.dtype, operand.shape, &device_};
  }

  void share(size_t i) {
    const size_t other = static_cast<size_t>(case_.operands[i].alias);
    arguments_.tensors[i].data = arguments_.tensors[other].data;
    if (memory_[i].bytes() != memory_[other].bytes()) {
      throw_error(ErrorKind::internal, "{} shares memory with '{}', which has another size", case_.operands[i].name,
                  case_.name);
    }
  }

  Device& device_;
  const OpCase& case_;
  Values values_;
  Arguments arguments_;
  std::vector<Memory> memory_;
};

void run(ops::Context& context, const OpCase& op_case, const Setting& setting) {
  const int threads = context.threads != nullptr ? context.threads->threads() : 1;
  Arena scratch(context.device, op_case.scratch ? op_case.scratch(threads) : 0, "scratch memory of " + op_case.op);
  ops::Context own{context.device, context.registry, scratch, context.threads};
  op_case.run(own, setting.arguments());
  if (scratch.used() != 0)
    throw_error(ErrorKind::internal, "{} did not release {} bytes of scratch memory", op_case.op, scratch.used());
}

// Runs the case; declined when no implementation supports the call.
Verdict attempt(ops::Context& context, const OpCase& op_case, const Setting& setting) {
  try {
    run(context, op_case, setting);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    return {Outcome::declined, error.message()};
  }
  return {};
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// Error allowed in each element of an output.
std::vector<double> allowed_errors(const OpCase& op_case, DType dtype, const std::vector<double>& wanted,
                                   const Condition& condition) {
  std::vector<double> allowed(wanted.size(), 0.0);
  if (!is_real(dtype) || op_case.precision == Precision::exact) return allowed;
  const bool bounded = !condition.cancels && dtype != DType::f64;
  const double most = bounded ? tolerance(dtype, op_case.length) * largest(wanted) : 0.0;
  for (size_t e = 0; e < wanted.size(); ++e) {
    const ElementTerms terms{.wanted = wanted[e],
                             .condition = condition.sum.empty() ? std::abs(wanted[e]) : condition.sum.at(e),
                             .narrow = condition.narrow.empty() ? 0.0 : condition.narrow.at(e)};
    allowed[e] =
        element_tolerance(dtype, op_case.length, terms,
                          op_case.precision == Precision::rounded_once ? Rounding::nearest : Rounding::relative);
    if (bounded) allowed[e] = std::min(allowed[e], most);
  }
  return allowed;
}

}  // namespace

Verdict compare(ops::Context& context, const OpCase& op_case, uint64_t seed) {
  const Setting setting(context.device, op_case, seed);
  Verdict verdict = attempt(context, op_case, setting);
  if (verdict.outcome != Outcome::passed) return verdict;
  Values wanted = setting.before();
  Conditions conditions(wanted.size());
  op_case.reference(wanted, conditions);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Operand& operand = op_case.operands[i];
    if (operand.role == Role::input || operand.absent) continue;
    const std::vector<double> result = setting.after(i);
    if (op_case.precision == Precision::exact) wanted[i] = decode(operand.dtype, encode(operand.dtype, wanted[i]));
    const std::vector<double> allowed = allowed_errors(op_case, operand.dtype, wanted[i], conditions[i]);
    for (size_t e = 0; e < result.size(); ++e) {
      const double error = std::abs(result[e] - wanted[i][e]);
      if (error <= allowed[e] || (std::isnan(result[e]) && std::isnan(wanted[i][e])) || result[e] == wanted[i][e])
        continue;
      return {Outcome::failed,
              fmt::format("{} {}: {}[{}] is {:.9g}, the reference {:.9g}; error {:.3g}, allowed {:.3g}", op_case.op,
                          op_case.name, operand.name, e, result[e], wanted[i][e], error, allowed[e])};
    }
  }
  return {};
}

namespace {

// d/dh of sum(cotangent * forward(at + h direction)) at h = 0, by central differences.
double difference(const GradientCheck& check, const Values& values, const std::vector<double>& at,
                  const std::vector<double>& direction) {
  const double step = 1e-4;  // error of order step^2 and 1e-16 / step: both far below fp32's roundoff
  double total = 0;
  for (const double side : {1.0, -1.0}) {
    std::vector<double> moved = at;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += side * step * direction[i];
    const std::vector<double> result = check.forward(values, moved);
    for (size_t i = 0; i < result.size(); ++i) {
      total += side * result[i] * (check.cotangent == GradientCheck::none ? 1.0 : values[check.cotangent][i]);
    }
  }
  return total / (2 * step);
}

}  // namespace

Verdict check_gradients(ops::Context& context, const OpCase& op_case, uint64_t seed) {
  const Setting setting(context.device, op_case, seed);
  Verdict verdict = attempt(context, op_case, setting);
  if (verdict.outcome != Outcome::passed) return verdict;
  RandomStream random(seed, 1000);
  Values reference = setting.before();
  Conditions conditions(reference.size());
  op_case.reference(reference, conditions);
  for (const GradientCheck& check : op_case.gradients) {
    const Operand& operand = op_case.operands[check.gradient];
    std::vector<double> gradient = setting.after(check.gradient);
    const std::vector<double> allowed_of =
        allowed_errors(op_case, operand.dtype, reference[check.gradient], conditions[check.gradient]);
    if (operand.role == Role::inout) {  // the op accumulated into it
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] -= setting.before()[check.gradient][i];
    }
    const std::vector<double> at =
        check.input == GradientCheck::none ? std::vector<double>(gradient.size(), 0.0) : setting.before()[check.input];
    // The error of the difference quotient, of order 1e-8 of the function's third derivative, and of inputs that
    // depend on each other and were rounded to fp32.
    const double of_quotient = 2.0 * unit_roundoff(DType::f32) * largest(gradient);
    const int singles = static_cast<int>(std::min<size_t>(gradient.size(), 24));
    for (int trial = 0; trial < singles + 2; ++trial) {
      std::vector<double> direction(gradient.size(), 0.0);
      const bool single = trial < singles;
      if (single) {
        direction[static_cast<size_t>(random.below(direction.size()))] = 1.0;
      } else {
        for (double& x : direction) x = (random.next_u32() & 1U) != 0 ? 1.0 : -1.0;
      }
      double product = 0;
      double single_allowed = 0;
      double squares = 0;
      for (size_t i = 0; i < gradient.size(); ++i) {
        product += gradient[i] * direction[i];
        single_allowed += allowed_of[i] * std::abs(direction[i]);
        squares += std::pow(allowed_of[i] + of_quotient, 2);
      }
      const double wanted = difference(check, setting.before(), at, direction);
      // Errors have random signs, and most are much smaller than allowed.
      const double allowed = single ? single_allowed + of_quotient : 3 * std::sqrt(squares);
      const double error = std::abs(product - wanted);
      if (error <= allowed) continue;
      return {Outcome::failed,
              fmt::format(
                  "{} {}: {} along direction {} is {:.9g}, by finite differences {:.9g}; error {:.3g}, allowed {:.3g}",
                  op_case.op, op_case.name, operand.name, trial, product, wanted, error, allowed)};
    }
  }
  return {};
}

std::vector<std::vector<std::byte>> output_bytes(ops::Context& context, const OpCase& op_case, uint64_t seed) {
  const Setting setting(context.device, op_case, seed);
  std::vector<std::vector<std::byte>> all;
  if (attempt(context, op_case, setting).outcome != Outcome::passed) return all;
  for (size_t i = 0; i < op_case.operands.size(); ++i) {
    if (op_case.operands[i].role != Role::input && !op_case.operands[i].absent) all.push_back(setting.bytes_of(i));
  }
  return all;
}

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool has_poison(DType dtype, const std::byte* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32: return std::isnan(as(0.0F));
    case DType::f64: return std::isnan(as(0.0));
    case DType::bf16: return std::isnan(bf16_to_float(as(uint16_t{0})));
    case DType::f16: return std::isnan(f16_to_float(as(uint16_t{0})));
    case DType::i32: return as(int32_t{0}) == unwritten_integer;
    case DType::i64: return as(int64_t{0}) == unwritten_integer;
    default: return false;
  }
}

// Outputs were passed in filled with `poison`, so what is left of it means that an element was not written.
void expect_written(const OpCase& op_case, const Setting& setting) {
  for (size_t i = 0; i < op_case.operands.size(); ++i) {
    const Operand& operand = op_case.operands[i];
    if (operand.role == Role::input || operand.absent) continue;
    const std::vector<std::byte> bytes = setting.bytes_of(i);
    const size_t size = size_of(operand.dtype);
    for (size_t at = 0; at < bytes.size(); at += size) {
      if (!has_poison(operand.dtype, bytes.data() + at)) continue;
      throw_error(ErrorKind::internal, "{} {}: {}[{}] is {} or was not written", op_case.op, op_case.name, operand.name,
                  at / size, is_real(operand.dtype) ? "NaN" : fmt::to_string(unwritten_integer));
    }
  }
}

// Median seconds per call over batches of at least 10 ms, which is far above the cost of synchronisation.
double time_batches(ops::Context& context, const OpCase& op_case, const Setting& setting, double seconds) {
  const auto batch = [&](int calls) {
    const auto before = Clock::now();
    for (int call = 0; call < calls; ++call) op_case.run(context, setting.arguments());
    setting.wait();
    return since(before);
  };
  int calls = 1;
  for (double took = batch(1); took < 0.01 && calls < 10'000; took = batch(calls)) calls *= 2;
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < 5 || since(start) < seconds) times.push_back(batch(calls) / calls);
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

double time_case(ops::Context& context, const OpCase& op_case, double seconds) {
  const Setting setting(context.device, op_case, 1);
  const int threads = context.threads != nullptr ? context.threads->threads() : 1;
  Arena scratch(context.device, op_case.scratch ? op_case.scratch(threads) : 0, "scratch memory of " + op_case.op);
  ops::Context own{context.device, context.registry, scratch, context.threads};
  op_case.run(own, setting.arguments());
  if (op_case.large) expect_written(op_case, setting);
  if (!context.device.host_visible()) return time_batches(own, op_case, setting, seconds);
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  for (int call = 0; call < 5 || since(start) < seconds; ++call) {
    const auto before = Clock::now();
    op_case.run(own, setting.arguments());
    best = std::min(best, since(before));
  }
  return best;
}

namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double host_seconds(ops::Context& context, const OpCase& op_case, double seconds) {
  const Setting setting(context.device, op_case, 1);
  const int threads = context.threads != nullptr ? context.threads->threads() : 1;
  Arena scratch(context.device, op_case.scratch ? op_case.scratch(threads) : 0, "scratch memory of " + op_case.op);
  ops::Context own{context.device, context.registry, scratch, context.threads};
  constexpr int calls = 500;
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  for (int batch = 0; batch < 5 || since(start) < seconds; ++batch) {
    const double before = thread_seconds();
    for (int call = 0; call < calls; ++call) op_case.run(own, setting.arguments());
    best = std::min(best, (thread_seconds() - before) / calls);
  }
  return best;
}

}  // namespace ingot::ops::testing

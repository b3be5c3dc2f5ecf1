#include "ops/testing/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/testing/case_memory.h"
#include "tensor/tolerance.h"

namespace ingot::ops::testing {

namespace {

// Standard normal numbers to draw operands from: computing one for every element would take longer than the ops. Their
// number is prime, so that the rows of a larger operand differ.
const std::vector<double>& normal_pool() {
  static const std::vector<double> pool = [] {
    std::vector<double> values(65'521);
    RandomStream random(1, 0);
    for (double& value : values) value = random.normal();
    return values;
  }();
  return pool;
}

}  // namespace

Fill normal(double scale, double mean) {
  return [=](std::vector<double>& values, RandomStream& random) {
    const std::vector<double>& pool = normal_pool();
    size_t at = static_cast<size_t>(random.below(pool.size()));
    for (double& value : values) {
      value = mean + scale * pool[at];
      if (++at == pool.size()) at = 0;
    }
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
    if (operand.factors == DType::bf16) operand.factors = DType::f16;
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

Arena scratch_of(const ops::Context& context, const OpCase& op_case) {
  const int threads = context.threads != nullptr ? context.threads->threads() : 1;
  const size_t bytes = op_case.scratch ? op_case.scratch(threads, context.device.host_visible()) : 0;
  return Arena(context.device, bytes, "scratch memory of " + op_case.op);
}

void run(ops::Context& context, const OpCase& op_case, const CaseMemory& memory) {
  Arena scratch = scratch_of(context, op_case);
  ops::Context own{context.device, context.registry, scratch, context.threads};
  op_case.run(own, memory.arguments());
  if (scratch.used() != 0)
    throw_error(ErrorKind::internal, "{} did not release {} bytes of scratch memory", op_case.op, scratch.used());
}

// Runs the case; declined when no implementation supports the call.
Verdict attempt(ops::Context& context, const OpCase& op_case, const CaseMemory& memory) {
  try {
    run(context, op_case, memory);
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
    if (!std::isfinite(wanted[e])) continue;  // only the same value will do
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

OutputBytes output_bytes(const OpCase& op_case, const CaseMemory& memory) {
  OutputBytes all;
  for (size_t i = 0; i < op_case.operands.size(); ++i) {
    if (op_case.operands[i].role != Role::input && !op_case.operands[i].absent) all.push_back(memory.bytes_of(i));
  }
  return all;
}

}  // namespace

Verdict compare(ops::Context& context, const OpCase& op_case, uint64_t seed, OutputBytes* bytes) {
  const CaseMemory memory(context.device, op_case, seed);
  Verdict verdict = attempt(context, op_case, memory);
  if (bytes != nullptr) *bytes = {};
  if (verdict.outcome != Outcome::passed) return verdict;
  if (bytes != nullptr) *bytes = output_bytes(op_case, memory);
  Values wanted = memory.before();
  Conditions conditions(wanted.size());
  op_case.reference(wanted, conditions);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Operand& operand = op_case.operands[i];
    if (operand.role == Role::input || operand.absent) continue;
    const std::vector<double> result = memory.after(i);
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
  const CaseMemory memory(context.device, op_case, seed);
  Verdict verdict = attempt(context, op_case, memory);
  if (verdict.outcome != Outcome::passed) return verdict;
  RandomStream random(seed, 1000);
  Values reference = memory.before();
  Conditions conditions(reference.size());
  op_case.reference(reference, conditions);
  for (const GradientCheck& check : op_case.gradients) {
    const Operand& operand = op_case.operands[check.gradient];
    std::vector<double> gradient = memory.after(check.gradient);
    const std::vector<double> allowed_of =
        allowed_errors(op_case, operand.dtype, reference[check.gradient], conditions[check.gradient]);
    if (operand.role == Role::inout) {  // the op accumulated into it
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] -= memory.before()[check.gradient][i];
    }
    const std::vector<double> at =
        check.input == GradientCheck::none ? std::vector<double>(gradient.size(), 0.0) : memory.before()[check.input];
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
      const double wanted = difference(check, memory.before(), at, direction);
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

OutputBytes output_bytes(ops::Context& context, const OpCase& op_case, uint64_t seed) {
  const CaseMemory memory(context.device, op_case, seed);
  if (attempt(context, op_case, memory).outcome != Outcome::passed) return {};
  return output_bytes(op_case, memory);
}

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Outputs were passed in filled with `poison`, so what is left of it means that an element was not written.
void expect_written(const OpCase& op_case, const CaseMemory& memory) {
  for (size_t i = 0; i < op_case.operands.size(); ++i) {
    const Operand& operand = op_case.operands[i];
    if (operand.role == Role::input || operand.absent) continue;
    const std::vector<std::byte> bytes = memory.bytes_of(i);
    const size_t size = size_of(operand.dtype);
    for (size_t at = 0; at < bytes.size(); at += size) {
      if (!has_poison(operand.dtype, bytes.data() + at)) continue;
      throw_error(ErrorKind::internal, "{} {}: {}[{}] is {} or was not written", op_case.op, op_case.name, operand.name,
                  at / size, is_real(operand.dtype) ? "NaN" : fmt::to_string(unwritten_integer));
    }
  }
}

// Median seconds per call over batches of at least 10 ms, which is far above the cost of synchronisation.
double time_batches(ops::Context& context, const OpCase& op_case, const CaseMemory& memory, double seconds) {
  const auto batch = [&](int calls) {
    const auto before = Clock::now();
    for (int call = 0; call < calls; ++call) op_case.run(context, memory.arguments());
    memory.wait();
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
  const CaseMemory memory(context.device, op_case, 1);
  Arena scratch = scratch_of(context, op_case);
  ops::Context own{context.device, context.registry, scratch, context.threads};
  op_case.run(own, memory.arguments());
  if (op_case.large) expect_written(op_case, memory);
  if (!context.device.host_visible()) return time_batches(own, op_case, memory, seconds);
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  for (int call = 0; call < 5 || since(start) < seconds; ++call) {
    const auto before = Clock::now();
    op_case.run(own, memory.arguments());
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
  const CaseMemory memory(context.device, op_case, 1);
  Arena scratch = scratch_of(context, op_case);
  ops::Context own{context.device, context.registry, scratch, context.threads};
  constexpr int calls = 500;
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  for (int batch = 0; batch < 5 || since(start) < seconds; ++batch) {
    const double before = thread_seconds();
    for (int call = 0; call < calls; ++call) op_case.run(own, memory.arguments());
    best = std::min(best, (thread_seconds() - before) / calls);
  }
  return best;
}

}  // namespace ingot::ops::testing

// The op table: what every op is tried on. One entry serves four uses: compare with a double-precision reference, check
// a backward against differences of its forward, time, and list support. A noun's cases are in cases_NOUN.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "ops/context.h"
#include "ops/registry.h"
#include "tensor/weight.h"

namespace ingot::bench {

// Per operand its elements, exactly as the op is given them.
using Values = std::vector<std::vector<double>>;
using Fill = std::function<void(std::vector<double>& values, RandomStream& random)>;

Fill normal(double scale = 1.0, double mean = 0.0);
Fill integers(int64_t low, int64_t high);  // uniform in [low, high]
Fill fixed(std::vector<double> values);

// Values of several operands that belong together, made when the first of them is asked for: a program that holds every
// case and runs few should not pay for all.
class Drawn {
 public:
  explicit Drawn(std::function<Values()> make);
  Fill operator[](size_t i) const;  // fills with the i-th

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// output: handed over filled with NaN (largest integers), to be assigned. inout: handed over with its fill.
enum class Role { input, output, inout };

struct Operand {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Role role = Role::input;
  Fill fill = normal();
  std::optional<Storage> storage = {};  // a weight of shape [out, in]; `dtype` means nothing then
  int alias = -1;                       // the operand whose memory this one shares, of one type and size
  bool absent = false;                  // the op is given no tensor
};

// What `OpCase::run` hands to the op, by operand.
struct Arguments {
  std::vector<Tensor> tensors;
  std::vector<Weight> weights;  // of operands with a storage
  const Tensor& operator[](size_t operand) const { return tensors[operand]; }
};

// Checks operand `gradient`, which the op computed, as the gradient with respect to `at` of
// sum(cotangent * forward(at)).
struct GradientCheck {
  static constexpr size_t none = static_cast<size_t>(-1);
  size_t gradient = none;
  size_t input = none;      // the operand at whose value it is taken; none: zeros (for forwards that are linear)
  size_t cotangent = none;  // none: ones
  std::function<std::vector<double>(const Values& values, const std::vector<double>& at)> forward = {};
};

struct OpCase {
  std::string op;    // the registry's name
  std::string name;  // within the op, for people: "bf16 T=3 H=17"
  std::vector<Operand> operands;
  std::function<void(ops::Context&, const Arguments&)> run;
  // Computes the outputs in double from the inputs, written otherwise than the kernels. `scale` is by operand what
  // errors are a share of; where it is left at 0 the largest absolute result is taken (see tensor/tolerance.h).
  std::function<void(Values& values, std::vector<double>& scale)> reference = {};
  int64_t length = 1;  // fp32 terms summed for an element of the result
  std::vector<GradientCheck> gradients = {};
  std::function<size_t(int threads)> scratch = {};  // bytes; none when not given
  // For timing: work and traffic of a call. Cases with timing_only have no reference.
  bool timing_only = false;
  bool large = false;  // timing_only, and sized for a GPU: beyond its caches, and beyond what a launch costs
  double flops = 0;
  double bytes = 0;
};

// The case for timing alone: without reference and gradient checks.
OpCase timing(OpCase c);

// The same, sized for a GPU. Operands of many elements get a pool of draws laid down again and again; `drawn` are those
// whose values belong together in the case: they get normal numbers of their own, which serves for timing.
OpCase large(OpCase c, std::initializer_list<size_t> drawn = {});

// Every case of every op.
const std::vector<OpCase>& op_cases();

std::vector<OpCase> adamw_cases();
std::vector<OpCase> cross_entropy_cases();
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> fixed_sum_cases();
std::vector<OpCase> rms_norm_cases();
std::vector<OpCase> rope_cases();
std::vector<OpCase> layer_norm_cases();
std::vector<OpCase> glu_cases();
std::vector<OpCase> activation_cases();
std::vector<OpCase> columns_cases();
std::vector<OpCase> moe_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> matmul_cases();
std::vector<OpCase> linear_fp8_cases();
std::vector<OpCase> lora_cases();
std::vector<OpCase> sampling_cases();

enum class Outcome { passed, failed, declined };
struct Verdict {
  Outcome outcome = Outcome::passed;
  std::string text;  // what is wrong, or why the op declined
};

// Runs the case on the registry and device of the context (its scratch is not used: the case brings its own) and
// compares every output with the reference.
Verdict compare(ops::Context& context, const OpCase& op_case, uint64_t seed = 1);
// As `compare`, for the case's gradient checks: central differences of `forward` in double along unit vectors and
// random directions.
Verdict check_gradients(ops::Context& context, const OpCase& op_case, uint64_t seed = 1);
// Bytes of every output, for comparisons bit by bit; empty when no implementation takes the call.
std::vector<std::vector<std::byte>> output_bytes(ops::Context& context, const OpCase& op_case, uint64_t seed = 1);
// Seconds of a call: on a CPU the shortest, over calls that take `seconds` together and five at least; on a GPU the
// median over batches of calls, each batch waited for once, so that launches overlap as they do in a step.
// ErrorKind::internal when a large case leaves an element of an output NaN or unwritten.
double time_case(ops::Context& context, const OpCase& op_case, double seconds);

}  // namespace ingot::bench

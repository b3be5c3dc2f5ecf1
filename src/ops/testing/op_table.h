// The op table: test cases of every op. Each entry has four uses: comparison with a double-precision reference, a check
// of a backward op against finite differences of its forward, timing, and the support matrix. The cases of NOUN are in
// cases_NOUN.cpp.
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

namespace ingot::ops::testing {

// The elements of each operand, exactly as passed to the op.
using Values = std::vector<std::vector<double>>;
using Fill = std::function<void(std::vector<double>& values, RandomStream& random)>;

// Consecutive numbers of one pool of 65,521 normal numbers, from a random one on.
Fill normal(double scale = 1.0, double mean = 0.0);
Fill integers(int64_t low, int64_t high);  // uniform in [low, high]
Fill fixed(std::vector<double> values);

std::vector<double> absolute(std::vector<double> values);  // of each element

// Values of several operands that depend on each other, computed when the first one is requested, so that a program
// that holds every case and runs few does not compute all of them.
class Drawn {
 public:
  explicit Drawn(std::function<Values()> make);
  Fill operator[](size_t i) const;  // fills with the values of operand i

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// output: passed to the op filled with NaN (integers: unwritten_integer), to be assigned. inout: passed with the values
// of its `fill`.
enum class Role { input, output, inout };

// What integer outputs are filled with: no op computes it, so an element that still has it was not written.
inline constexpr int32_t unwritten_integer = -1'234'567'891;

struct Operand {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Role role = Role::input;
  Fill fill = normal();
  std::optional<StorageType> storage = {};  // set for a weight of shape [out, in]; `dtype` is then unused
  int alias = -1;                           // index of the operand whose memory this one shares; same type and size
  bool absent = false;                      // the op gets an empty tensor
  DType factors = DType::f32;               // of an f32 output: the type to which factors of its terms may be rounded
};

// The arguments that `OpCase::run` passes to the op, by operand index.
struct Arguments {
  std::vector<Tensor> tensors;
  std::vector<Weight> weights;  // for operands with a storage
  const Tensor& operator[](size_t operand) const { return tensors[operand]; }
};

// Checks operand `gradient`, which the op computed, as the gradient with respect to `at` of
// sum(cotangent * forward(at)).
struct GradientCheck {
  static constexpr size_t none = static_cast<size_t>(-1);
  size_t gradient = none;
  size_t input = none;      // operand at whose value the gradient is taken; none: zeros (for linear forwards)
  size_t cotangent = none;  // none: ones
  std::function<std::vector<double>(const Values& values, const std::vector<double>& at)> forward = {};
};

// The sizes of the terms of an output, by element, to which rounding errors are proportional (tensor/tolerance.h).
struct Condition {
  // Sum of the absolute values of the terms that are added in fp32, each times (1 + the relative condition of its own
  // computation): for a gemm the sum of |a| |b|. Empty: |wanted|, as for an op that computes an element from factors.
  std::vector<double> sum;
  // The same over terms that the contract allows to be rounded to the output's 16-bit type before they are added.
  // Empty: none.
  std::vector<double> narrow;
  // Whether the largest element, too, may be small compared with its terms, as in a product with few elements. If not,
  // no element is allowed more than tolerance() times the largest |wanted|.
  bool cancels = false;
};

using Conditions = std::vector<Condition>;

// How outputs are compared with the reference.
//   computed: within element_tolerance with Rounding::relative.
//   rounded_once: the same with Rounding::nearest, where a header says so.
//   exact: equal to the reference's values rounded to the output's type, for ops that copy or convert.
enum class Precision { computed, rounded_once, exact };

struct OpCase {
  std::string op;    // the op's name in the registry
  std::string name;  // name within the op, for display: "bf16 T=3 H=17"
  std::vector<Operand> operands;
  std::function<void(ops::Context&, const Arguments&)> run;
  // Computes the outputs in double from the inputs, written differently from the kernels, and their conditions, by
  // operand.
  std::function<void(Values& values, Conditions& conditions)> reference = {};
  int64_t length = 1;  // number of fp32 terms summed for one element of the result
  Precision precision = Precision::computed;
  std::vector<GradientCheck> gradients = {};
  std::function<size_t(int threads, bool host_visible)> scratch = {};  // scratch bytes; zero when not given
  // For an op of inference: if the case has bf16 operands and is not large, the table also has it with f16 instead.
  bool also_f16 = false;
  // For timing: FLOPs and memory traffic of one call. Cases with timing_only have no reference.
  bool timing_only = false;
  bool large = false;  // timing_only, and sized for a GPU: exceeds its caches, and runs long compared with a launch
  double flops = 0;
  double bytes = 0;
};

// Returns the case for timing only: without reference and gradient checks.
OpCase timing(OpCase c);

// The same, sized for a GPU. Large operands are filled with repetitions of one pool of random values; the operands in
// `drawn`, whose values depend on each other in the case, get independent normal numbers, which suffices for timing.
OpCase large(OpCase c, std::initializer_list<size_t> drawn = {});

// All cases of all ops.
const std::vector<OpCase>& op_cases();

// NOUN_cases() of every noun of ops/op_list.h, defined in cases_NOUN.cpp.
#define INGOT_DECLARE(noun) std::vector<OpCase> noun##_cases();
INGOT_OP_NOUNS(INGOT_DECLARE)
#undef INGOT_DECLARE

enum class Outcome { passed, failed, declined };
struct Verdict {
  Outcome outcome = Outcome::passed;
  std::string text;  // the mismatch, or why the op declined
};

// Bytes of every output.
using OutputBytes = std::vector<std::vector<std::byte>>;

// Runs the case with the context's registry and device (its scratch is not used: the case allocates its own) and
// compares every element of every output with the reference. `bytes`, if given, gets those of the outputs, or nothing
// when the op declined.
Verdict compare(ops::Context& context, const OpCase& op_case, uint64_t seed = 1, OutputBytes* bytes = nullptr);
// As `compare`, for the case's gradient checks: central differences of `forward` in double along unit vectors and
// random directions, each within the sum of what `compare` allows its elements.
Verdict check_gradients(ops::Context& context, const OpCase& op_case, uint64_t seed = 1);
// For bitwise comparisons; empty when no implementation supports the call.
OutputBytes output_bytes(ops::Context& context, const OpCase& op_case, uint64_t seed = 1);
// Seconds per call. On a CPU: the minimum over at least five calls that together take `seconds`. On a GPU: the median
// over batches of calls with one synchronisation per batch, so that launches overlap as in a training step.
// ErrorKind::internal when a large case leaves an output element NaN or unwritten_integer.
double time_case(ops::Context& context, const OpCase& op_case, double seconds);
// Processor seconds of the calling thread per call, the minimum over at least five batches of calls that together take
// `seconds`: with Registry::without_kernels, the cost of argument checks and dispatch. ErrorKind::unsupported when no
// implementation supports the call.
double host_seconds(ops::Context& context, const OpCase& op_case, double seconds);

}  // namespace ingot::ops::testing

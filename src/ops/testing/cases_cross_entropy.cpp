#include "base/error.h"
#include "ops/cross_entropy.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

// -log softmax of the target, by shifted sums in long double; 0 for target -1.
double loss_of(const std::vector<double>& logits, size_t t, size_t width, double target) {
  if (target < 0) return 0.0;
  long double total = 0;
  const double shift = logits[t * width + static_cast<size_t>(target)];
  for (size_t i = 0; i < width; ++i) total += std::exp(static_cast<long double>(logits[t * width + i] - shift));
  return static_cast<double>(std::log(total));
}

// An absolute error of x is a relative error of exp(x); x is a logit minus the largest one. A relative error of the sum
// of exponentials is an absolute error of its log.
void add_conditions(const Values& v, size_t t, size_t width, Conditions& conditions) {
  const double* row = v[2].data() + t * width;
  const double top = *std::max_element(row, row + width);
  const double target = v[3][t];
  double weight = 0;
  double sum_error = 0;
  for (size_t i = 0; i < width; ++i) {
    weight += std::exp(row[i] - top);
    sum_error += std::exp(row[i] - top) * (top - row[i]);
  }
  sum_error = sum_error / weight + std::sqrt(static_cast<double>(width));
  conditions[0].sum.push_back(target < 0 ? 0.0 : top - row[static_cast<size_t>(target)] + std::log(weight) + sum_error);
  for (size_t i = 0; i < width; ++i) {
    const double hot = target == static_cast<double>(i) ? 1.0 : 0.0;
    const double share = std::exp(row[i] - top) / weight;
    conditions[1].sum.push_back(target < 0 ? 0.0 : hot + share * (2.0 + (top - row[i]) + sum_error));
  }
}

enum class Result { none, f32, bf16, in_place };

OpCase cross_entropy_case(Result result, int64_t tokens, int64_t vocabulary, double spread) {
  constexpr const char* names[] = {"losses only", "dlogits f32", "dlogits bf16", "dlogits in place"};
  OpCase c{.op = "cross_entropy",
           .name = fmt::format("{} T={} V={}", names[static_cast<int>(result)], tokens, vocabulary)};
  const DType dtype = result == Result::bf16 ? DType::bf16 : DType::f32;
  c.operands = {{"losses", DType::f32, {tokens}, Role::output},
                {"dlogits", dtype, {tokens, vocabulary}, Role::output},
                {"logits", DType::f32, {tokens, vocabulary}, Role::input, normal(spread)},
                {"targets", DType::i32, {tokens}, Role::input, integers(-1, vocabulary - 1)}};
  c.operands[1].absent = result == Result::none;
  c.operands[1].alias = result == Result::in_place ? 2 : -1;
  c.run = [](ops::Context& context, const Arguments& a) { ops::cross_entropy(context, a[0], a[1], a[2], a[3]); };
  const size_t width = static_cast<size_t>(vocabulary);
  c.reference = [width](Values& v, Conditions& conditions) {
    conditions[0].cancels = conditions[1].cancels = true;
    for (size_t t = 0; t < v[0].size(); ++t) {
      v[0][t] = loss_of(v[2], t, width, v[3][t]);
      for (size_t i = 0; i < width; ++i) {
        // log p(i) is minus the loss for target i.
        const double share = std::exp(-loss_of(v[2], t, width, static_cast<double>(i)));
        const double hot = v[3][t] == static_cast<double>(i) ? 1.0 : 0.0;
        v[1][t * width + i] = v[3][t] < 0 ? 0.0 : share - hot;
      }
      add_conditions(v, t, width, conditions);
    }
  };
  c.length = vocabulary;
  if (result == Result::f32 || result == Result::bf16) {
    c.gradients = {{.gradient = 1, .input = 2, .forward = [width](const Values& v, const std::vector<double>& logits) {
                      std::vector<double> losses(v[3].size());
                      for (size_t t = 0; t < losses.size(); ++t) losses[t] = loss_of(logits, t, width, v[3][t]);
                      return losses;
                    }}};
  }
  c.flops = 8.0 * static_cast<double>(tokens * vocabulary);
  c.bytes = static_cast<double>(tokens * vocabulary) * static_cast<double>(sizeof(float) + size_of(dtype));
  return c;
}

// Of a part of the vocabulary that begins at `first`; targets are of the part, of others, or -1.
OpCase log_sum_exp_case(int64_t tokens, int64_t vocabulary, int64_t first, double spread) {
  OpCase c{.op = "log_sum_exp", .name = fmt::format("T={} V={} first={}", tokens, vocabulary, first)};
  c.operands = {{"lse", DType::f32, {tokens}, Role::output},
                {"at_target", DType::f32, {tokens}, Role::output},
                {"logits", DType::f32, {tokens, vocabulary}, Role::input, normal(spread)},
                {"targets", DType::i32, {tokens}, Role::input, integers(-1, first + 2 * vocabulary)}};
  c.run = [first](ops::Context& context, const Arguments& a) {
    ops::log_sum_exp(context, a[0], a[1], a[2], a[3], first);
  };
  const size_t width = static_cast<size_t>(vocabulary);
  c.reference = [width, first](Values& v, Conditions& conditions) {
    conditions[0].cancels = true;
    for (size_t t = 0; t < v[0].size(); ++t) {
      const double* row = v[2].data() + t * width;
      const double top = *std::max_element(row, row + width);
      long double total = 0;
      for (size_t i = 0; i < width; ++i) total += std::exp(static_cast<long double>(row[i] - top));
      v[0][t] = static_cast<double>(std::log(total)) + top;
      const double place = v[3][t] - static_cast<double>(first);
      v[1][t] = place >= 0 && place < static_cast<double>(width) ? row[static_cast<size_t>(place)] : 0.0;
      double sum_error = 0;
      for (size_t i = 0; i < width; ++i) sum_error += std::exp(row[i] - top) * (top - row[i]);
      conditions[0].sum.push_back(std::abs(top) + static_cast<double>(std::log(total)) +
                                  sum_error / static_cast<double>(total) + std::sqrt(static_cast<double>(width)));
      conditions[1].sum.push_back(std::abs(v[1][t]));
    }
  };
  c.length = vocabulary;
  c.flops = 4.0 * static_cast<double>(tokens * vocabulary);
  c.bytes = static_cast<double>(tokens * vocabulary) * static_cast<double>(sizeof(float));
  return c;
}

OpCase softmax_gradient_case(Result result, int64_t tokens, int64_t vocabulary, int64_t first) {
  constexpr const char* names[] = {"", "f32", "bf16", "in place"};
  OpCase c{.op = "softmax_gradient",
           .name = fmt::format("{} T={} V={} first={}", names[static_cast<int>(result)], tokens, vocabulary, first)};
  const DType dtype = result == Result::bf16 ? DType::bf16 : DType::f32;
  c.operands = {{"dlogits", dtype, {tokens, vocabulary}, Role::output},
                {"logits", DType::f32, {tokens, vocabulary}, Role::input, normal()},
                {"lse", DType::f32, {tokens}, Role::input, normal(4)},
                {"targets", DType::i32, {tokens}, Role::input, integers(-1, first + 2 * vocabulary)}};
  c.operands[0].alias = result == Result::in_place ? 1 : -1;
  c.run = [first](ops::Context& context, const Arguments& a) {
    ops::softmax_gradient(context, a[0], a[1], a[2], a[3], first);
  };
  const size_t width = static_cast<size_t>(vocabulary);
  c.reference = [width, first](Values& v, Conditions& conditions) {
    conditions[0].cancels = true;
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double target = v[3][i / width], x = v[1][i] - v[2][i / width];
      const double hot = target == static_cast<double>(first) + static_cast<double>(i % width) ? 1.0 : 0.0;
      v[0][i] = target < 0 ? 0.0 : std::exp(x) - hot;
      conditions[0].sum.push_back(target < 0 ? 0.0 : hot + std::exp(x) * (2.0 + std::abs(v[1][i]) + std::abs(x)));
    }
  };
  c.length = 1;
  c.flops = 4.0 * static_cast<double>(tokens * vocabulary);
  c.bytes = static_cast<double>(tokens * vocabulary) * static_cast<double>(sizeof(float) + size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> cross_entropy_cases() {
  std::vector<OpCase> cases;
  for (const Result result : {Result::none, Result::f32, Result::bf16, Result::in_place}) {
    for (const auto& [tokens, vocabulary] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 2}, {17, 33}, {5, 131}, {3, 64}, {0, 5}}) {
      cases.push_back(cross_entropy_case(result, tokens, vocabulary, 1.0));
    }
    cases.push_back(cross_entropy_case(result, 3, 97, 60.0));  // exponentials that underflow
    cases.push_back(cross_entropy_case(result, 128, 49152, 1.0));
    cases.back().timing_only = true;
    cases.back().gradients.clear();
  }
  for (const int64_t first : {0, 40}) {
    for (const auto& [tokens, vocabulary] : {std::pair<int64_t, int64_t>{1, 1}, {17, 33}, {5, 131}, {3, 64}, {0, 5}}) {
      cases.push_back(log_sum_exp_case(tokens, vocabulary, first, 1.0));
      for (const Result result : {Result::f32, Result::bf16, Result::in_place})
        cases.push_back(softmax_gradient_case(result, tokens, vocabulary, first));
    }
  }
  cases.push_back(log_sum_exp_case(3, 97, 0, 60.0));
  cases.push_back(timing(log_sum_exp_case(128, 24576, 0, 1.0)));
  cases.push_back(timing(softmax_gradient_case(Result::bf16, 128, 24576, 0)));
  // A whole micro-batch with Llama 3's vocabulary, and the chunk of it in which the loss is computed
  // (spec::loss_chunk).
  for (const int64_t tokens : {4096, 130}) {
    cases.push_back(large(cross_entropy_case(Result::in_place, tokens, 128256, 1.0)));
  }
  return cases;
}

}  // namespace ingot::ops::testing

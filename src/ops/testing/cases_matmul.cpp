#include <limits>

#include "base/error.h"
#include "ops/linear_bias.h"
#include "ops/linear_low_rank.h"
#include "ops/matmul.h"
#include "ops/matmul_bytes.h"
#include "ops/testing/linear_types.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

struct Sizes {
  int64_t m, n, k;
};

// c [m, n] (+)= a [m, k] b [k, n] by outer products, in double, and terms [m, n] (+)= |a| |b| unless it is empty.
// Element (i, k) of a is a[i * a_row + k * a_column].
void reference_gemm(const Sizes& s, std::vector<double>& c, std::vector<double>& terms, const std::vector<double>& a,
                    int64_t a_row, int64_t a_column, const std::vector<double>& b, int64_t b_row, int64_t b_column) {
  const bool with_terms = !terms.empty();
  for (int64_t k = 0; k < s.k; ++k) {
    for (int64_t i = 0; i < s.m; ++i) {
      const double left = a[static_cast<size_t>(i * a_row + k * a_column)];
      for (int64_t j = 0; j < s.n; ++j) {
        const double term = left * b[static_cast<size_t>(k * b_row + j * b_column)];
        c[static_cast<size_t>(i * s.n + j)] += term;
        if (with_terms) terms[static_cast<size_t>(i * s.n + j)] += std::abs(term);
      }
    }
  }
}

const char* form(const ops::MatmulAttributes& attributes) {
  if (attributes.transpose_a) return attributes.transpose_b ? "TT" : "TN";
  return attributes.transpose_b ? "NT" : "NN";
}

OpCase matmul_case(DType out, DType in, Sizes s, ops::MatmulAttributes attributes) {
  OpCase c{.op = "matmul",
           .name = fmt::format("{} x {} to {} {} M={} N={} K={}{}", name(in), name(in), name(out), form(attributes),
                               s.m, s.n, s.k, attributes.accumulate ? " accumulate" : "")};
  c.operands = {{"c", out, {s.m, s.n}, attributes.accumulate ? Role::inout : Role::output},
                {"a", in, attributes.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}},
                {"b", in, attributes.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}}};
  c.run = [attributes](ops::Context& context, const Arguments& a) {
    ops::matmul(context, a[0], a[1], a[2], attributes);
  };
  c.reference = [attributes, s](Values& v, Conditions& conditions) {
    if (!attributes.accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    conditions[0] = {.sum = absolute(v[0]), .cancels = true};
    reference_gemm(s, v[0], conditions[0].sum, v[1], attributes.transpose_a ? 1 : s.k, attributes.transpose_a ? s.m : 1,
                   v[2], attributes.transpose_b ? 1 : s.n, attributes.transpose_b ? s.k : 1);
  };
  c.length = s.k + 1;
  c.flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
  c.bytes = static_cast<double>((s.m + s.n) * s.k) * static_cast<double>(size_of(in)) +
            static_cast<double>(s.m * s.n) * static_cast<double>(size_of(out));
  return c;
}

bool decoded(StorageType storage, DType activation) {
  return storage != (activation == DType::f32    ? StorageType::f32
                     : activation == DType::bf16 ? StorageType::bf16
                                                 : StorageType::f16);
}

struct LinearSizes {
  int64_t tokens, out, in;
};

std::string linear_name(DType result, DType given, StorageType storage, LinearSizes s, bool accumulate) {
  return fmt::format("{} x {} to {} T={} out={} in={}{}", name(given), name(storage), name(result), s.tokens, s.out,
                     s.in, accumulate ? " accumulate" : "");
}

// Both linear ops: `backward` multiplies by W instead of its transpose. `prefer_skinny`: as in serving.
OpCase linear_case(bool backward, DType result, DType given, StorageType storage, LinearSizes s, bool accumulate,
                   bool prefer_skinny = false) {
  OpCase c{.op = backward ? "linear_backward_input" : "linear",
           .name = linear_name(result, given, storage, s, accumulate) + (prefer_skinny ? " mostly few" : "")};
  const int64_t width = backward ? s.in : s.out;
  const int64_t k = backward ? s.out : s.in;
  c.operands = {{backward ? "dx" : "y", result, {s.tokens, width}, accumulate ? Role::inout : Role::output},
                {backward ? "dy" : "x", given, {s.tokens, k}},
                {"weight", DType::u8, {s.out, s.in}, Role::input, normal(), storage}};
  const ops::LinearAttributes attributes{
      .accumulate = accumulate, .row_invariant = prefer_skinny, .prefer_skinny = prefer_skinny};
  c.run = [=](ops::Context& context, const Arguments& a) {
    if (backward) {
      ops::linear_backward_input(context, a[0], a[1], a.weights[2], attributes);
    } else {
      ops::linear(context, a[0], a[1], a.weights[2], attributes);
    }
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    std::vector<double> weight = v[2];
    for (double& w : weight) w = rounded_to(given, w);
    if (!accumulate) std::fill(v[0].begin(), v[0].end(), 0.0);
    conditions[0] = {.sum = absolute(v[0]), .cancels = true};
    reference_gemm({s.tokens, width, k}, v[0], conditions[0].sum, v[1], k, 1, weight, backward ? s.in : 1,
                   backward ? 1 : s.in);
  };
  c.length = k + 1;
  if (backward) {
    c.precision = Precision::rounded_once;
    c.gradients = {{.gradient = 0, .cotangent = 1, .forward = [=](const Values& v, const std::vector<double>& x) {
                      std::vector<double> y(static_cast<size_t>(s.tokens * s.out), 0.0);
                      for (int64_t t = 0; t < s.tokens; ++t) {
                        for (int64_t o = 0; o < s.out; ++o) {
                          double& sum = y[static_cast<size_t>(t * s.out + o)];
                          for (int64_t i = 0; i < s.in; ++i) {
                            sum += x[static_cast<size_t>(t * s.in + i)] *
                                   rounded_to(given, v[2][static_cast<size_t>(o * s.in + i)]);
                          }
                        }
                      }
                      return y;
                    }}};
  }
  c.scratch = [=](int, bool host_visible) {
    return ops::linear_bytes(s.tokens, s.out, s.in, size_of(given), decoded(storage, given), host_visible);
  };
  c.flops = 2.0 * static_cast<double>(s.tokens * s.out * s.in);
  c.bytes = static_cast<double>(static_cast<size_t>(s.out) * row_bytes(storage, s.in)) +
            static_cast<double>(s.tokens * k) * static_cast<double>(size_of(given)) +
            static_cast<double>(s.tokens * width) * static_cast<double>(size_of(result));
  return c;
}

// The case `c` with padded columns (ops/matmul.h) in operand `place`, a matrix.
OpCase with_padding(OpCase c, size_t place) {
  Operand& operand = c.operands[place];
  const auto rows = static_cast<size_t>(operand.shape[0]), columns = static_cast<size_t>(operand.shape[1]);
  const size_t all = (columns + 7) / 8 * 8;
  const bool is_output = operand.role == Role::output;
  operand.shape = {operand.shape[0], static_cast<int64_t>(all)};
  c.name += " padded";
  c.gradients.clear();
  c.reference = [=, dense = c.reference](Values& v, Conditions& conditions) {
    Values own = v;
    own[place].clear();
    for (size_t row = 0; row < rows; ++row) {
      const auto begin = v[place].begin() + static_cast<std::ptrdiff_t>(row * all);
      own[place].insert(own[place].end(), begin, begin + static_cast<std::ptrdiff_t>(columns));
    }
    dense(own, conditions);
    if (!is_output) {
      v[0] = own[0];
      return;
    }
    const std::vector<double> sum = std::move(conditions[place].sum);
    conditions[place].sum.assign(rows * all, 0.0);
    v[place].assign(rows * all, static_cast<double>(std::numeric_limits<float>::lowest()));
    for (size_t i = 0; i < sum.size(); ++i) {
      const size_t at = i / columns * all + i % columns;
      v[place][at] = own[place][i];
      conditions[place].sum[at] = sum[i];
    }
  };
  return c;
}

// A linear layer with a low-rank term: both ops, as in linear_case.
OpCase low_rank_case(bool backward, DType result, DType given, StorageType storage, LinearSizes s, int64_t rank,
                     bool accumulate) {
  OpCase c = linear_case(backward, result, given, storage, s, accumulate);
  c.op = backward ? "linear_low_rank_backward_input" : "linear_low_rank";
  c.name += fmt::format(" rank={}", rank);
  c.gradients.clear();  // linear_case's, which lack the low-rank term
  c.precision = Precision::computed;
  const int64_t width = backward ? s.in : s.out;
  c.operands.push_back({"low", given, {s.tokens, rank}});
  c.operands.push_back({backward ? "a" : "b", given, backward ? Shape{rank, s.in} : Shape{s.out, rank}});
  const ops::LinearAttributes attributes{.accumulate = accumulate};
  c.run = [=](ops::Context& context, const Arguments& a) {
    if (backward) {
      ops::linear_low_rank_backward_input(context, a[0], a[1], a.weights[2], a[3], a[4], attributes);
    } else {
      ops::linear_low_rank(context, a[0], a[1], a.weights[2], a[3], a[4], attributes);
    }
  };
  c.reference = [=, linear = c.reference](Values& v, Conditions& conditions) {
    linear(v, conditions);
    conditions[0].narrow = absolute(v[0]);  // may be rounded before the low-rank term is added
    reference_gemm({s.tokens, width, rank}, v[0], conditions[0].sum, v[3], rank, 1, v[4], backward ? s.in : 1,
                   backward ? 1 : rank);
  };
  // dx is the gradient at x of the sum of dy (x W^T) and low (x a^T), both elementwise. Checked only for few elements,
  // because finite differences of many take long.
  if (backward && s.tokens * s.in < 500) {
    c.gradients = {{.gradient = 0, .forward = [=](const Values& v, const std::vector<double>& x) {
                      std::vector<double> weight = v[2];
                      for (double& w : weight) w = rounded_to(given, w);
                      std::vector<double> terms;
                      const auto add = [&](const std::vector<double>& factors, const std::vector<double>& matrix,
                                           int64_t rows) {
                        std::vector<double> product(static_cast<size_t>(s.tokens * rows), 0.0);
                        std::vector<double> no_terms;
                        reference_gemm({s.tokens, rows, s.in}, product, no_terms, x, s.in, 1, matrix, 1, s.in);
                        for (size_t i = 0; i < product.size(); ++i) terms.push_back(factors[i] * product[i]);
                      };
                      add(v[1], weight, s.out);
                      add(v[3], v[4], rank);
                      return terms;
                    }}};
  }
  c.length += rank + 1;
  c.flops += 2.0 * static_cast<double>(s.tokens * width * rank);
  c.bytes += static_cast<double>((s.tokens + width) * rank) * static_cast<double>(size_of(given));
  return c;
}

// A linear layer with a bias, which may be rounded, or added to a rounded result.
OpCase bias_case(DType result, DType given, StorageType storage, LinearSizes s, bool accumulate) {
  OpCase c = linear_case(false, result, given, storage, s, accumulate);
  c.op = "linear_bias";
  c.operands.push_back({"bias", DType::f32, {s.out}});
  c.run = [=](ops::Context& context, const Arguments& a) {
    ops::linear_bias(context, a[0], a[1], a.weights[2], a[3], {.accumulate = accumulate});
  };
  c.reference = [=, linear = c.reference](Values& v, Conditions& conditions) {
    linear(v, conditions);
    conditions[0].narrow = absolute(v[0]);
    for (size_t i = 0; i < v[0].size(); ++i) {
      const double added = v[3][i % static_cast<size_t>(s.out)];
      v[0][i] += added;
      conditions[0].sum[i] += std::abs(added);
      conditions[0].narrow[i] += std::abs(added);
    }
  };
  c.scratch = [=, linear = c.scratch](int threads, bool host_visible) {
    return std::max(linear(threads, host_visible), ops::linear_bias_bytes(s.out, size_of(result), host_visible));
  };
  c.length += 1;
  c.bytes += static_cast<double>(s.out) * sizeof(float);
  return c;
}

OpCase residual_case(DType result, DType given, StorageType storage, LinearSizes s, bool prefer_skinny) {
  return with_residual(linear_case(false, result, given, storage, s, true, prefer_skinny),
                       [=](ops::Context& context, const Arguments& a, const Tensor& residual) {
                         ops::linear(
                             context, a[0], a[1], a.weights[2],
                             {.residual = residual, .row_invariant = prefer_skinny, .prefer_skinny = prefer_skinny});
                       });
}

OpCase low_rank_residual_case(DType result, DType given, StorageType storage, LinearSizes s, int64_t rank) {
  return with_residual(low_rank_case(false, result, given, storage, s, rank, true),
                       [](ops::Context& context, const Arguments& a, const Tensor& residual) {
                         ops::linear_low_rank(context, a[0], a[1], a.weights[2], a[3], a[4], {.residual = residual});
                       });
}

OpCase dequantize_case(DType dtype, StorageType storage, int64_t out, int64_t in) {
  OpCase c{.op = "dequantize", .name = fmt::format("{} to {} [{}, {}]", name(storage), name(dtype), out, in)};
  c.operands = {{"out", dtype, {out, in}, Role::output},
                {"weight", DType::u8, {out, in}, Role::input, normal(), storage}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::dequantize(context, a[0], a.weights[1]); };
  c.reference = [](Values& v, Conditions&) { v[0] = v[1]; };
  c.flops = static_cast<double>(out * in);
  c.bytes = static_cast<double>(static_cast<size_t>(out) * row_bytes(storage, in)) +
            static_cast<double>(out * in) * static_cast<double>(size_of(dtype));
  return c;
}

void add_matmuls(std::vector<OpCase>& cases) {
  constexpr std::pair<DType, DType> types[] = {{DType::f32, DType::f32},   {DType::f32, DType::bf16},
                                               {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                                               {DType::f32, DType::f16},   {DType::f16, DType::f16}};
  for (const auto& [out, in] : types) {
    for (const ops::MatmulAttributes form : {ops::MatmulAttributes{}, ops::MatmulAttributes{.transpose_b = true},
                                             ops::MatmulAttributes{.transpose_a = true},
                                             ops::MatmulAttributes{.transpose_a = true, .transpose_b = true}}) {
      for (const Sizes s :
           {Sizes{1, 1, 1}, Sizes{3, 17, 33}, Sizes{1, 131, 17}, Sizes{33, 3, 131}, Sizes{17, 67, 0}, Sizes{0, 3, 3}}) {
        ops::MatmulAttributes accumulate = form;
        accumulate.accumulate = true;
        cases.push_back(matmul_case(out, in, s, form));
        cases.push_back(matmul_case(out, in, s, accumulate));
      }
      // Rows that are a multiple of 16 bytes, as libraries require.
      cases.push_back(matmul_case(out, in, {16, 40, 24}, form));
    }
    // More than one block of k, panels of every size, and enough FLOPs for several threads.
    cases.push_back(matmul_case(out, in, {67, 403, 300}, {.transpose_b = true, .accumulate = true}));
    cases.push_back(matmul_case(out, in, {211, 50, 270}, {.transpose_a = true}));
  }
  // Operands whose rows are a multiple of 16 bytes, with a partial tile in every dimension, for tiles of every size.
  for (const Sizes s : {Sizes{40, 72, 104}, Sizes{72, 136, 200}, Sizes{264, 520, 40}}) {
    for (const ops::MatmulAttributes form : {ops::MatmulAttributes{.transpose_b = true}, ops::MatmulAttributes{},
                                             ops::MatmulAttributes{.transpose_a = true}}) {
      ops::MatmulAttributes accumulate = form;
      accumulate.accumulate = true;
      cases.push_back(matmul_case(DType::bf16, DType::bf16, s, form));
      cases.push_back(matmul_case(DType::f32, DType::bf16, s, accumulate));
    }
    cases.push_back(matmul_case(DType::f16, DType::f16, s, {.transpose_b = true}));
  }
  for (const DType in : {DType::f32, DType::bf16})
    cases.push_back(with_padding(matmul_case(DType::f32, in, {21, 40, 24}, {.transpose_a = true}), 1));
  const Sizes linear{1024, 1536, 576};
  for (const DType in : {DType::f32, DType::bf16}) {
    cases.push_back(timing(matmul_case(DType::f32, in, linear, {.transpose_b = true})));
    cases.push_back(timing(matmul_case(in, in, linear, {.transpose_b = true})));
    cases.push_back(timing(matmul_case(in, in, {1024, 576, 1536}, {})));
    cases.push_back(timing(matmul_case(DType::f32, in, {1536, 576, 1024}, {.transpose_a = true, .accumulate = true})));
    cases.push_back(timing(matmul_case(DType::f32, in, {1024, 49152, 576}, {.transpose_b = true})));
    for (const int64_t hidden : {576, 4096}) {  // LoRA shapes
      cases.push_back(timing(matmul_case(in, in, {2048, 16, hidden}, {.transpose_b = true})));
      cases.push_back(timing(matmul_case(in, in, {2048, hidden, 16}, {.transpose_b = true, .accumulate = true})));
      cases.push_back(
          timing(matmul_case(DType::f32, in, {hidden, 16, 2048}, {.transpose_a = true, .accumulate = true})));
    }
    cases.push_back(timing(matmul_case(in, in, {1024, 576, 49152}, {})));
    cases.push_back(timing(matmul_case(DType::f32, in, {2048, 2048, 2048}, {.transpose_b = true})));
  }
}

void add_low_ranks(std::vector<OpCase>& cases, bool backward) {
  for (const auto& [result, given] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::f32, DType::bf16}, std::pair{DType::bf16, DType::bf16}}) {
    for (const StorageType storage : {StorageType::bf16, StorageType::q8_0}) {
      for (const int64_t rank : {1, 2, 6, 16}) {
        // Fewer rows than columns and more, with partial tiles and panels.
        cases.push_back(low_rank_case(backward, result, given, storage, {19, 70, 96}, rank, rank == 6));
        cases.push_back(low_rank_case(backward, result, given, storage, {131, 17, 160}, rank, rank == 2));
      }
    }
    // Several decoded slices, and an odd k.
    cases.push_back(low_rank_case(backward, result, given, StorageType::q8_0, {3, 72, 32 * 1031}, 4, true));
    cases.push_back(low_rank_case(backward, result, given, StorageType::bf16, {13, 35, 33}, 4, false));
    if (given == DType::f32) continue;
    // Several slices of k in AVX-512's own gemm, several blocks of packed columns, and of packed rows.
    cases.push_back(low_rank_case(backward, result, given, StorageType::q8_0, {3, 400, 6144}, 4, false));
    cases.push_back(low_rank_case(backward, result, given, StorageType::bf16, {5, 700, 1024}, 2, false));
    cases.push_back(low_rank_case(backward, result, given, StorageType::bf16, {131, 150, 33}, 2, true));
    // Several parts of an odd k, which is in backward the second size, and several blocks of columns.
    cases.push_back(backward ? low_rank_case(true, result, given, StorageType::bf16, {17, 1101, 520}, 6, true)
                             : low_rank_case(false, result, given, StorageType::bf16, {17, 520, 1101}, 6, true));
  }
  cases.push_back(
      timing(low_rank_case(backward, DType::bf16, DType::bf16, StorageType::bf16, {2048, 1536, 576}, 16, false)));
  cases.push_back(
      timing(low_rank_case(backward, DType::bf16, DType::bf16, StorageType::bf16, {2048, 4096, 4096}, 16, false)));
}

// A square, and Llama-3.1-8B's widest layer over 8192 tokens: forward, the input's gradient, the weight's gradient.
void add_large_matmuls(std::vector<OpCase>& cases) {
  constexpr DType in = DType::bf16;
  cases.push_back(large(matmul_case(in, in, {8192, 8192, 8192}, {.transpose_b = true})));
  cases.push_back(large(matmul_case(in, in, {8192, 14336, 4096}, {.transpose_b = true})));
  cases.push_back(large(matmul_case(in, in, {8192, 4096, 14336}, {})));
  cases.push_back(large(matmul_case(DType::f32, in, {14336, 4096, 8192}, {.transpose_a = true})));
}

void add_linears(std::vector<OpCase>& cases, bool backward) {
  for (const DType given : {DType::f32, DType::bf16}) {
    for (const StorageType storage : {StorageType::bf16, StorageType::q8_0}) {
      const OpCase c = linear_case(backward, DType::f32, given, storage, {24, 21, 64}, false);
      cases.push_back(with_padding(c, backward ? 1 : 0));
    }
  }
  for (const auto& [result, given] : linear_types) {
    if (backward && given == DType::f16) continue;
    for (const StorageType storage : linear_storages) {
      const int64_t block = block_elements(storage);
      const int64_t in = block == 1 ? 33 : block == 32 ? 96 : 256;
      for (const int64_t tokens : {1, 2, 3, 17}) {
        cases.push_back(linear_case(backward, result, given, storage, {tokens, 35, in}, tokens % 2 == 0));
        cases.push_back(linear_case(backward, result, given, storage, {tokens, 1, in}, tokens % 2 == 1));
      }
      const int64_t whole = block == 1 ? 40 : in;
      cases.push_back(linear_case(backward, result, given, storage, {3, 24, whole}, true));
    }
    // Rows that are a multiple of 16 bytes for every storage type, for the skinny gemm kernels: partial spans and
    // chunks, and more rows than a block has.
    if (!backward) {
      for (const StorageType storage : linear_storages) {
        const int64_t in = block_elements(storage) == 256 ? 768 : block_elements(storage) == 32 ? 608 : 296;
        cases.push_back(linear_case(false, result, given, storage, {7, 133, in}, false));
        cases.push_back(linear_case(false, result, given, storage, {16, 17, in}, true));
        cases.push_back(linear_case(false, result, given, storage, {13, 61, in}, storage == StorageType::bf16, true));
        cases.push_back(residual_case(result, given, storage, {7, 133, in}, false));
      }
      cases.push_back(linear_case(false, result, given, StorageType::q4_k, {72, 133, 512}, false));
      for (const StorageType storage : {StorageType::f32, StorageType::bf16, StorageType::f16, StorageType::q8_0}) {
        cases.push_back(residual_case(result, given, storage, {33, 72, 64}, false));
        cases.push_back(residual_case(result, given, storage, {33, 37, 96}, true));
      }
      cases.push_back(low_rank_residual_case(result, given, StorageType::bf16, {33, 72, 64}, 8));
      const StorageType plain = given == DType::f32    ? StorageType::f32
                                : given == DType::bf16 ? StorageType::bf16
                                                       : StorageType::f16;
      for (const StorageType storage : {plain, StorageType::q8_0}) {
        cases.push_back(bias_case(result, given, storage, {24, 48, 64}, false));
        cases.push_back(bias_case(result, given, storage, {33, 24, 96}, true));
        cases.push_back(bias_case(result, given, storage, {3, 35, 32}, false));
      }
    }
    // On CPUs several decoded slices: more rows than ops::decoded_rows returns for this width. Too large for finite
    // differences.
    cases.push_back(linear_case(backward, result, given, StorageType::q8_0, {3, 72, 32 * 1031}, true));
    cases.back().gradients.clear();
    cases.push_back(linear_case(backward, result, given, StorageType::f32, {0, 3, 5}, false));
  }
  for (const int64_t tokens : {1, 2, 8, 1024}) {
    for (const StorageType storage : {StorageType::bf16, StorageType::q8_0, StorageType::q4_0, StorageType::q4_k}) {
      cases.push_back(timing(linear_case(backward, DType::bf16, DType::bf16, storage, {tokens, 49152, 512}, false)));
    }
    cases.push_back(
        timing(linear_case(backward, DType::f32, DType::f32, StorageType::f32, {tokens, 49152, 512}, false)));
  }
  if (backward) return;
  cases.push_back(timing(bias_case(DType::bf16, DType::bf16, StorageType::bf16, {1024, 1536, 576}, false)));
  for (const int64_t tokens : {1, 8, 32, 512}) {
    cases.push_back(
        timing(linear_case(false, DType::bf16, DType::bf16, StorageType::bf16, {tokens, 49152, 576}, false, true)));
    cases.push_back(
        timing(linear_case(false, DType::bf16, DType::bf16, StorageType::bf16, {tokens, 2048, 5632}, false, true)));
  }
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases;
  add_matmuls(cases);
  add_large_matmuls(cases);
  add_linears(cases, false);
  add_linears(cases, true);
  add_low_ranks(cases, false);
  add_low_ranks(cases, true);
  for (const StorageType storage : linear_storages) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const int64_t in = block_elements(storage) == 1 ? 33 : 1280;
      cases.push_back(dequantize_case(dtype, storage, 1, in));
      cases.push_back(dequantize_case(dtype, storage, 17, in));
      cases.push_back(timing(dequantize_case(dtype, storage, 4096, 2048)));
    }
  }
  return cases;
}

}  // namespace ingot::ops::testing

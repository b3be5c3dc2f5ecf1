#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "ops/attention.h"
#include "ops/attention_bytes.h"
#include "ops/testing/op_table.h"
#include "tensor/tolerance.h"

namespace ingot::ops::testing {
namespace {

struct Heads {
  int64_t q, kv, d;
  int64_t window = 0;
  float softcap = 0;
  bool sloped = false;
  // Of a part of the tokens: the first one with a query, and how many there are; 0: of all.
  int64_t first_query = 0, num_queries = 0;
  int64_t queries(int64_t tokens) const { return num_queries > 0 ? num_queries : tokens; }
  // The same of keys; with num_keys, whether results are joined with others.
  int64_t first_key = 0, num_keys = 0;
  bool accumulate = false;
  int64_t keys(int64_t tokens) const { return num_keys > 0 ? num_keys : tokens; }
  bool has_key(size_t token) const {
    const auto number = static_cast<int64_t>(token);
    return num_keys == 0 || (number >= first_key && number < first_key + num_keys);
  }
  // Of the key of a token in k, v, dk and dv; not to be used if it has none.
  size_t key_row(size_t token) const { return token - static_cast<size_t>(first_key); }
  Role result_role() const { return accumulate ? Role::inout : Role::output; }
  DType result_type(DType dtype) const { return num_keys > 0 ? DType::f32 : dtype; }
  float scale() const { return (softcap > 0 ? 3.0F : 1.0F) / std::sqrt(static_cast<float>(d)); }
  ops::AttentionAttributes attributes(const Tensor& slopes) const {
    return {.heads = q,
            .kv_heads = kv,
            .head_dim = d,
            .scale = scale(),
            .window = window,
            .softcap = softcap,
            .slopes = slopes,
            .first_query = first_query,
            .first_key = num_keys > 0 ? std::optional(first_key) : std::nullopt,
            .accumulate = accumulate};
  }
  std::string text() const {
    return fmt::format("heads={}/{} D={}{}{}{}{}{}{}", q, kv, d, window > 0 ? fmt::format(" window={}", window) : "",
                       softcap > 0 ? fmt::format(" softcap={}", softcap) : "", sloped ? " slopes" : "",
                       num_queries > 0 ? fmt::format(" queries={}..{}", first_query, first_query + num_queries) : "",
                       num_keys > 0 ? fmt::format(" keys={}..{}", first_key, first_key + num_keys) : "",
                       accumulate ? " accumulate" : "");
  }
  // [Q], the slopes of ALiBi: 2^(-8/Q), 2^(-16/Q), ...
  Operand slopes() const {
    std::vector<double> values;
    for (int64_t h = 1; h <= q; ++h)
      values.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(q)));
    return {.name = "slopes", .dtype = DType::f32, .shape = {q}, .fill = fixed(values), .absent = !sloped};
  }
  double slope(size_t head) const {
    const double exact = std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(q));
    return sloped ? static_cast<double>(static_cast<float>(exact)) : 0.0;
  }
};

std::vector<double> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<double> offsets{0.0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<double>(length));
  return offsets;
}

int64_t sum_of(const std::vector<int64_t>& lengths) { return static_cast<int64_t>(offsets_of(lengths).back()); }

// FLOPs of queries times keys and probabilities times values, over the pairs that the mask leaves.
double causal_flops(const std::vector<int64_t>& lengths, const Heads& heads) {
  double pairs = 0;
  for (const int64_t length : lengths) {
    const int64_t past = heads.window > 0 ? std::max<int64_t>(length - heads.window, 0) : 0;
    pairs += 0.5 * (static_cast<double>(length * length) - static_cast<double>(past * past));
  }
  return 4.0 * pairs * static_cast<double>(heads.q * heads.d);
}

// A result over other keys, which counts as one more key.
struct Earlier {
  double lse = -std::numeric_limits<double>::infinity();
  double p = 0;         // its share in the sum
  double of_score = 0;  // as in Row
};

struct Row {
  std::vector<double> p;     // by key, 0 where masked
  std::vector<double> bend;  // derivative of the softcapped score by the scaled dot product
  // Condition of each score in units of tensor/tolerance.h, and so the relative one of exp(score): the terms of the dot
  // product and of what follows it, and the largest score, which is subtracted.
  std::vector<double> of_score;
  double lse;
  double of_lse;  // condition of lse: its own size and the mean of of_score, the relative condition of the sum
  Earlier earlier = {};
};

// Softmax row of query `place` of a sequence in head `head` over those of the keys 0 .. place for which `has(i)`;
// key(i) is the offset of key i.
template <class Has, class Key>
Row row_of(const double* query, size_t head, size_t place, const std::vector<double>& k, const Heads& heads, Has has,
           Key key, const Earlier& earlier = {}) {
  Row row{std::vector<double>(place + 1), std::vector<double>(place + 1, 1.0), std::vector<double>(place + 1), 0, 0};
  row.earlier = earlier;
  double total = row.earlier.p = std::exp(earlier.lse);
  double top = total > 0 ? std::abs(earlier.lse) : 0;
  row.earlier.of_score = 3.0 * top;
  for (size_t i = 0; i <= place; ++i) {
    if (!has(i) || (heads.window > 0 && static_cast<int64_t>(place - i) >= heads.window)) continue;
    double score = 0;
    double terms = 0;
    for (size_t j = 0; j < static_cast<size_t>(heads.d); ++j) {
      score += query[j] * k[key(i) + j];
      terms += std::abs(query[j] * k[key(i) + j]);
    }
    const double of_dot = terms + std::sqrt(static_cast<double>(heads.d)) * std::abs(score);
    score *= static_cast<double>(heads.scale());
    if (heads.softcap > 0) {
      const auto cap = static_cast<double>(heads.softcap);
      row.bend[i] = std::pow(std::cosh(score / cap), -2.0);
      score = cap * std::tanh(score / cap);
    }
    const double distant = heads.slope(head) * static_cast<double>(place - i);
    row.of_score[i] = of_dot * static_cast<double>(heads.scale()) + 3.0 * std::abs(score) + distant;
    top = std::max(top, std::abs(score - distant));
    row.p[i] = std::exp(score - distant);  // scores in these cases are small
    total += row.p[i];
  }
  row.lse = std::log(total);
  if (total == 0) return row;
  for (double& x : row.p) x /= total;
  row.earlier.p /= total;
  row.earlier.of_score += top;
  row.of_lse = std::abs(row.lse) + std::sqrt(static_cast<double>(place + 1)) + row.earlier.p * row.earlier.of_score;
  for (size_t i = 0; i <= place; ++i) {
    row.of_score[i] += top;
    row.of_lse += row.p[i] * row.of_score[i];
  }
  return row;
}

// Calls body(row of the query, head, first token of its sequence, position in the sequence) for all queries.
template <class Body>
void each_row(const std::vector<int64_t>& lengths, const Heads& heads, Body body) {
  const auto first = static_cast<size_t>(heads.first_query);
  const size_t end = first + static_cast<size_t>(heads.queries(sum_of(lengths)));
  size_t start = 0;
  for (const int64_t length : lengths) {
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      if (start + i < first || start + i >= end) continue;
      for (size_t h = 0; h < static_cast<size_t>(heads.q); ++h) body(start + i - first, h, start, i);
    }
    start += static_cast<size_t>(length);
  }
}

// Where results are f32 and the operands are of a 16-bit type, to which factors of terms may be rounded: for an f32
// result element_tolerance allows 4 units of f32 of `sum`, and ignores `narrow`.
void allow_narrow_factors(Condition& condition, DType operands, DType result) {
  if (result == operands) return;
  const double units = unit_roundoff(operands) / (4.0 * unit_roundoff(result));
  for (size_t i = 0; i < condition.narrow.size(); ++i) condition.sum[i] += condition.narrow[i] * units;
  condition.cancels = true;  // the largest element, too, has this error
}

struct Result {
  std::vector<double> out, lse;
  Condition of_out = {}, of_lse = {};
};

// Adds to out [D], which has the earlier result or zeros, the values of the keys, each times its probability, and the
// condition of the sum. The probabilities may be rounded to the type of the values.
template <class Key>
void add_values(double* out, double* sum, double* narrow, const Row& row, const std::vector<double>& v, size_t d,
                Key key) {
  for (size_t j = 0; j < d; ++j) {
    out[j] *= row.earlier.p;
    sum[j] += std::abs(out[j]) * (2.0 + row.earlier.of_score);
  }
  for (size_t i = 0; i < row.p.size(); ++i) {
    if (row.p[i] == 0) continue;
    for (size_t j = 0; j < d; ++j) {
      const double term = row.p[i] * v[key(i) + j];
      out[j] += term;
      sum[j] += std::abs(term) * (2.0 + row.of_score[i]);
      narrow[j] += std::abs(term);
    }
  }
  for (size_t j = 0; j < d; ++j) sum[j] += std::abs(out[j]) * row.of_lse;
}

// `earlier`: of other keys, with `accumulate`.
Result attend(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
              const std::vector<int64_t>& lengths, const Heads& heads, const Result* earlier = nullptr) {
  const auto tokens = static_cast<size_t>(heads.queries(sum_of(lengths)));
  const auto d = static_cast<size_t>(heads.d);
  const auto q_heads = static_cast<size_t>(heads.q);
  const auto kv_heads = static_cast<size_t>(heads.kv);
  Result result{std::vector<double>(q.size()), std::vector<double>(q_heads * tokens)};
  result.of_out.sum.resize(q.size());
  result.of_out.narrow.resize(q.size());
  result.of_lse.sum.resize(q_heads * tokens);
  if (earlier != nullptr) result.out = earlier->out;
  each_row(lengths, heads, [&](size_t t, size_t h, size_t start, size_t place) {
    const auto has = [&](size_t i) { return heads.has_key(start + i); };
    const auto key = [&](size_t i) { return (heads.key_row(start + i) * kv_heads + h / (q_heads / kv_heads)) * d; };
    const size_t at = (t * q_heads + h) * d;
    const Earlier joined = earlier != nullptr ? Earlier{.lse = earlier->lse[h * tokens + t]} : Earlier{};
    const Row row = row_of(&q[at], h, place, k, heads, has, key, joined);
    result.lse[h * tokens + t] = row.lse;
    result.of_lse.sum[h * tokens + t] = row.of_lse;
    add_values(&result.out[at], &result.of_out.sum[at], &result.of_out.narrow[at], row, v, d, key);
  });
  return result;
}

OpCase forward_case(DType dtype, const std::vector<int64_t>& lengths, Heads heads, bool with_lse) {
  const int64_t tokens = sum_of(lengths);
  OpCase c{.op = "attention",
           .name = fmt::format("{} {} sequences T={} {}{}", name(dtype), lengths.size(), tokens, heads.text(),
                               with_lse ? "" : " without lse")};
  c.also_f16 = true;
  const int64_t queries = heads.queries(tokens), keys = heads.keys(tokens);
  c.operands = {{"out", heads.result_type(dtype), {queries, heads.q * heads.d}, heads.result_role()},
                {"lse", DType::f32, {heads.q, queries}, heads.result_role()},
                {"q", dtype, {queries, heads.q * heads.d}},
                {"k", dtype, {keys, heads.kv * heads.d}},
                {"v", dtype, {keys, heads.kv * heads.d}},
                {"offsets", DType::i32, {std::ssize(lengths) + 1}, Role::input, fixed(offsets_of(lengths))},
                heads.slopes()};
  c.operands[0].factors = dtype;
  c.operands[1].absent = !with_lse;
  c.run = [heads](ops::Context& context, const Arguments& a) {
    ops::attention(context, a[0], a[1], a[2], a[3], a[4], a[5], heads.attributes(a[6]));
  };
  c.reference = [dtype, lengths, heads](Values& v, Conditions& conditions) {
    const Result earlier{v[0], v[1]};
    Result result = attend(v[2], v[3], v[4], lengths, heads, heads.accumulate ? &earlier : nullptr);
    v[0] = std::move(result.out);
    v[1] = std::move(result.lse);
    conditions[0] = std::move(result.of_out);
    conditions[1] = std::move(result.of_lse);
    allow_narrow_factors(conditions[0], dtype, heads.result_type(dtype));
  };
  c.length = tokens + heads.d;
  c.scratch = [tokens, heads](int threads, bool) {
    return ops::attention_bytes(heads.queries(tokens), tokens, heads.q, heads.d, threads);
  };
  c.flops = causal_flops(lengths, heads);
  c.bytes = static_cast<double>(tokens * 2 * (heads.q + heads.kv) * heads.d) * static_cast<double>(size_of(dtype));
  return c;
}

// With the full matrix P: dS = P (dP - sum over keys of P dP), without using out and lse. Conditions: P has the
// relative one of a score and of lse; dP and <dout, out> are sums; P and dS may be rounded to the type of the operands,
// and out was. `k` and `value`: of all tokens.
void differentiate(Values& v, Conditions& conditions, const std::vector<int64_t>& lengths, const Heads& heads,
                   const std::vector<double>& k, const std::vector<double>& value) {
  const auto d = static_cast<size_t>(heads.d);
  const auto q_heads = static_cast<size_t>(heads.q);
  const auto kv_heads = static_cast<size_t>(heads.kv);
  const std::vector<double>&dout = v[3], &out = v[4], &q = v[6];
  for (size_t i = 0; i < 3; ++i) {
    if (!heads.accumulate) std::fill(v[i].begin(), v[i].end(), 0.0);
    conditions[i].sum = absolute(v[i]);
    conditions[i].narrow.assign(v[i].size(), 0.0);
  }
  const double root = std::sqrt(static_cast<double>(heads.d));
  each_row(lengths, heads, [&](size_t t, size_t h, size_t start, size_t place) {
    const auto key = [&](size_t i) { return ((start + i) * kv_heads + h / (q_heads / kv_heads)) * d; };
    const auto row_of_key = [&](size_t i) {  // of dk and dv
      return (heads.key_row(start + i) * kv_heads + h / (q_heads / kv_heads)) * d;
    };
    const size_t at = (t * q_heads + h) * d;
    const auto all = [](size_t) { return true; };
    const auto [p, bend, of_score, lse, of_lse, earlier] = row_of(&q[at], h, place, k, heads, all, key);
    std::vector<double> dp(p.size());
    std::vector<double> of_dp(p.size());
    double mean = 0;
    double of_mean = 0;
    for (size_t j = 0; j < d; ++j) of_mean += std::abs(dout[at + j] * out[at + j]);
    for (size_t i = 0; i < p.size(); ++i) {
      const double of_p = 2.0 + of_score[i] + std::abs(lse);
      for (size_t j = 0; j < d; ++j) {
        dp[i] += dout[at + j] * value[key(i) + j];
        of_dp[i] += std::abs(dout[at + j] * value[key(i) + j]);
      }
      mean += p[i] * dp[i];
      if (!heads.has_key(start + i)) continue;
      for (size_t j = 0; j < d; ++j) {
        const double term = std::abs(p[i] * dout[at + j]);
        const size_t to = row_of_key(i) + j;
        v[2][to] += p[i] * dout[at + j];
        conditions[2].sum[to] += term * of_p;
        conditions[2].narrow[to] += term;
      }
    }
    for (size_t i = 0; i < p.size(); ++i) {
      if (!heads.has_key(start + i)) continue;
      const double share = p[i] * static_cast<double>(heads.scale());
      const double slope = share * (dp[i] - mean) * bend[i];
      // The derivative of softcap is 1 - tanh^2: the error is absolute.
      const double of_slope = share * bend[i] * (of_dp[i] + root * std::abs(dp[i]) + of_mean + root * std::abs(mean)) +
                              share * std::abs(dp[i] - mean) *
                                  (bend[i] * (3.0 + of_score[i] + std::abs(lse)) +
                                   (heads.softcap > 0 ? 2.0 + 2.0 * of_score[i] * bend[i] : 0.0));
      const double narrow = std::abs(slope) + share * bend[i] * of_mean;
      for (size_t j = 0; j < d; ++j) {
        const double size_k = std::abs(k[key(i) + j]);
        const double size_q = std::abs(q[at + j]);
        const size_t to = row_of_key(i) + j;
        v[0][at + j] += slope * k[key(i) + j];
        v[1][to] += slope * q[at + j];
        conditions[0].sum[at + j] += of_slope * size_k;
        conditions[0].narrow[at + j] += narrow * size_k;
        conditions[1].sum[to] += of_slope * size_q;
        conditions[1].narrow[to] += narrow * size_q;
      }
    }
  });
}

OpCase backward_case(DType dtype, const std::vector<int64_t>& lengths, Heads heads, bool with_gradients) {
  const int64_t tokens = sum_of(lengths);
  OpCase c{.op = "attention_backward",
           .name = fmt::format("{} {} sequences T={} {}", name(dtype), lengths.size(), tokens, heads.text())};
  // q, k, v and the forward pass's saved out and lse depend on each other. Without running the forward pass, out and
  // lse have the right sizes but arbitrary values, which suffices for timing.
  const int64_t queries = heads.queries(tokens);
  const bool attention_context = with_gradients || tokens < 1000;
  Heads all_keys = heads;
  all_keys.first_key = all_keys.num_keys = 0;
  const Drawn drawn([=] {
    RandomStream random(9, tokens, heads.q, heads.d);
    const auto draw = [&](int64_t rows, int64_t heads_of) {
      std::vector<double> values(static_cast<size_t>(rows * heads_of * heads.d));
      for (double& x : values) {
        const auto rounded = static_cast<float>(random.normal());
        x = static_cast<double>(dtype == DType::bf16 ? bf16_to_float(float_to_bf16(rounded)) : rounded);
      }
      return values;
    };
    const auto q = draw(queries, heads.q);
    const auto k = draw(tokens, heads.kv);
    const auto v = draw(tokens, heads.kv);
    const Result saved = attention_context ? attend(q, k, v, lengths, all_keys)
                                           : Result{q, std::vector<double>(q.size() / static_cast<size_t>(heads.d))};
    const auto part = [&](const std::vector<double>& all) {
      const int64_t width = heads.kv * heads.d, begin = heads.first_key * width;
      return std::vector(all.begin() + begin, all.begin() + begin + heads.keys(tokens) * width);
    };
    return Values{saved.out, saved.lse, q, part(k), part(v), k, v};
  });
  const Shape q_shape{queries, heads.q * heads.d};
  const Shape kv_shape{heads.keys(tokens), heads.kv * heads.d};
  const DType type = heads.result_type(dtype);
  c.operands = {{"dq", type, q_shape, heads.result_role()},
                {"dk", type, kv_shape, heads.result_role()},
                {"dv", type, kv_shape, heads.result_role()},
                {"dout", dtype, q_shape},
                {"out", dtype, q_shape, Role::input, drawn[0]},
                {"lse", DType::f32, {heads.q, queries}, Role::input, drawn[1]},
                {"q", dtype, q_shape, Role::input, drawn[2]},
                {"k", dtype, kv_shape, Role::input, drawn[3]},
                {"v", dtype, kv_shape, Role::input, drawn[4]},
                {"offsets", DType::i32, {std::ssize(lengths) + 1}, Role::input, fixed(offsets_of(lengths))},
                heads.slopes()};
  for (size_t i = 0; i < 3; ++i) c.operands[i].factors = dtype;
  c.run = [heads](ops::Context& context, const Arguments& a) {
    ops::attention_backward(context, a[0], a[1], a[2], a[3], {a[4], a[5], a[6], a[7], a[8]}, a[9],
                            heads.attributes(a[10]));
  };
  c.reference = [dtype, lengths, heads, all_k = drawn[5], all_v = drawn[6]](Values& values, Conditions& conditions) {
    RandomStream unused(0);
    std::vector<double> k, v;
    all_k(k, unused);
    all_v(v, unused);
    differentiate(values, conditions, lengths, heads, k, v);
    for (size_t i = 0; i < 3; ++i) allow_narrow_factors(conditions[i], dtype, heads.result_type(dtype));
  };
  c.length = tokens * (heads.q / heads.kv) + heads.d;
  if (with_gradients) {
    for (const size_t input : {6, 7, 8}) {
      c.gradients.push_back({.gradient = input - 6,
                             .input = input,
                             .cotangent = 3,
                             .forward = [lengths, heads, input](const Values& values, const std::vector<double>& at) {
                               const auto pick = [&](size_t i) { return i == input ? at : values[i]; };
                               return attend(pick(6), pick(7), pick(8), lengths, heads).out;
                             }});
    }
  }
  c.scratch = [tokens, heads](int threads, bool) {
    const int64_t queries = heads.queries(tokens), cut = queries < tokens ? ops::attention_cut_queries : 0;
    return ops::attention_backward_bytes(queries + cut, tokens, heads.q, heads.d, threads);
  };
  c.flops = 2.5 * causal_flops(lengths, heads);
  c.bytes = static_cast<double>(tokens * 4 * (heads.q + heads.kv) * heads.d) * static_cast<double>(size_of(dtype));
  return c;
}

OpCase kv_store_case(DType pages_dtype, DType dtype, int64_t tokens, int64_t width) {
  const int64_t page = 4;
  const int64_t pages = tokens / page + 3;
  OpCase c{.op = "kv_store",
           .name = fmt::format("{} into {} T={} width={}", name(dtype), name(pages_dtype), tokens, width)};
  c.operands = {{"k pages", pages_dtype, {pages, page, width}, Role::inout},
                {"v pages", pages_dtype, {pages, page, width}, Role::inout},
                {"k", dtype, {tokens, width}},
                {"v", dtype, {tokens, width}},
                {"slots", DType::i32, {tokens}}};
  const int64_t slots = pages * page;
  c.operands[4].fill = [slots](std::vector<double>& values, RandomStream&) {
    for (size_t t = 0; t < values.size(); ++t) values[t] = static_cast<double>(slots - 1 - static_cast<int64_t>(t));
  };
  c.run = [](ops::Context& context, const Arguments& a) { ops::kv_store(context, {a[0], a[1]}, a[2], a[3], a[4]); };
  c.reference = [width](Values& v, Conditions&) {
    for (size_t i = 0; i < v[2].size(); ++i) {
      const auto w = static_cast<size_t>(width);
      const size_t to = static_cast<size_t>(v[4][i / w]) * w + i % w;
      v[0][to] = v[2][i];
      v[1][to] = v[3][i];
    }
  };
  c.precision = Precision::exact;
  c.bytes = 2.0 * static_cast<double>(tokens * width) * static_cast<double>(size_of(dtype) + size_of(pages_dtype));
  return c;
}

// `queries` and `lengths` are per sequence; pages are in the cache in descending order.
OpCase paged_case(DType dtype, const std::vector<int64_t>& queries, const std::vector<int64_t>& lengths, int64_t page,
                  Heads heads) {
  const int64_t tokens = sum_of(queries);
  const int64_t sequences = std::ssize(lengths);
  int64_t most = 1;
  int64_t pages = 1;
  for (const int64_t length : lengths) {
    most = std::max(most, (length + page - 1) / page);
    pages += (length + page - 1) / page;
  }
  std::vector<double> tables(static_cast<size_t>(sequences * most), 0.0);
  std::vector<double> sizes;
  double next = static_cast<double>(pages - 1);
  for (size_t s = 0; s < lengths.size(); ++s) {
    sizes.push_back(static_cast<double>(lengths[s]));
    for (int64_t i = 0; i * page < lengths[s]; ++i)
      tables[s * static_cast<size_t>(most) + static_cast<size_t>(i)] = next--;
  }
  OpCase c{.op = "paged_attention",
           .name = fmt::format("{} {} sequences T={} page={} {}", name(dtype), sequences, tokens, page, heads.text())};
  c.also_f16 = true;
  c.operands = {{"out", dtype, {tokens, heads.q * heads.d}, Role::output},
                {"q", dtype, {tokens, heads.q * heads.d}},
                {"k pages", dtype, {pages, page, heads.kv * heads.d}},
                {"v pages", dtype, {pages, page, heads.kv * heads.d}},
                {"query offsets", DType::i32, {sequences + 1}, Role::input, fixed(offsets_of(queries))},
                {"lengths", DType::i32, {sequences}, Role::input, fixed(sizes)},
                {"tables", DType::i32, {sequences, most}, Role::input, fixed(tables)},
                heads.slopes(),
                {"arrivals", DType::i32, {sequences * heads.q}, Role::inout, integers(0, 0)}};  // zeros stay zeros
  c.run = [heads](ops::Context& context, const Arguments& a) {
    ops::paged_attention(context, a[0], a[1], {a[2], a[3]}, {a[4], a[5], a[6], a[8]}, heads.attributes(a[7]));
  };
  c.reference = [=](Values& v, Conditions& conditions) {
    const auto d = static_cast<size_t>(heads.d);
    const auto q_heads = static_cast<size_t>(heads.q);
    std::fill(v[0].begin(), v[0].end(), 0.0);
    conditions[0].sum = conditions[0].narrow = v[0];
    size_t sequence = 0;
    each_row(queries, heads, [&](size_t t, size_t h, size_t start, size_t place) {
      while (static_cast<double>(start) >= v[4][sequence + 1]) ++sequence;
      const size_t before = static_cast<size_t>(lengths[sequence] - queries[sequence]);
      const auto key = [&](size_t i) {
        const double number = v[6][sequence * static_cast<size_t>(most) + i / static_cast<size_t>(page)];
        const size_t row = static_cast<size_t>(number) * static_cast<size_t>(page) + i % static_cast<size_t>(page);
        return (row * static_cast<size_t>(heads.kv) + h / static_cast<size_t>(heads.q / heads.kv)) * d;
      };
      const size_t at = (t * q_heads + h) * d;
      const Row row = row_of(&v[1][at], h, before + place, v[2], heads, [](size_t) { return true; }, key);
      add_values(&v[0][at], &conditions[0].sum[at], &conditions[0].narrow[at], row, v[3], d, key);
    });
  };
  c.length = *std::max_element(lengths.begin(), lengths.end()) + heads.d;
  c.scratch = [=](int threads, bool) { return ops::attention_bytes(tokens, most * page, heads.q, heads.d, threads); };
  double keys = 0;
  for (size_t s = 0; s < lengths.size(); ++s) keys += static_cast<double>(lengths[s]);
  c.flops = 4.0 * keys * static_cast<double>(heads.q * heads.d) * static_cast<double>(tokens) /
            static_cast<double>(std::max<int64_t>(sequences, 1));
  c.bytes = 2.0 * keys * static_cast<double>(heads.kv * heads.d) * static_cast<double>(size_of(dtype));
  return c;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  const std::vector<int64_t> mixed{1, 5, 64, 0, 65, 130};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [lengths, heads] :
         std::vector<std::pair<std::vector<int64_t>, Heads>>{{mixed, {3, 1, 16}},
                                                             {{7, 66}, {4, 2, 20}},
                                                             {{70}, {2, 2, 64}},
                                                             {{3, 50}, {8, 1, 80}},
                                                             {{67}, {2, 1, 128}},
                                                             {{9, 4}, {20, 1, 8}},
                                                             {{5}, {1, 1, 256}},
                                                             {{34, 20}, {2, 1, 256, 30, 3.0F}},
                                                             {{6}, {2, 2, 3}}}) {
      cases.push_back(forward_case(dtype, lengths, heads, heads.d != 80));
      cases.push_back(backward_case(dtype, lengths, heads, sum_of(lengths) < 20));
    }
    cases.push_back(forward_case(dtype, {}, {2, 1, 16}, true));
    cases.push_back(paged_case(dtype, {1, 1, 1}, {1, 40, 130}, 16, {6, 2, 16}));
    cases.push_back(paged_case(dtype, {5, 1, 70, 0}, {5, 33, 100, 7}, 5, {3, 1, 20}));
    cases.push_back(paged_case(dtype, {2}, {65}, 64, {4, 4, 64}));
    cases.push_back(paged_case(dtype, {1, 1}, {140, 20}, 16, {4, 1, 256}));
    cases.push_back(paged_case(dtype, {3, 20}, {200, 20}, 16, {4, 2, 128, 100, 3.0F}));
    cases.push_back(paged_case(dtype, {3, 18}, {70, 18}, 16, {4, 2, 256}));
    cases.push_back(paged_case(dtype, {1}, {150}, 16, {8, 4, 16, 100, 0, true}));
    cases.push_back(paged_case(dtype, {1, 1}, {300, 20}, 16, {40, 1, 128}));  // more than one tile of rows
    cases.push_back(paged_case(dtype, {1}, {1100}, 16, {2, 1, 16}));
    // Window, softcap and slopes, alone and together; windows smaller than, equal to and larger than a block of keys.
    for (const Heads& heads : {Heads{3, 1, 20, 5},
                               {4, 2, 16, 64},
                               {2, 1, 64, 100},
                               {4, 1, 16, 0, 4.0F},
                               {6, 2, 8, 0, 0, true},
                               {3, 3, 32, 33, 2.5F},
                               {8, 2, 16, 70, 3.0F, true},
                               {2, 2, 128, 2},
                               {2, 1, 16, 127},
                               {2, 1, 16, 128},
                               {2, 1, 16, 129}}) {
      cases.push_back(forward_case(dtype, mixed, heads, heads.d != 16));
      cases.push_back(forward_case(dtype, {9, 0, 200}, heads, true));
      cases.push_back(backward_case(dtype, mixed, heads, false));
      cases.push_back(backward_case(dtype, {3, 170}, heads, false));
      cases.push_back(backward_case(dtype, {300}, heads, false));
      cases.push_back(backward_case(dtype, {2, 7}, heads, true));
      cases.push_back(paged_case(dtype, {1, 1, 1}, {1, 40, 230}, 16, heads));
      cases.push_back(paged_case(dtype, {5, 1, 70, 0}, {5, 33, 210, 7}, 5, heads));
    }
    // A sequence of several of the largest tiles of keys or queries, which are those of bf16.
    for (const int d : {64, 128}) {
      if (dtype != DType::bf16) continue;
      cases.push_back(forward_case(dtype, {520}, {1, 1, d, 0, 3.0F, true}, false));
      cases.push_back(backward_case(dtype, {300}, {2, 1, d, 0, 3.0F, true}, false));
    }
    // Queries of a part of the tokens, which begins and ends within blocks and sequences.
    for (Heads heads : {Heads{4, 2, 16}, {2, 1, 128}, {3, 1, 20, 50}, {4, 2, 16, 0, 3.0F, true}}) {
      for (const auto& [first, count] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 64}, {100, 1}, {40, 100}, {70, 195}}) {
        heads.first_query = first, heads.num_queries = count;
        cases.push_back(forward_case(dtype, mixed, heads, true));
        cases.push_back(backward_case(dtype, mixed, heads, false));
        cases.push_back(forward_case(dtype, {300}, heads, false));
        cases.push_back(backward_case(dtype, {300}, heads, false));
      }
      heads.first_query = 4, heads.num_queries = 3;
      cases.push_back(backward_case(dtype, {2, 7}, heads, true));
    }
    // Also behind several blocks of keys, with blocks and sequences of keys to which no query attends.
    for (Heads heads : {Heads{2, 1, 64}, {2, 1, 128, 60}, {1, 1, 256}}) {
      for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{1, 90}, {290, 120}, {400, 33}}) {
        heads.first_query = first, heads.num_queries = count;
        cases.push_back(forward_case(dtype, {3, 300, 0, 130}, heads, true));
        cases.push_back(backward_case(dtype, {3, 300, 0, 130}, heads, false));
      }
    }
    // And keys of a part: before the queries, of the same tokens in part or all, none that a query attends to; alone
    // and joined with others.
    for (Heads heads : {Heads{4, 2, 16}, {3, 1, 20, 50}, {4, 2, 16, 0, 3.0F, true}}) {
      for (const auto& [query, queries, key, keys] : std::vector<std::array<int64_t, 4>>{{128, 64, 0, 64},
                                                                                         {70, 90, 70, 90},
                                                                                         {40, 100, 67, 130},
                                                                                         {1, 70, 150, 3},
                                                                                         {100, 165, 9, 140},
                                                                                         {0, 265, 0, 265}}) {
        heads.first_query = query, heads.num_queries = queries, heads.first_key = key, heads.num_keys = keys;
        for (const bool accumulate : {false, true}) {
          heads.accumulate = accumulate;
          cases.push_back(forward_case(dtype, mixed, heads, accumulate || query > 0));
          cases.push_back(backward_case(dtype, mixed, heads, false));
          if (accumulate) cases.push_back(forward_case(dtype, {300}, heads, true));
          if (!accumulate) cases.push_back(backward_case(dtype, {300}, heads, false));
        }
      }
    }
    // Of larger heads, behind several blocks of keys; sequences that begin or end among the keys, and ones without
    // keys.
    for (Heads heads : {Heads{2, 1, 64}, {2, 1, 128, 60}, {1, 1, 256}}) {
      for (const auto& [query, queries, key, keys] :
           std::vector<std::array<int64_t, 4>>{{290, 120, 1, 250}, {100, 300, 150, 283}, {2, 400, 20, 370}}) {
        heads.first_query = query, heads.num_queries = queries, heads.first_key = key, heads.num_keys = keys;
        heads.accumulate = query != 2;
        cases.push_back(forward_case(dtype, {3, 300, 0, 130}, heads, true));
        cases.push_back(backward_case(dtype, {3, 300, 0, 130}, heads, false));
      }
    }
    cases.push_back(timing(forward_case(dtype, {1024}, {9, 3, 64}, true)));
    cases.push_back(timing(forward_case(dtype, {1024}, {9, 3, 64, 256}, true)));
    cases.push_back(timing(forward_case(dtype, {1024}, {9, 3, 64, 0, 50.0F}, true)));
    cases.push_back(timing(forward_case(dtype, {1024}, {9, 3, 64, 0, 0, true}, true)));
    cases.push_back(timing(backward_case(dtype, {1024}, {9, 3, 64, 256}, false)));
    cases.push_back(timing(backward_case(dtype, {1024}, {9, 3, 64, 0, 50.0F}, false)));
    cases.push_back(timing(backward_case(dtype, {1024}, {9, 3, 64, 0, 0, true}, false)));
    cases.push_back(timing(backward_case(dtype, {1024}, {9, 3, 64}, false)));
    cases.push_back(
        timing(paged_case(dtype, std::vector<int64_t>(8, 1), std::vector<int64_t>(8, 1024), 16, {9, 3, 64})));
    for (const DType pages : {DType::f32, DType::bf16}) {
      for (const int64_t width : {1, 17, 64}) cases.push_back(kv_store_case(pages, dtype, 9, width));
      cases.push_back(kv_store_case(pages, dtype, 0, 8));
    }
    cases.push_back(timing(kv_store_case(dtype, dtype, 1024, 512)));
  }
  for (const int64_t width : {17, 64}) cases.push_back(kv_store_case(DType::f16, DType::f16, 9, width));
  // Llama-3.1-8B, GPT-2 1558M, a sliding window; one decoded token of Llama-2-13B and of Llama-3.1-8B.
  for (const auto& [lengths, heads] : std::vector<std::pair<std::vector<int64_t>, Heads>>{
           {{8192}, {32, 8, 128}}, {std::vector<int64_t>(8, 1024), {25, 25, 64}}, {{8192}, {32, 8, 128, 1024}}}) {
    cases.push_back(large(forward_case(DType::bf16, lengths, heads, true)));
    cases.push_back(large(backward_case(DType::bf16, lengths, heads, false), {4, 5, 6, 7, 8}));
  }
  cases.push_back(large(paged_case(DType::bf16, {1}, {4096}, 16, {40, 40, 128})));
  cases.push_back(
      large(paged_case(DType::bf16, std::vector<int64_t>(64, 1), std::vector<int64_t>(64, 4096), 16, {32, 8, 128})));
  return cases;
}

}  // namespace ingot::ops::testing

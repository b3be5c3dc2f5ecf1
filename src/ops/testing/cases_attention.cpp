#include "base/error.h"
#include "base/half.h"
#include "ops/attention.h"
#include "ops/attention_bytes.h"
#include "ops/testing/op_table.h"

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
  float scale() const { return (softcap > 0 ? 3.0F : 1.0F) / std::sqrt(static_cast<float>(d)); }
  ops::AttentionAttributes attributes(const Tensor& slopes) const {
    return {.heads = q,
            .kv_heads = kv,
            .head_dim = d,
            .scale = scale(),
            .window = window,
            .softcap = softcap,
            .slopes = slopes,
            .first_query = first_query};
  }
  std::string text() const {
    return fmt::format("heads={}/{} D={}{}{}{}{}", q, kv, d, window > 0 ? fmt::format(" window={}", window) : "",
                       softcap > 0 ? fmt::format(" softcap={}", softcap) : "", sloped ? " slopes" : "",
                       num_queries > 0 ? fmt::format(" queries={}..{}", first_query, first_query + num_queries) : "");
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

struct Row {
  std::vector<double> p;     // by key, 0 where masked
  std::vector<double> bend;  // derivative of the softcapped score by the scaled dot product
  // Condition of each score in units of tensor/tolerance.h, and so the relative one of exp(score): the terms of the dot
  // product and of what follows it, and the largest score, which is subtracted.
  std::vector<double> of_score;
  double lse;
  double of_lse;  // condition of lse: its own size and the mean of of_score, the relative condition of the sum
};

// Softmax row of query `place` of a sequence in head `head` over the keys 0 .. place; `key(i)` is the offset of key i.
template <class Key>
Row row_of(const double* query, size_t head, size_t place, const std::vector<double>& k, const Heads& heads, Key key) {
  Row row{std::vector<double>(place + 1), std::vector<double>(place + 1, 1.0), std::vector<double>(place + 1), 0, 0};
  double total = 0;
  double top = 0;
  for (size_t i = 0; i <= place; ++i) {
    if (heads.window > 0 && static_cast<int64_t>(place - i) >= heads.window) continue;
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
  for (double& x : row.p) x /= total;
  row.lse = std::log(total);
  row.of_lse = std::abs(row.lse) + std::sqrt(static_cast<double>(place + 1));
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

struct Result {
  std::vector<double> out, lse;
  Condition of_out = {}, of_lse = {};
};

// Adds to out [D] the values of the keys, each times its probability, and the condition of the sum. The probabilities
// may be rounded to the type of the values.
template <class Key>
void add_values(double* out, double* sum, double* narrow, const Row& row, const std::vector<double>& v, size_t d,
                Key key) {
  for (size_t i = 0; i < row.p.size(); ++i) {
    for (size_t j = 0; j < d; ++j) {
      const double term = row.p[i] * v[key(i) + j];
      out[j] += term;
      sum[j] += std::abs(term) * (2.0 + row.of_score[i]);
      narrow[j] += std::abs(term);
    }
  }
  for (size_t j = 0; j < d; ++j) sum[j] += std::abs(out[j]) * row.of_lse;
}

Result attend(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
              const std::vector<int64_t>& lengths, const Heads& heads) {
  const auto tokens = static_cast<size_t>(heads.queries(sum_of(lengths)));
  const auto d = static_cast<size_t>(heads.d);
  const auto q_heads = static_cast<size_t>(heads.q);
  const auto kv_heads = static_cast<size_t>(heads.kv);
  Result result{std::vector<double>(q.size()), std::vector<double>(q_heads * tokens)};
  result.of_out.sum.resize(q.size());
  result.of_out.narrow.resize(q.size());
  result.of_lse.sum.resize(q_heads * tokens);
  each_row(lengths, heads, [&](size_t t, size_t h, size_t start, size_t place) {
    const auto key = [&](size_t i) { return ((start + i) * kv_heads + h / (q_heads / kv_heads)) * d; };
    const size_t at = (t * q_heads + h) * d;
    const Row row = row_of(&q[at], h, place, k, heads, key);
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
  const int64_t queries = heads.queries(tokens);
  c.operands = {{"out", dtype, {queries, heads.q * heads.d}, Role::output},
                {"lse", DType::f32, {heads.q, queries}, Role::output},
                {"q", dtype, {queries, heads.q * heads.d}},
                {"k", dtype, {tokens, heads.kv * heads.d}},
                {"v", dtype, {tokens, heads.kv * heads.d}},
                {"offsets", DType::i32, {std::ssize(lengths) + 1}, Role::input, fixed(offsets_of(lengths))},
                heads.slopes()};
  c.operands[1].absent = !with_lse;
  c.run = [heads](ops::Context& context, const Arguments& a) {
    ops::attention(context, a[0], a[1], a[2], a[3], a[4], a[5], heads.attributes(a[6]));
  };
  c.reference = [lengths, heads](Values& v, Conditions& conditions) {
    Result result = attend(v[2], v[3], v[4], lengths, heads);
    v[0] = std::move(result.out);
    v[1] = std::move(result.lse);
    conditions[0] = std::move(result.of_out);
    conditions[1] = std::move(result.of_lse);
  };
  c.length = tokens + heads.d;
  c.scratch = [tokens, heads](int threads) {
    return ops::attention_bytes(heads.queries(tokens), tokens, heads.q, heads.d, threads);
  };
  c.flops = causal_flops(lengths, heads);
  c.bytes = static_cast<double>(tokens * 2 * (heads.q + heads.kv) * heads.d) * static_cast<double>(size_of(dtype));
  return c;
}

// With the full matrix P: dS = P (dP - sum over keys of P dP), without using out and lse. Conditions: P has the
// relative one of a score and of lse; dP and <dout, out> are sums; P and dS may be rounded to the type of the operands,
// and out was.
void differentiate(Values& v, Conditions& conditions, const std::vector<int64_t>& lengths, const Heads& heads) {
  const auto d = static_cast<size_t>(heads.d);
  const auto q_heads = static_cast<size_t>(heads.q);
  const auto kv_heads = static_cast<size_t>(heads.kv);
  const std::vector<double>&dout = v[3], &out = v[4], &q = v[6], &k = v[7], &value = v[8];
  for (size_t i = 0; i < 3; ++i) {
    std::fill(v[i].begin(), v[i].end(), 0.0);
    conditions[i].sum = conditions[i].narrow = v[i];
  }
  const double root = std::sqrt(static_cast<double>(heads.d));
  each_row(lengths, heads, [&](size_t t, size_t h, size_t start, size_t place) {
    const auto key = [&](size_t i) { return ((start + i) * kv_heads + h / (q_heads / kv_heads)) * d; };
    const size_t at = (t * q_heads + h) * d;
    const auto [p, bend, of_score, lse, of_lse] = row_of(&q[at], h, place, k, heads, key);
    std::vector<double> dp(p.size());
    std::vector<double> of_dp(p.size());
    double mean = 0;
    double of_mean = 0;
    for (size_t j = 0; j < d; ++j) of_mean += std::abs(dout[at + j] * out[at + j]);
    for (size_t i = 0; i < p.size(); ++i) {
      const double of_p = 2.0 + of_score[i] + std::abs(lse);
      for (size_t j = 0; j < d; ++j) {
        const double term = std::abs(p[i] * dout[at + j]);
        dp[i] += dout[at + j] * value[key(i) + j];
        of_dp[i] += std::abs(dout[at + j] * value[key(i) + j]);
        v[2][key(i) + j] += p[i] * dout[at + j];
        conditions[2].sum[key(i) + j] += term * of_p;
        conditions[2].narrow[key(i) + j] += term;
      }
      mean += p[i] * dp[i];
    }
    for (size_t i = 0; i < p.size(); ++i) {
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
        v[0][at + j] += slope * k[key(i) + j];
        v[1][key(i) + j] += slope * q[at + j];
        conditions[0].sum[at + j] += of_slope * size_k;
        conditions[0].narrow[at + j] += narrow * size_k;
        conditions[1].sum[key(i) + j] += of_slope * size_q;
        conditions[1].narrow[key(i) + j] += narrow * size_q;
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
    const Result saved = attention_context ? attend(q, k, v, lengths, heads)
                                           : Result{q, std::vector<double>(q.size() / static_cast<size_t>(heads.d))};
    return Values{saved.out, saved.lse, q, k, v};
  });
  const Shape q_shape{queries, heads.q * heads.d};
  const Shape kv_shape{tokens, heads.kv * heads.d};
  c.operands = {{"dq", dtype, q_shape, Role::output},
                {"dk", dtype, kv_shape, Role::output},
                {"dv", dtype, kv_shape, Role::output},
                {"dout", dtype, q_shape},
                {"out", dtype, q_shape, Role::input, drawn[0]},
                {"lse", DType::f32, {heads.q, queries}, Role::input, drawn[1]},
                {"q", dtype, q_shape, Role::input, drawn[2]},
                {"k", dtype, kv_shape, Role::input, drawn[3]},
                {"v", dtype, kv_shape, Role::input, drawn[4]},
                {"offsets", DType::i32, {std::ssize(lengths) + 1}, Role::input, fixed(offsets_of(lengths))},
                heads.slopes()};
  c.run = [heads](ops::Context& context, const Arguments& a) {
    ops::attention_backward(context, a[0], a[1], a[2], a[3], {a[4], a[5], a[6], a[7], a[8]}, a[9],
                            heads.attributes(a[10]));
  };
  c.reference = [lengths, heads](Values& values, Conditions& conditions) {
    differentiate(values, conditions, lengths, heads);
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
  c.scratch = [tokens, heads](int threads) {
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
                heads.slopes()};
  c.run = [heads](ops::Context& context, const Arguments& a) {
    ops::paged_attention(context, a[0], a[1], {a[2], a[3]}, {a[4], a[5], a[6]}, heads.attributes(a[7]));
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
      const Row row = row_of(&v[1][at], h, before + place, v[2], heads, key);
      add_values(&v[0][at], &conditions[0].sum[at], &conditions[0].narrow[at], row, v[3], d, key);
    });
  };
  c.length = *std::max_element(lengths.begin(), lengths.end()) + heads.d;
  c.scratch = [=](int threads) { return ops::attention_bytes(tokens, most * page, heads.q, heads.d, threads); };
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
    // Window, softcap and slopes, alone and together; windows smaller than, equal to and larger than a block of keys.
    for (const Heads heads : {Heads{3, 1, 20, 5},
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

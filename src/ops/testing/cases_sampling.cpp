#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/sampling.h"
#include "ops/sampling_weight.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

enum Place : size_t { chosen, logprobs, logits, scales, cuts, masks, edit_offsets, edit_ids, edit_values };

struct Sizes {
  int64_t rows, vocabulary, num_top;
  double step = 0;      // logits are multiples of this, so that many are equal; 0: not quantised
  double spread = 2;    // standard deviation of the logits
  int64_t padding = 0;  // columns of the logits beyond the vocabulary, which must not matter

  int64_t columns() const { return vocabulary + padding; }
};

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// Of row r, tokens r % 5, r % 5 + edit_distance(r), ... are edited, but none where r % 5 is 0.
int64_t edit_distance(int64_t r) { return 1 + r % 5 * 3; }

// Edits of all rows; at least one, since an operand cannot be empty.
int64_t num_edits(const Sizes& s) {
  int64_t sum = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t first = r % 5;
    if (first != 0 && first < s.vocabulary) sum += 1 + (s.vocabulary - 1 - first) / edit_distance(r);
  }
  return std::max<int64_t>(1, sum);
}

// Settings with all combinations of filters, every third row greedy; two masks; edits for most rows.
Values settings_of(const Sizes& s) {
  RandomStream random(3, s.rows, s.vocabulary, s.num_top);
  Values v(9);
  const auto word = [&] { return static_cast<double>(static_cast<int32_t>(random.next_u32())); };
  v[edit_offsets] = {0};
  for (int64_t r = 0; r < s.rows; ++r) {
    const bool greedy = r % 3 == 2;
    v[scales].push_back(greedy ? 0.0
                               : static_cast<double>(static_cast<float>(M_LOG2E / (0.3 + random.uniform_double()))));
    v[scales].push_back(r / 3 % 2 == 1 ? static_cast<double>(static_cast<float>(std::log2(0.02))) : minus_infinity);
    v[cuts].push_back(r % 2 == 1 ? static_cast<double>(1 + random.below(static_cast<uint64_t>(s.vocabulary) + 3))
                                 : 0.0);
    const double top_p = r / 2 % 2 == 1 ? random.uniform_double() : 1.0;
    v[cuts].push_back(
        top_p < 1 ? static_cast<double>(static_cast<int32_t>(static_cast<uint32_t>(std::ceil(top_p * 0x1p32)))) : 0.0);
    v[cuts].push_back(word());
    v[cuts].push_back(word());
    v[cuts].push_back(r % 4 == 0 ? -1.0 : static_cast<double>(r % 2));
    for (int64_t id = r % 5; r % 5 != 0 && id < s.vocabulary; id += edit_distance(r)) {
      v[edit_ids].push_back(static_cast<double>(id));
      v[edit_values].push_back(static_cast<double>(1 / 1.3F));
      v[edit_values].push_back(static_cast<double>(1.3F));
      v[edit_values].push_back(static_cast<double>(static_cast<float>(random.normal())));
    }
    v[edit_offsets].push_back(static_cast<double>(v[edit_ids].size()));
  }
  for (int64_t i = 0; i < 2 * ((s.vocabulary + 31) / 32); ++i) v[masks].push_back(word());
  if (v[edit_ids].empty()) {
    v[edit_ids] = {0};
    v[edit_values] = {1, 1, 0};
  }
  return v;
}

struct Candidate {
  int64_t id;
  float logit;
  float power;
  uint64_t weight;
};

// The id sampled by row r of the settings: sorts all candidates, applies the filters, and finds the draw in order of
// id.
int64_t choice_of(const Values& v, size_t r, size_t width, size_t stride) {
  std::vector<float> changed;
  for (size_t i = 0; i < width; ++i) changed.push_back(static_cast<float>(v[logits][r * stride + i]));
  for (size_t e = static_cast<size_t>(v[edit_offsets][r]); e < static_cast<size_t>(v[edit_offsets][r + 1]); ++e) {
    float& logit = changed[static_cast<size_t>(v[edit_ids][e])];
    logit = logit * static_cast<float>(v[edit_values][e * 3 + (logit > 0 ? 0 : 1)]);
    logit = logit + static_cast<float>(v[edit_values][e * 3 + 2]);
  }
  std::vector<Candidate> candidates;
  const double mask = v[cuts][r * 5 + 4];
  for (size_t i = 0; i < width; ++i) {
    const size_t place = static_cast<size_t>(std::max(mask, 0.0)) * ((width + 31) / 32) + i / 32;
    const auto bits = static_cast<uint32_t>(static_cast<int32_t>(v[masks][place]));
    if (mask < 0 || ((bits >> (i % 32)) & 1U) != 0) candidates.push_back({static_cast<int64_t>(i), changed[i], 0, 0});
  }
  if (candidates.empty()) return -2;
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  const auto scale = static_cast<float>(v[scales][r * 2]);
  if (scale == 0) return candidates.front().id;
  for (Candidate& c : candidates) {
    c.power = (c.logit - candidates.front().logit) * scale;
    c.weight = ops::sampling_weight(c.power);
  }
  const auto total = [&] {
    return std::accumulate(candidates.begin(), candidates.end(), uint64_t{0},
                           [](uint64_t sum, const Candidate& c) { return sum + c.weight; });
  };
  const auto top_k = static_cast<size_t>(v[cuts][r * 5]);
  if (top_k > 0 && top_k < candidates.size()) candidates.resize(top_k);
  const auto top_p = static_cast<uint32_t>(static_cast<int32_t>(v[cuts][r * 5 + 1]));
  if (top_p > 0) {
    const uint64_t wanted = std::max<uint64_t>(1, ops::scaled_fraction(total(), top_p));
    uint64_t reached = 0;
    size_t kept = 0;
    while (reached < wanted) reached += candidates[kept++].weight;
    candidates.resize(kept);
  }
  while (static_cast<double>(candidates.back().power) < v[scales][r * 2 + 1]) candidates.pop_back();
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  const auto half = [&](size_t i) { return uint64_t{static_cast<uint32_t>(static_cast<int32_t>(v[cuts][r * 5 + i]))}; };
  const uint64_t place = ops::multiply_high(half(2) | half(3) << 32, total());
  uint64_t reached = 0;
  for (const Candidate& c : candidates) {
    reached += c.weight;
    if (reached > place) return c.id;
  }
  return candidates.back().id;
}

void reference_row(Values& v, size_t r, size_t width, size_t stride, size_t columns) {
  const double* row = v[logits].data() + r * stride;
  std::vector<size_t> order(width);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
  double sum = 0;
  for (size_t i = 0; i < width; ++i) sum += std::exp(row[i] - row[order[0]]);
  const double total = row[order[0]] + std::log(sum);
  const int64_t id = choice_of(v, r, width, stride);
  v[chosen][r * columns] = static_cast<double>(id);
  v[logprobs][r * columns] = id < 0 ? 0 : row[id] - total;
  for (size_t c = 1; c < columns; ++c) {
    v[chosen][r * columns + c] = static_cast<double>(order[c - 1]);
    v[logprobs][r * columns + c] = row[order[c - 1]] - total;
  }
}

// Of the log-probabilities: the logit minus the largest one, and the log of the sum, whose absolute error is the
// relative one of the sum. exp(x) has the absolute error of x as its relative one.
void add_conditions(const Values& v, size_t r, size_t width, size_t stride, size_t columns,
                    std::vector<double>& conditions) {
  const double* row = v[logits].data() + r * stride;
  const double top = *std::max_element(row, row + width);
  double weight = 0;
  double of_sum = 0;
  for (size_t i = 0; i < width; ++i) {
    weight += std::exp(row[i] - top);
    of_sum += std::exp(row[i] - top) * (top - row[i]);
  }
  of_sum = of_sum / weight + std::sqrt(static_cast<double>(width)) + std::log(weight);
  for (size_t c = 0; c < columns; ++c) {
    const double id = v[chosen][r * columns + c];
    conditions.push_back(id < 0 ? 0.0 : top - row[static_cast<size_t>(id)] + of_sum);
  }
}

OpCase sampling_case(const Sizes& s) {
  OpCase c{.op = "sample",
           .name = fmt::format("R={} V={} N={}{}{}", s.rows, s.vocabulary, s.num_top, s.step > 0 ? " ties" : "",
                               s.padding > 0 ? fmt::format(" and {} columns", s.padding) : "")};
  const Drawn drawn([s] { return settings_of(s); });
  const int64_t edits = num_edits(s);
  c.operands = {{"chosen", DType::i32, {s.rows, 1 + s.num_top}, Role::output},
                {"logprobs", DType::f32, {s.rows, 1 + s.num_top}, Role::output},
                {"logits", DType::f32, {s.rows, s.columns()}, Role::input, normal(s.spread)},
                {"scales", DType::f32, {s.rows, 2}, Role::input, drawn[scales]},
                {"cuts", DType::i32, {s.rows, 5}, Role::input, drawn[cuts]},
                {"masks", DType::i32, {2, (s.vocabulary + 31) / 32}, Role::input, drawn[masks]},
                {"edit_offsets", DType::i32, {s.rows + 1}, Role::input, drawn[edit_offsets]},
                {"edit_ids", DType::i32, {edits}, Role::input, drawn[edit_ids]},
                {"edit_values", DType::f32, {edits, 3}, Role::input, drawn[edit_values]}};
  if (s.step > 0) {
    c.operands[logits].fill = [step = s.step](std::vector<double>& values, RandomStream& random) {
      for (double& value : values) value = step * std::round(2 * random.normal() / step);
    };
  }
  // The op overwrites some inputs, which are copied first.
  c.scratch = [s, edits](int, bool) {
    return Arena::footprint(DType::f32, Shape{s.rows, s.columns()}) + Arena::footprint(DType::f32, Shape{edits, 3});
  };
  c.run = [s](ops::Context& context, const Arguments& a) {
    const Arena::Scope scope(context.scratch);
    const auto copied = [&](const Tensor& tensor) {
      const Tensor copy = context.scratch.allocate(DType::f32, tensor.shape);
      ops::scale(context, copy, tensor, 1);
      return copy;
    };
    ops::SamplingRows rows{a[scales], a[cuts], a[masks], a[edit_offsets], a[edit_ids], copied(a[edit_values])};
    if (s.padding > 0) rows.vocabulary = s.vocabulary;
    ops::sample(context, a[chosen], a[logprobs], copied(a[logits]), rows);
  };
  c.reference = [s](Values& v, Conditions& conditions) {
    conditions[logprobs].cancels = true;
    const auto width = static_cast<size_t>(s.vocabulary), stride = static_cast<size_t>(s.columns());
    const auto columns = static_cast<size_t>(1 + s.num_top);
    for (size_t r = 0; r < static_cast<size_t>(s.rows); ++r) reference_row(v, r, width, stride, columns);
    for (size_t r = 0; r < static_cast<size_t>(s.rows); ++r)
      add_conditions(v, r, width, stride, columns, conditions[logprobs].sum);
  };
  c.length = s.vocabulary;
  c.bytes = static_cast<double>(s.rows * s.vocabulary) * 4;
  c.flops = static_cast<double>(s.rows * s.vocabulary);
  return c;
}

// Every third id is known; the others are those of rows in any order, of which every fourth has no token.
OpCase insert_case(int64_t tokens, int64_t rows, int64_t columns) {
  OpCase c{.op = "insert_sampled", .name = fmt::format("T={} R={} C={}", tokens, rows, columns)};
  const Fill known = [rows](std::vector<double>& values, RandomStream& random) {
    for (size_t t = 0; t < values.size(); ++t) {
      const auto drawn = static_cast<double>(random.below(t % 3 == 0 ? 1000 : static_cast<uint64_t>(rows)));
      values[t] = t % 3 == 0 ? drawn : -1 - drawn;
    }
  };
  const Fill sampled = [columns](std::vector<double>& values, RandomStream& random) {
    for (size_t i = 0; i < values.size(); ++i) {
      const bool none = i / static_cast<size_t>(columns) % 4 == 3;
      values[i] = none ? -1 - static_cast<double>(random.below(2)) : static_cast<double>(random.below(128256));
    }
  };
  c.operands = {{"ids", DType::i32, {tokens}, Role::output},
                {"known", DType::i32, {tokens}, Role::input, known},
                {"chosen", DType::i32, {rows, columns}, Role::input, sampled}};
  c.run = [](ops::Context& context, const Arguments& a) { ops::insert_sampled(context, a[0], a[1], a[2]); };
  c.reference = [columns](Values& v, Conditions&) {
    for (size_t t = 0; t < v[0].size(); ++t) {
      const auto row = static_cast<size_t>(std::max(0.0, -1 - v[1][t]));
      v[0][t] = v[1][t] >= 0 ? v[1][t] : std::max(0.0, v[2][row * static_cast<size_t>(columns)]);
    }
  };
  c.precision = Precision::exact;
  c.bytes = static_cast<double>(tokens) * 12;
  return c;
}

}  // namespace

std::vector<OpCase> sampling_cases() {
  std::vector<OpCase> cases;
  for (const Sizes& s : {Sizes{1, 2, 0},
                         {3, 1, 0},
                         {24, 33, 3},
                         {24, 97, 0, 0.5},
                         {12, 1024, 5, 1.0},
                         {12, 3001, 20},
                         {6, 2500, 0, 4.0},
                         {12, 700, 2, 0, 20},
                         {24, 97, 3, 0, 2, 7}}) {
    cases.push_back(sampling_case(s));
  }
  for (const int64_t rows : {1, 32}) cases.push_back(timing(sampling_case({rows, 49152, 0})));
  cases.push_back(large(sampling_case({256, 128256, 0})));
  cases.push_back(insert_case(1, 1, 1));
  cases.push_back(insert_case(300, 17, 3));
  cases.push_back(timing(insert_case(256, 256, 1)));
  return cases;
}

}  // namespace ingot::ops::testing

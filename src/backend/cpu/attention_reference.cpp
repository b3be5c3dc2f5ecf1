// Attention by its definition, in double: the last implementation of every list.
#include "backend/cpu/attention_plan.h"

namespace ingot::cpu {
namespace {

using ops::AttentionAttributes;

double dot(const Tensor& a, int64_t at_a, const Tensor& b, int64_t at_b, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += element(a, at_a + j) * element(b, at_b + j);
  return sum;
}

// The first key that query `i` of a sequence attends to.
int64_t first_key(const AttentionAttributes& attributes, int64_t i) {
  return attributes.window == 0 ? 0 : std::max<int64_t>(0, i - attributes.window + 1);
}

struct Score {
  double value;
  double slope;  // derivative with respect to the scaled product
};

// The score of query head `head`, from the product of query and key; key j is `distance` = i - j before query i.
Score score_of(const AttentionAttributes& attributes, double product, int64_t head, int64_t distance) {
  Score score{static_cast<double>(attributes.scale) * product, 1};
  if (attributes.softcap > 0) {
    const auto cap = static_cast<double>(attributes.softcap);
    const double share = std::tanh(score.value / cap);
    score = {cap * share, 1 - share * share};
  }
  if (attributes.slopes) score.value -= element(attributes.slopes, head) * static_cast<double>(distance);
  return score;
}

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// Computes out [D] of query head `head` of one token, number `place` of its sequence, over those of `keys` that it
// attends to; `key_at(i)` is the index of the first element of key and value i. Returns lse. `earlier`: lse of other
// keys, whose result out has, and which count as one key with this score and value.
template <class KeyAt>
double attend(const Tensor& out, const Tensor& q, int64_t at, int64_t head, int64_t place, TokenRange keys,
              const Tensor& k, const Tensor& v, const AttentionAttributes& attributes, double earlier, KeyAt key_at) {
  const int64_t d = attributes.head_dim;
  const int64_t first = std::max(keys.begin, first_key(attributes, place)), end = std::min(keys.end, place + 1);
  std::vector<double> p;
  double top = earlier;
  for (int64_t i = first; i < end; ++i) {
    p.push_back(score_of(attributes, dot(q, at, k, key_at(i), d), head, place - i).value);
    top = std::max(top, p.back());
  }
  const double before = earlier == minus_infinity ? 0 : std::exp(earlier - top);
  double sum = before;
  for (double& x : p) sum += (x = std::exp(x - top));
  for (int64_t j = 0; j < d; ++j) {
    double total = before == 0 ? 0 : before * element(out, at + j);
    for (int64_t i = first; i < end; ++i) total += p[static_cast<size_t>(i - first)] * element(v, key_at(i) + j);
    set_element(out, at + j, sum == 0 ? 0 : total / sum);
  }
  return sum == 0 ? minus_infinity : top + std::log(sum);
}

// Assigned, or added to what is there.
void set_sum(const Tensor& tensor, int64_t i, double value, bool accumulate) {
  set_element(tensor, i, accumulate ? element(tensor, i) + value : value);
}

}  // namespace

void reference_attention(ops::Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& offsets, AttentionAttributes attributes) {
  const int64_t queries = q.shape[0];
  const int64_t d = attributes.head_dim;
  const int64_t group = attributes.heads / attributes.kv_heads;
  const auto starts = pack_offsets(ops::Attention::name, offsets, queries, k.shape[0], attributes);
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t start = starts[s];
    const int64_t key_start = start - attributes.first_key.value_or(0);  // row of k of the sequence's token 0
    const TokenRange own = queries_of(attributes, queries, start, starts[s + 1]);
    const TokenRange keys = keys_of(attributes, k.shape[0], start, starts[s + 1]);
    context.threads->parallel_for(own.begin, own.end, 1, [&](int64_t place, int64_t) {
      const int64_t t = start + place - attributes.first_query;  // row of q
      for (int64_t h = 0; h < attributes.heads; ++h) {
        const double earlier = attributes.accumulate ? element(lse, h * queries + t) : minus_infinity;
        const double log_sum =
            attend(out, q, (t * attributes.heads + h) * d, h, place, keys, k, v, attributes, earlier,
                   [&](int64_t i) { return ((key_start + i) * attributes.kv_heads + h / group) * d; });
        if (lse) set_element(lse, h * queries + t, log_sum);
      }
    });
  }
}

void reference_attention_backward(ops::Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                  const Tensor& dout, const ops::AttentionSaved& saved, const Tensor& offsets,
                                  AttentionAttributes attributes) {
  const int64_t queries = dout.shape[0];
  const int64_t d = attributes.head_dim;
  const int64_t heads = attributes.heads;
  const int64_t kv_heads = attributes.kv_heads;
  const int64_t group = heads / kv_heads;
  const auto scale = static_cast<double>(attributes.scale);
  const auto starts = pack_offsets(ops::AttentionBackward::name, offsets, queries, saved.k.shape[0], attributes);
  context.threads->parallel_for(0, kv_heads, 1, [&](int64_t g, int64_t) {
    for (size_t s = 0; s + 1 < starts.size(); ++s) {
      const int64_t start = starts[s];
      const TokenRange own = queries_of(attributes, queries, start, starts[s + 1]);
      const TokenRange keys = keys_of(attributes, saved.k.shape[0], start, starts[s + 1]);
      const int64_t key_start = start - attributes.first_key.value_or(0);  // row of k of the sequence's token 0
      const auto size = static_cast<size_t>((keys.end - keys.begin) * d);
      std::vector<double> dk_sum(size);
      std::vector<double> dv_sum(size);
      std::vector<double> dq_sum(static_cast<size_t>(d));
      for (int64_t h = g * group; h < (g + 1) * group; ++h) {
        for (int64_t place = own.begin; place < own.end; ++place) {
          const int64_t t = start + place - attributes.first_query;  // row of q
          const int64_t at = (t * heads + h) * d;
          const double delta = dot(dout, at, saved.out, at, d);
          std::fill(dq_sum.begin(), dq_sum.end(), 0.0);
          for (int64_t i = std::max(keys.begin, first_key(attributes, place)); i < std::min(keys.end, place + 1); ++i) {
            const int64_t key = ((key_start + i) * kv_heads + g) * d;
            const Score score = score_of(attributes, dot(saved.q, at, saved.k, key, d), h, place - i);
            const double p = std::exp(score.value - element(saved.lse, h * queries + t));
            const double slope = scale * score.slope * p * (dot(dout, at, saved.v, key, d) - delta);
            for (int64_t j = 0; j < d; ++j) {
              const auto sum = static_cast<size_t>((i - keys.begin) * d + j);
              dq_sum[static_cast<size_t>(j)] += slope * element(saved.k, key + j);
              dk_sum[sum] += slope * element(saved.q, at + j);
              dv_sum[sum] += p * element(dout, at + j);
            }
          }
          for (int64_t j = 0; j < d; ++j) set_sum(dq, at + j, dq_sum[static_cast<size_t>(j)], attributes.accumulate);
        }
      }
      for (size_t i = 0; i < size; ++i) {
        const int64_t row = key_start + keys.begin + static_cast<int64_t>(i) / d;
        const int64_t at = (row * kv_heads + g) * d + static_cast<int64_t>(i) % d;
        set_sum(dk, at, dk_sum[i], attributes.accumulate);
        set_sum(dv, at, dv_sum[i], attributes.accumulate);
      }
    }
  });
}

void reference_paged_attention(ops::Context& context, const Tensor& out, const Tensor& q, const ops::KvPages& pages,
                               const ops::PagedLayout& layout, AttentionAttributes attributes) {
  check_layout(q, pages, layout);
  const int64_t d = attributes.head_dim;
  const int64_t group = attributes.heads / attributes.kv_heads;
  const int64_t page = pages.k.shape[1];
  const int32_t* starts = layout.query_offsets.as<int32_t>();
  for (int64_t s = 0; s < layout.lengths.elements(); ++s) {
    const int32_t* table = layout.tables.as<int32_t>() + s * layout.tables.shape[1];
    const int64_t after = layout.lengths.as<int32_t>()[s] - starts[s + 1];  // row t is token after + t of the sequence
    context.threads->parallel_for(starts[s], starts[s + 1], 1, [&](int64_t t, int64_t) {
      for (int64_t h = 0; h < attributes.heads; ++h) {
        attend(out, q, (t * attributes.heads + h) * d, h, after + t, {0, after + t + 1}, pages.k, pages.v, attributes,
               minus_infinity,
               [&](int64_t i) { return ((table[i / page] * page + i % page) * attributes.kv_heads + h / group) * d; });
      }
    });
  }
}

}  // namespace ingot::cpu

#include "ops/attention.h"

#include <algorithm>

#include "base/error.h"
#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {
namespace {

void check_queries(const char* op, const Context& context, const Tensor& q, const AttentionAttributes& a,
                   std::initializer_list<DType> types = forward_types) {
  if (a.heads < 1 || a.kv_heads < 1 || a.head_dim < 1 || a.heads % a.kv_heads != 0) {
    throw_error(ErrorKind::internal, "{}: invalid shape of {} heads of {} elements with {} key/value heads", op,
                a.heads, a.head_dim, a.kv_heads);
  }
  if (a.window < 0 || !(a.softcap >= 0.0F) || !(a.scale > 0.0F)) {
    throw_error(ErrorKind::internal, "{}: window {} and softcap {} must not be negative, and scale {} must be positive",
                op, a.window, a.softcap, a.scale);
  }
  if (a.slopes) check(op, "slopes", context, a.slopes, {a.heads}, {DType::f32});
  check_rank(op, "q", q, 2);
  check(op, "q", context, q, {q.shape[0], a.heads * a.head_dim}, types);
}

// Of packed sequences: k and v, and which of their tokens the queries are.
void check_keys(const char* op, const Context& context, const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionAttributes& a) {
  check_rank(op, "k", k, 2);
  check(op, "k", context, k, {k.shape[0], a.kv_heads * a.head_dim}, {q.dtype});
  check(op, "v", context, v, k.shape, {q.dtype});
  if (a.first_query < 0 || a.first_key.value_or(0) < 0 || (a.accumulate && !a.first_key)) {
    throw_error(ErrorKind::internal, "{}: queries from token {} on, keys from token {} on, which accumulate: {}", op,
                a.first_query, a.first_key.value_or(0), a.accumulate);
  }
  // Of keys of a part of the tokens, the implementations check these against the offsets.
  if (!a.first_key && a.first_query + q.shape[0] > k.shape[0]) {
    throw_error(ErrorKind::internal, "{}: {} queries from token {} on, of {} tokens with keys", op, q.shape[0],
                a.first_query, k.shape[0]);
  }
}

void check_offsets(const char* op, const Context& context, const Tensor& offsets) {
  check_rank(op, "offsets", offsets, 1);
  check_dtype(op, "offsets", offsets, {DType::i32});
  check_device(op, "offsets", context, offsets);
  if (offsets.shape[0] < 1)
    throw_error(ErrorKind::internal, "{}: offsets is {}, it must not be empty", op, offsets.text());
}

void check_pages(const char* op, const Context& context, const KvPages& pages, int64_t width,
                 std::initializer_list<DType> dtypes) {
  check_rank(op, "pages.k", pages.k, 3);
  check(op, "pages.k", context, pages.k, {pages.k.shape[0], pages.k.shape[1], width}, dtypes);
  check(op, "pages.v", context, pages.v, pages.k.shape, {pages.k.dtype});
  if (pages.k.shape[1] < 1)
    throw_error(ErrorKind::internal, "{}: pages.k is {}, its pages must hold at least one token", op, pages.k.text());
}

}  // namespace

void attention(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
               const Tensor& v, const Tensor& offsets, AttentionAttributes attributes) {
  const char* op = Attention::name;
  check_queries(op, context, q, attributes);
  check_keys(op, context, q, k, v, attributes);
  check(op, "out", context, out, q.shape, {attributes.result_type(q.dtype)});
  if (lse || attributes.accumulate) check(op, "lse", context, lse, {attributes.heads, q.shape[0]}, {DType::f32});
  check_offsets(op, context, offsets);
  if (q.elements() == 0) return;
  dispatch<Attention>(context, out, lse, q, k, v, offsets, attributes);
}

void attention_backward(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const AttentionSaved& saved, const Tensor& offsets, AttentionAttributes attributes) {
  const char* op = AttentionBackward::name;
  const auto& [out, lse, q, k, v] = saved;
  check_queries(op, context, q, attributes, optimizer_types);
  check_keys(op, context, q, k, v, attributes);
  check(op, "out", context, out, q.shape, {q.dtype});
  check(op, "dout", context, dout, q.shape, {q.dtype});
  check(op, "lse", context, lse, {attributes.heads, q.shape[0]}, {DType::f32});
  check(op, "dq", context, dq, q.shape, {attributes.result_type(q.dtype)});
  check(op, "dk", context, dk, k.shape, {attributes.result_type(q.dtype)});
  check(op, "dv", context, dv, k.shape, {attributes.result_type(q.dtype)});
  check_offsets(op, context, offsets);
  if (q.elements() == 0 && k.elements() == 0) return;
  dispatch<AttentionBackward>(context, dq, dk, dv, dout, saved, offsets, attributes);
}

void check_kv_pages(const char* op, const Context& context, const KvPages& pages, const Tensor& k) {
  if (k.dtype == DType::f16) {
    check_pages(op, context, pages, k.shape[1], {DType::f16});
  } else {
    check_pages(op, context, pages, k.shape[1], {DType::f32, DType::bf16});
  }
}

void kv_store(Context& context, const KvPages& pages, const Tensor& k, const Tensor& v, const Tensor& slots) {
  const char* op = KvStore::name;
  check_rank(op, "k", k, 2);
  check_dtype(op, "k", k, forward_types);
  check_device(op, "k", context, k);
  check(op, "v", context, v, k.shape, {k.dtype});
  check(op, "slots", context, slots, {k.shape[0]}, {DType::i32});
  check_kv_pages(op, context, pages, k);
  if (k.elements() == 0) return;
  dispatch<KvStore>(context, pages, k, v, slots);
}

void paged_attention(Context& context, const Tensor& out, const Tensor& q, const KvPages& pages,
                     const PagedLayout& layout, AttentionAttributes attributes) {
  const char* op = PagedAttention::name;
  check_queries(op, context, q, attributes);
  if (attributes.first_query != 0 || attributes.first_key || attributes.accumulate) {
    throw_error(ErrorKind::internal, "{}: a part of the tokens, where the lengths say which tokens the queries are",
                op);
  }
  check(op, "out", context, out, q.shape, {q.dtype});
  check_pages(op, context, pages, attributes.kv_heads * attributes.head_dim, {q.dtype});
  check_offsets(op, context, layout.query_offsets);
  const int64_t sequences = layout.query_offsets.shape[0] - 1;
  check(op, "lengths", context, layout.lengths, {sequences}, {DType::i32});
  check_rank(op, "tables", layout.tables, 2);
  check(op, "tables", context, layout.tables, {sequences, layout.tables.shape[1]}, {DType::i32});
  if (layout.arrivals) {
    check_rank(op, "arrivals", layout.arrivals, 1);
    check(op, "arrivals", context, layout.arrivals, {std::max(layout.arrivals.shape[0], sequences * attributes.heads)},
          {DType::i32});
  }
  if (q.elements() == 0) return;
  dispatch<PagedAttention>(context, out, q, pages, layout, attributes);
}

}  // namespace ingot::ops

#include "ops/attention.h"

#include "ops/checks.h"
#include "ops/registry.h"

namespace ingot::ops {
namespace {

void require_heads(const char* op, const Tensor& q, const AttentionAttributes& a, NamedTensors tensors) {
  require(a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0 && a.heads % a.kv_heads == 0, op,
          "heads a multiple of kv_heads, head_dim positive", tensors);
  require(is_activation(q.dtype) && q.shape.rank() == 2 && q.shape[1] == a.heads * a.head_dim, op,
          "q [T, Q D] of f32 or bf16", tensors);
}

void require_offsets(const char* op, const Tensor& offsets, NamedTensors tensors) {
  require(offsets.dtype == DType::i32 && offsets.shape.rank() == 1 && offsets.shape[0] >= 1, op, "offsets [S + 1] i32",
          tensors);
}

}  // namespace

void attention(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
               const Tensor& v, const Tensor& offsets, AttentionAttributes attributes) {
  const NamedTensors tensors = {{"out", out}, {"lse", lse}, {"q", q}, {"k", k}, {"v", v}, {"offsets", offsets}};
  const char* op = Attention::name;
  require_heads(op, q, attributes, tensors);
  const Shape kv{q.shape[0], attributes.kv_heads * attributes.head_dim};
  require(is(out, q.dtype, q.shape), op, "out like q", tensors);
  require(is(k, q.dtype, kv) && is(v, q.dtype, kv), op, "k and v [T, G D] of q's type", tensors);
  require(!lse || is(lse, DType::f32, Shape{attributes.heads, q.shape[0]}), op, "lse [Q, T] f32 or absent", tensors);
  require_offsets(op, offsets, tensors);
  dispatch<Attention>(context, out, lse, q, k, v, offsets, attributes);
}

void attention_backward(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const AttentionSaved& saved, const Tensor& offsets, AttentionAttributes attributes) {
  const auto& [out, lse, q, k, v] = saved;
  const NamedTensors tensors = {{"dq", dq},   {"dk", dk}, {"dv", dv}, {"dout", dout}, {"out", out},
                                {"lse", lse}, {"q", q},   {"k", k},   {"v", v},       {"offsets", offsets}};
  const char* op = AttentionBackward::name;
  require_heads(op, q, attributes, tensors);
  const Shape kv{q.shape[0], attributes.kv_heads * attributes.head_dim};
  require(is(out, q.dtype, q.shape) && is(dout, q.dtype, q.shape) && is(dq, q.dtype, q.shape), op,
          "out, dout and dq like q", tensors);
  require(is(k, q.dtype, kv) && is(v, q.dtype, kv) && is(dk, q.dtype, kv) && is(dv, q.dtype, kv), op,
          "k, v, dk and dv [T, G D] of q's type", tensors);
  require(is(lse, DType::f32, Shape{attributes.heads, q.shape[0]}), op, "lse [Q, T] f32", tensors);
  require_offsets(op, offsets, tensors);
  dispatch<AttentionBackward>(context, dq, dk, dv, dout, saved, offsets, attributes);
}

void kv_store(Context& context, const KvPages& pages, const Tensor& k, const Tensor& v, const Tensor& slots) {
  const NamedTensors tensors = {{"pages.k", pages.k}, {"pages.v", pages.v}, {"k", k}, {"v", v}, {"slots", slots}};
  const char* op = KvStore::name;
  require(pages.k.shape.rank() == 3 && is_activation(pages.k.dtype), op, "pages [P, page, G D] of f32 or bf16",
          tensors);
  require(is(pages.v, pages.k.dtype, pages.k.shape), op, "pages.v like pages.k", tensors);
  require(k.shape.rank() == 2 && k.shape[1] == pages.k.shape[2] && is_activation(k.dtype), op,
          "k [T, G D] of f32 or bf16", tensors);
  require(is(v, k.dtype, k.shape), op, "v like k", tensors);
  require(is(slots, DType::i32, Shape{k.shape[0]}), op, "slots [T] i32", tensors);
  dispatch<KvStore>(context, pages, k, v, slots);
}

void paged_attention(Context& context, const Tensor& out, const Tensor& q, const KvPages& pages,
                     const PagedLayout& layout, AttentionAttributes attributes) {
  const auto& [query_offsets, lengths, tables] = layout;
  const NamedTensors tensors = {
      {"out", out},         {"q", q},          {"pages.k", pages.k}, {"pages.v", pages.v}, {"offsets", query_offsets},
      {"lengths", lengths}, {"tables", tables}};
  const char* op = PagedAttention::name;
  require_heads(op, q, attributes, tensors);
  require(is(out, q.dtype, q.shape), op, "out like q", tensors);
  require(pages.k.shape.rank() == 3 && pages.k.shape[1] > 0 && pages.k.dtype == q.dtype &&
              pages.k.shape[2] == attributes.kv_heads * attributes.head_dim,
          op, "pages [P, page, G D] of q's type", tensors);
  require(is(pages.v, pages.k.dtype, pages.k.shape), op, "pages.v like pages.k", tensors);
  require_offsets(op, query_offsets, tensors);
  require(is(lengths, DType::i32, Shape{query_offsets.shape[0] - 1}), op, "lengths [S] i32", tensors);
  require(tables.dtype == DType::i32 && tables.shape.rank() == 2 && tables.shape[0] == lengths.shape[0], op,
          "tables [S, most pages] i32", tensors);
  dispatch<PagedAttention>(context, out, q, pages, layout, attributes);
}

}  // namespace ingot::ops

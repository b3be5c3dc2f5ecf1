// Attention over packed sequences, and over a paged KV cache. Letters: T tokens, S sequences, Q query heads, G
// key/value heads (Q is a multiple of G; query head q reads head q / (Q/G)), D head size.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

struct AttentionAttributes {
  int64_t heads = 0;     // Q
  int64_t kv_heads = 0;  // G
  int64_t head_dim = 0;  // D
  float scale = 0;       // > 0, multiplies the scores; 1/sqrt(D) for llama
  int64_t window = 0;    // token i attends to tokens j with i - window < j <= i (sliding window); 0: to all j <= i
  float softcap = 0;     // scores become softcap tanh(score / softcap) (Gemma 2); 0: no capping
  // [Q] f32, may be absent: slopes[h] (j - i) is added to the score of query i and key j of head h, after the softcap
  // (ALiBi: Press et al. 2022, arXiv 2108.12409).
  Tensor slopes{};
  // Queries may be those of a part of the tokens (context parallelism): with U rows of q, those of tokens first_query
  // .. first_query + U of the pack. Not in paged_attention.
  int64_t first_query = 0;
  // Keys may be those of a part of the tokens, too (ring attention: Liu et al. 2023, arXiv 2310.01889): with K rows of
  // k and v, those of tokens first_key .. first_key + K of the pack. Results are then of these keys alone, in f32: out,
  // lse, dq, dk and dv. Absent: k and v are of all tokens. Not in paged_attention.
  std::optional<int64_t> first_key{};
  // With first_key: results are joined with those of other keys (and, of dk and dv, of other queries) that their
  // tensors have. out and lse become the attention over both sets of keys and its log-sum-exp, dq, dk and dv sums.
  bool accumulate = false;

  // The type of out, dq, dk and dv, where q's is `dtype`.
  DType result_type(DType dtype) const { return first_key ? DType::f32 : dtype; }
};

// Causal attention within every sequence (token i of a sequence attends to its tokens 0..i, limited by the window),
// softmax in fp32. out [U, Q D], q [U, Q D], U <= T, k and v [T, G D], all f32, all bf16 or all f16; offsets [S + 1]
// i32: sequence s is tokens offsets[s] .. offsets[s+1]; lse [Q, U] f32: log of the sum of exp(score), not computed when
// absent. A token's result depends on its own sequence only, never on the other sequences in the pack, and without
// `accumulate` its bits do not depend on which other queries there are. With first_key, k and v are [K, G D], and out
// is f32; lse is needed with `accumulate`. A query that attends to none of the keys has out 0 and lse -inf; joined,
// these change no bit of out, and lse at most by rounding. With a part of the queries or keys cuDNN is not used.
void attention(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
               const Tensor& v, const Tensor& offsets, AttentionAttributes attributes);

struct Attention {
  static constexpr const char* name = "attention";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, AttentionAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return attention_work(tensors, 1); }
};

// Tensors that the forward pass saves for the backward pass.
struct AttentionSaved {
  Tensor out, lse, q, k, v;
  std::array<Tensor, 5> tensors() const { return {out, lse, q, k, v}; }
};

// Assigns dq [U, Q D], dk and dv [T, G D] from dout [U, Q D], f32 or bf16; dk and dv are sums over these U queries, and
// zeros where none of them attends to a key. With first_key, k, v, dk and dv have K rows, dq, dk and dv are f32 and
// with `accumulate` added to, and saved.out (of q's type) and lse are those of all keys. Deterministic: no sum depends
// on the number of threads (Dao 2023, arXiv 2307.08691; on GPUs, dq and dk/dv are computed in separate loops).
void attention_backward(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const AttentionSaved& saved, const Tensor& offsets, AttentionAttributes attributes);

struct AttentionBackward {
  static constexpr const char* name = "attention_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const AttentionSaved&,
                         const Tensor&, AttentionAttributes);
  // Five gemms, where the forward pass has two.
  static OpWork work(std::span<const Tensor> tensors) { return attention_work(tensors, 2.5); }
};

// Paged KV cache of one layer. A page holds `page` tokens.
struct KvPages {
  Tensor k, v;  // [P, page, G D], f32, bf16 or f16
};

// The check of kv_store's pages, for keys and values like k [T, G D].
void check_kv_pages(const char* op, const Context& context, const KvPages& pages, const Tensor& k);

// Stores k and v [T, G D] of new tokens at slots [T] i32 (slot = page number * page + position in the page), converted
// to the dtype of the pages; f16 is not converted, so if either dtype is f16 both must be. A slot out of range is
// ErrorKind::internal; on devices whose memory the host cannot access, its token is skipped instead.
void kv_store(Context& context, const KvPages& pages, const Tensor& k, const Tensor& v, const Tensor& slots);

struct KvStore {
  static constexpr const char* name = "kv_store";
  using Signature = void(Context&, const KvPages&, const Tensor&, const Tensor&, const Tensor&);
};

// Where the sequences of a batch are in the pages.
struct PagedLayout {
  Tensor query_offsets;  // [S + 1] i32: the queries of sequence s are rows query_offsets[s] .. [s+1] of q
  Tensor lengths;        // [S] i32: keys of sequence s in the cache, including those of the new tokens
  Tensor tables;         // [S, max pages] i32: the page table, page numbers of each sequence in order
  // [S Q or more] i32, zeros before and after every call: on GPUs, thread blocks that have keys of the same query count
  // here which of them is done last. May be absent: then one thread block has all keys of a query.
  Tensor arrivals{};
};

// Causal attention of new tokens (one a sequence in decode, a chunk of the prompt in prefill) over the cache: query i
// of a sequence with n queries and length L is its token L - n + i. out and q [T, Q D], f32, bf16 or f16; the pages
// have q's dtype. A token's bits do not depend on how the prompt was chunked or on the other sequences.
void paged_attention(Context& context, const Tensor& out, const Tensor& q, const KvPages& pages,
                     const PagedLayout& layout, AttentionAttributes attributes);

struct PagedAttention {
  static constexpr const char* name = "paged_attention";
  using Signature = void(Context&, const Tensor&, const Tensor&, const KvPages&, const PagedLayout&,
                         AttentionAttributes);
};

}  // namespace ingot::ops

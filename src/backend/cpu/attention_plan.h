// How attention is split into tasks, the same for plain and paged attention.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "backend/cpu/glue.h"
#include "backend/cpu/simd/attention.h"
#include "base/error.h"
#include "ops/attention.h"
#include "ops/attention_bytes.h"

namespace ingot::cpu {

// Some queries of some heads of a sequence: queries [begin, end) relative to the sequence, heads [head, head + heads),
// which share `kv_heads` key/value heads.
struct AttentionSlice {
  int64_t sequence, head, heads, kv_heads, begin, end;
  int64_t cost;  // keys times rows; the most expensive slices start first
};

inline int64_t heads_a_call(const ops::AttentionAttributes& attributes) {
  return std::min<int64_t>(attributes.heads / attributes.kv_heads, 16);
}

// How many key/value heads a slice of few queries has. The rows of a key of all heads are contiguous in memory, so more
// heads are read faster; but no thread may get more of them than with one head a slice.
inline int64_t kv_heads_a_call(const ops::AttentionAttributes& attributes, int64_t sequences, int64_t threads) {
  const auto rounds = [&](int64_t heads) {
    const int64_t slices = sequences * ((attributes.kv_heads + heads - 1) / heads);
    return (slices + threads - 1) / threads * heads;  // heads of the thread that has most
  };
  int64_t heads = attributes.kv_heads;
  while (rounds(heads) > rounds(1)) --heads;
  return heads;
}

// Upper bound, from the window, on the keys that `queries` consecutive queries attend to; equally, on the queries that
// attend to `queries` consecutive keys.
inline int64_t max_keys(const ops::AttentionAttributes& attributes, int64_t queries) {
  return attributes.window > 0 ? attributes.window + queries - 1 : no_window;
}

// Splits the queries [0, queries) of a sequence into slices of at most `kv_heads` key/value heads; query i attends to
// keys 0 .. first + i.
inline void cut_queries(std::vector<AttentionSlice>& slices, const ops::AttentionAttributes& attributes,
                        int64_t sequence, int64_t queries, int64_t first, int64_t kv_heads) {
  const int64_t group = attributes.heads / attributes.kv_heads;
  const int64_t most = heads_a_call(attributes);
  const int64_t step = std::min(attention_block, attention_rows / most);
  const auto add = [&](int64_t head, int64_t heads, int64_t kv_heads_here) {
    for (int64_t begin = 0; begin < queries; begin += step) {
      const int64_t end = std::min(begin + step, queries);
      const int64_t keys = std::min(first + end, max_keys(attributes, end - begin));
      slices.push_back({sequence, head, heads, kv_heads_here, begin, end, keys * heads * (end - begin)});
    }
  };
  const int64_t kv_step =
      most < group ? 1 : std::clamp(attention_rows / (group * std::max<int64_t>(1, queries)), int64_t{1}, kv_heads);
  for (int64_t kv_head = 0; kv_head < attributes.kv_heads; kv_head += kv_step) {
    const int64_t here = std::min(kv_step, attributes.kv_heads - kv_head);
    if (here > 1) {
      add(kv_head * group, here * group, here);
      continue;
    }
    for (int64_t at = 0; at < group; at += most) add(kv_head * group + at, std::min(most, group - at), 1);
  }
}

inline void longest_first(std::vector<AttentionSlice>& slices) {
  std::sort(slices.begin(), slices.end(),
            [](const AttentionSlice& a, const AttentionSlice& b) { return a.cost > b.cost; });
}

// Calls body(i, scratch of the thread) for i in [0, count), each on the next free thread. Calls start in the order of
// i, so a body may wait for the progress of a body with a smaller i; if any body waits, none may throw.
template <class Body>
void run_slices(ops::Context& context, int64_t count, int64_t head_dim, Body body) {
  if (count == 0) return;
  const Arena::Scope scope(context.scratch);
  const auto slots = static_cast<int>(std::min<int64_t>(context.threads->threads(), count));
  const size_t bytes = ops::attention_thread_bytes(head_dim);
  auto* scratch = static_cast<std::byte*>(context.scratch.allocate_bytes(bytes * static_cast<size_t>(slots)));
  std::atomic<int64_t> next{0};
  context.threads->run(slots, [&](int slot) {
    for (int64_t i = next++; i < count; i = next++) body(i, scratch + bytes * static_cast<size_t>(slot));
  });
}

// Address of element `i`.
inline void* address(const Tensor& tensor, int64_t i) {
  return static_cast<std::byte*>(tensor.data) + static_cast<size_t>(i) * size_of(tensor.dtype);
}

// The offsets of the sequences; ErrorKind::internal unless they are ascending from 0 to `tokens`.
inline std::span<const int32_t> sequence_offsets(const char* op, const Tensor& offsets, int64_t tokens) {
  const std::span<const int32_t> values(offsets.as<int32_t>(), static_cast<size_t>(offsets.shape[0]));
  if (values.front() != 0 || values.back() != tokens || !std::is_sorted(values.begin(), values.end())) {
    throw_error(ErrorKind::internal, "{}: {} sequence offsets are not ascending from 0 to {} tokens ({} .. {})", op,
                values.size(), tokens, values.front(), values.back());
  }
  return values;
}

// The same of a pack of sequences. Also ErrorKind::internal unless it has all tokens of which there are `queries` and
// `keys`.
inline std::span<const int32_t> pack_offsets(const char* op, const Tensor& offsets, int64_t queries, int64_t keys,
                                             const ops::AttentionAttributes& attributes) {
  if (!attributes.first_key) return sequence_offsets(op, offsets, keys);
  const int64_t tokens = offsets.as<int32_t>()[offsets.shape[0] - 1];
  if (attributes.first_query + queries > tokens || *attributes.first_key + keys > tokens) {
    throw_error(ErrorKind::internal, "{}: {} queries from token {} on and {} keys from token {} on, of {} tokens", op,
                queries, attributes.first_query, keys, *attributes.first_key, tokens);
  }
  return sequence_offsets(op, offsets, tokens);
}

// Some tokens of a sequence, relative to its first.
struct TokenRange {
  int64_t begin, end;
  bool empty() const { return begin == end; }
};

// Of a sequence, tokens [start, end) of the pack: those that have queries, and those that have keys.
inline TokenRange tokens_within(int64_t first, int64_t count, int64_t start, int64_t end) {
  const auto within = [&](int64_t token) { return std::clamp(token, start, end) - start; };
  return {within(first), within(first + count)};
}
inline TokenRange queries_of(const ops::AttentionAttributes& attributes, int64_t queries, int64_t start, int64_t end) {
  return tokens_within(attributes.first_query, queries, start, end);
}
inline TokenRange keys_of(const ops::AttentionAttributes& attributes, int64_t keys, int64_t start, int64_t end) {
  return attributes.first_key ? tokens_within(*attributes.first_key, keys, start, end) : TokenRange{0, end - start};
}
// Whether one of these queries attends to one of these keys.
inline bool any_attends(const ops::AttentionAttributes& attributes, const TokenRange& queries, const TokenRange& keys) {
  return !queries.empty() && !keys.empty() && keys.begin < queries.end &&
         (attributes.window == 0 || keys.end - 1 > queries.begin - attributes.window);
}

// ErrorKind::internal unless every key of the layout is in a page that exists.
void check_layout(const Tensor& q, const ops::KvPages& pages, const ops::PagedLayout& layout);

void reference_attention(ops::Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes);
void reference_attention_backward(ops::Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                  const Tensor& dout, const ops::AttentionSaved& saved, const Tensor& offsets,
                                  ops::AttentionAttributes attributes);
void reference_paged_attention(ops::Context& context, const Tensor& out, const Tensor& q, const ops::KvPages& pages,
                               const ops::PagedLayout& layout, ops::AttentionAttributes attributes);

}  // namespace ingot::cpu

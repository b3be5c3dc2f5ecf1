#include "backend/gpu/runtime/cudnn_attention.h"

#include <array>

namespace ingot::gpu::cudnn {

namespace {

using Dimensions = std::array<int64_t, 4>;

// cudnnPointwiseMode_t
enum Pointwise : int {
  add = 0,
  multiply = 1,
  divide = 6,
  subtract = 9,
  exponential = 13,
  logarithm = 15,
  greater = 302,
  greater_or_equal = 303,
  less = 304,
  logical_and = 400,
  index = 501,
  select = 601
};
// cudnnReduceTensorOp_t
enum Reduction : int { sum = 0, maximum = 3 };

struct TensorMore {
  bool is_virtual = false;
  bool by_value = false;
  const Descriptor* rows_from = nullptr;  // where sequences begin, in units of `multiplier` elements
  int64_t multiplier = 0;                 // 0: in elements, without the attribute
};

class Builder {
 public:
  Builder(const Functions& functions, const PackedAttention& call)
      : functions_(functions), call_(call), batch_(call.sequences), longest_(call.tokens) {}

  const Descriptor& put(Descriptor part) {
    parts_.push_back(std::move(part));
    return parts_.back();
  }
  Descriptor make(Kind kind) const { return {functions_, kind}; }

  const Descriptor& tensor(int64_t uid, Data type, const Dimensions& dimensions, const Dimensions& strides,
                           TensorMore more = {}) {
    Descriptor made = make(cudnn::tensor);
    made.set_integers(900, {type == bf16 ? 16 : 4}).set_choice(901, data_type_type, type);
    made.set_integers(902, {dimensions.begin(), dimensions.end()});
    made.set_integers(903, {strides.begin(), strides.end()}).set_integers(906, {uid});
    if (more.is_virtual) made.set_flag(907);
    if (more.by_value) made.set_flag(908);
    if (more.rows_from != nullptr) {
      made.set_descriptor(913, *more.rows_from);
      if (more.multiplier > 0) made.set_integers(914, {more.multiplier});
    }
    made.finalize("a tensor");
    return put(std::move(made));
  }
  const Descriptor& value(int64_t uid, Data type = f32) {
    return tensor(uid, type, {1, 1, 1, 1}, {1, 1, 1, 1}, {.by_value = true});
  }
  // One number of each sequence, or with `ends` S + 1 of them.
  const Descriptor& table(int64_t uid, bool ends) {
    return tensor(uid, i32, {batch_ + (ends ? 1 : 0), 1, 1, 1}, {1, 1, 1, 1});
  }
  // [S, heads, T, D], or [S, heads, D, T] if `transposed`.
  const Descriptor& rows(int64_t uid, int64_t heads, const Descriptor& begins, int64_t multiplier,
                         bool transposed = false) {
    const int64_t row = heads * call_.d;
    const Dimensions dimensions =
        transposed ? Dimensions{batch_, heads, call_.d, longest_} : Dimensions{batch_, heads, longest_, call_.d};
    const Dimensions strides =
        transposed ? Dimensions{longest_ * row, call_.d, 1, row} : Dimensions{longest_ * row, call_.d, row, 1};
    return tensor(uid, bf16, dimensions, strides, {.rows_from = &begins, .multiplier = multiplier});
  }
  const Descriptor& statistics(const Descriptor& begins, int64_t multiplier) {
    return tensor(Uid::lse, f32, {batch_, call_.heads, longest_, 1}, {longest_, call_.tokens, 1, 1},
                  {.rows_from = &begins, .multiplier = multiplier});
  }
  // [S, H, T, T] inside the graph; [S, H, T, 1] if it is one number of a row.
  const Descriptor& inner(Data type, bool of_row = false) { return inner(type, next_++, of_row); }
  const Descriptor& inner(Data type, int64_t uid, bool of_row) {
    const int64_t columns = of_row ? 1 : longest_;
    const int64_t square = longest_ * columns;
    return tensor(uid, type, {batch_, call_.heads, longest_, columns}, {call_.heads * square, square, columns, 1},
                  {.is_virtual = true});
  }
  int64_t next() { return next_++; }

  // *y = mode(x, b, t); returns *y.
  const Descriptor& pointwise(Pointwise mode, Data compute, const Descriptor* y, const Descriptor& x,
                              const Descriptor* b = nullptr, const Descriptor* t = nullptr, int64_t axis = -1) {
    Descriptor kind = make(cudnn::pointwise);
    kind.set_choice(0, pointwise_mode_type, mode).set_choice(1, data_type_type, compute);
    if (axis >= 0) kind.set_integers(9, {axis});
    kind.finalize("a pointwise operation");
    Descriptor operation = make(cudnn::pointwise_operation);
    operation.set_descriptor(750, put(std::move(kind))).set_descriptor(751, x).set_descriptor(753, *y);
    if (b != nullptr) operation.set_descriptor(752, *b);
    if (t != nullptr) operation.set_descriptor(758, *t);
    operation.finalize("a pointwise operation");
    operations_.push_back(&put(std::move(operation)));
    return *y;
  }
  // Over the last dimension.
  const Descriptor& reduce(Reduction how, const Descriptor& x) {
    Descriptor kind = make(cudnn::reduction);
    kind.set_choice(1600, reduction_operator_type, how).set_choice(1601, data_type_type, f32);
    kind.finalize("a reduction");
    const Descriptor& y = inner(f32, true);
    Descriptor operation = make(cudnn::reduction_operation);
    operation.set_descriptor(1610, x).set_descriptor(1611, y).set_descriptor(1612, put(std::move(kind)));
    operation.finalize("a reduction");
    operations_.push_back(&put(std::move(operation)));
    return y;
  }
  // The overrides are the sizes of each sequence's matrices.
  void matmul(const Descriptor& c, const Descriptor& a, const Descriptor& b, const Descriptor& m,
              const Descriptor& n_or_k, bool last_is_n) {
    Descriptor kind = make(cudnn::matmul);
    kind.set_choice(1500, data_type_type, f32).finalize("a gemm");
    Descriptor operation = make(cudnn::matmul_operation);
    operation.set_descriptor(1520, a).set_descriptor(1521, b).set_descriptor(1522, c);
    operation.set_descriptor(1523, put(std::move(kind))).set_descriptor(1525, m);
    operation.set_descriptor(last_is_n ? 1526 : 1527, n_or_k);
    operation.finalize("a gemm");
    operations_.push_back(&put(std::move(operation)));
  }

  Graph finish(const std::vector<const Descriptor*>& operations, void* handle) {
    Descriptor graph = make(cudnn::graph);
    graph.set_descriptors(801, operations);
    if (handle != nullptr) graph.set_pointers(800, handle_type, {handle});
    graph.finalize("the graph");
    return {std::move(parts_), std::move(graph)};
  }
  Graph finish(void* handle) { return finish(operations_, handle); }

 private:
  const Functions& functions_;
  const PackedAttention& call_;
  int64_t batch_;
  int64_t longest_;  // max length of a sequence, as far as the host knows
  int64_t next_ = Uid::first_inner;
  std::deque<Descriptor> parts_;  // others refer to them
  std::vector<const Descriptor*> operations_;
};

}  // namespace

Graph sdpa_graph(const Functions& functions, void* handle, const PackedAttention& call) {
  Builder b(functions, call);
  const Descriptor& begins = b.table(Uid::offsets, true);
  const auto rows = [&](int64_t uid, int64_t heads) -> const Descriptor& {
    return b.rows(uid, heads, begins, heads * call.d);
  };
  // The masks keep the scores with query + 0 >= key (causal) and key + window > query (window); the others become
  // `mask_value`.
  const Descriptor& masked = b.value(Uid::mask_value);
  std::vector<const Descriptor*> masks;
  const auto mask = [&](const Descriptor& from, const Descriptor& to, int comparison, const Descriptor* left_bound) {
    Descriptor made = b.make(band_mask);
    made.set_descriptor(3000, from).set_descriptor(3005, masked).set_descriptor(3006, to);
    made.set_choice(3007, pointwise_mode_type, comparison);
    if (left_bound != nullptr) made.set_descriptor(3003, *left_bound);
    made.finalize("a mask");
    masks.push_back(&b.put(std::move(made)));
  };
  const int64_t scores = b.next(), causal = b.next(), windowed = b.next();
  const Descriptor& first = b.inner(f32, scores, false);
  const Descriptor& second = b.inner(f32, causal, false);
  mask(first, second, greater_or_equal, nullptr);
  if (call.window > 0) mask(second, b.inner(f32, windowed, false), greater, &b.value(Uid::window_size));
  Descriptor band = b.make(graph);
  band.set_descriptors(801, masks).finalize("the mask's graph");
  const Descriptor& inner = b.put(std::move(band));

  Descriptor attention = b.make(sdpa_forward);
  attention.set_descriptor(2800, rows(Uid::q, call.heads)).set_descriptor(2801, rows(Uid::k, call.kv_heads));
  attention.set_descriptor(2802, rows(Uid::v, call.kv_heads)).set_descriptor(2803, rows(Uid::out, call.heads));
  if (call.lse != nullptr) attention.set_descriptor(2804, b.statistics(begins, 1));
  attention.set_descriptor(2805, b.value(Uid::scale));
  const Descriptor& sums = b.table(Uid::lengths, true);
  attention.set_descriptor(2820, sums).set_descriptor(2821, sums);
  attention.set_descriptor(2811, inner).set_integers(2812, {scores});
  attention.set_integers(2813, {call.window > 0 ? windowed : causal});
  attention.finalize("attention");
  return b.finish({&b.put(std::move(attention))}, handle);
}

Graph composite_graph(const Functions& functions, void* handle, const PackedAttention& call) {
  Builder b(functions, call);
  const Descriptor& q_begins = b.table(Uid::q_offsets, true);
  const Descriptor& kv_begins = b.table(Uid::kv_offsets, true);
  const Descriptor& length = b.table(Uid::lengths, false);
  const Descriptor& masked = b.value(Uid::mask_value);
  const Descriptor* scores = &b.inner(f32);
  b.matmul(*scores, b.rows(Uid::q, call.heads, q_begins, 0), b.rows(Uid::k, call.kv_heads, kv_begins, 0, true), length,
           length, true);
  scores = &b.pointwise(multiply, f32, &b.inner(f32), *scores, &b.value(Uid::scale));
  // Keeps the scores where `condition` is true; the others become `mask_value`.
  const auto keep = [&](const Descriptor& condition) {
    scores = &b.pointwise(select, f32, &b.inner(f32), *scores, &masked, &condition);
  };
  const auto compare = [&](Pointwise mode, const Descriptor& x, const Descriptor& y) -> const Descriptor& {
    return b.pointwise(mode, boolean, &b.inner(boolean), x, &y);
  };
  const auto query = [&]() -> const Descriptor& {
    return b.pointwise(index, i32, &b.inner(i32), *scores, nullptr, nullptr, 2);
  };
  const auto key = [&]() -> const Descriptor& {
    return b.pointwise(index, i32, &b.inner(i32), *scores, nullptr, nullptr, 3);
  };
  {
    const Descriptor& query_index = query();
    const Descriptor& key_index = key();
    const Descriptor& real_query = compare(less, query_index, length);
    const Descriptor& real_key = compare(less, key_index, length);
    keep(compare(logical_and, real_query, real_key));
  }
  {
    const Descriptor& query_index = query();
    const Descriptor& key_index = key();
    keep(compare(greater_or_equal, query_index, key_index));
  }
  if (call.window > 0) {
    const Descriptor& query_index = query();
    const Descriptor& key_index = key();
    const Descriptor& last = b.pointwise(add, i32, &b.inner(i32), key_index, &b.value(Uid::window_size, i32));
    keep(compare(greater, last, query_index));
  }
  const Descriptor& largest = b.reduce(maximum, *scores);
  const Descriptor& shifted = b.pointwise(subtract, f32, &b.inner(f32), *scores, &largest);
  const Descriptor& exponentials = b.pointwise(exponential, f32, &b.inner(f32), shifted);
  const Descriptor& total = b.reduce(sum, exponentials);
  // Without these operations cuDNN does not recognise attention.
  const Descriptor& logarithms = b.pointwise(logarithm, f32, &b.inner(f32, true), total);
  const Descriptor& statistics =
      call.lse != nullptr ? b.statistics(b.table(Uid::offsets, true), 0) : b.inner(f32, true);
  b.pointwise(add, f32, &statistics, logarithms, &largest);
  const Descriptor& weights = b.pointwise(divide, f32, &b.inner(bf16), exponentials, &total);
  b.matmul(b.rows(Uid::out, call.heads, q_begins, 0), weights, b.rows(Uid::v, call.kv_heads, kv_begins, 0), length,
           length, false);
  return b.finish(handle);
}

}  // namespace ingot::gpu::cudnn

// The bits of a token's attention do not depend on what else a call computes. Over packed sequences they are the same
// with whichever other queries, and before and after keys are joined to which it does not attend. Over the paged KV
// cache the matrix-core kernels give the same bits whether the prompt is processed whole or in chunks, alone or in a
// batch, whether one block processes all keys or one block each 128 of them, and in whatever order these run.
#include <gtest/gtest.h>

#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/error.h"
#include "base/half.h"
#include "base/philox.h"
#include "ops/attention.h"
#include "ops/attention_bytes.h"
#include "ops/registry.h"

namespace ingot {
namespace {

struct Choice {
  int width;
  int64_t head_dim;
};

class AttentionBits : public testing::TestWithParam<Choice> {
 protected:
  static constexpr int64_t heads = 6;
  static constexpr int64_t kv_heads = 2;
  const int64_t d = GetParam().head_dim;

  AttentionBits() { attributes_ = {.heads = heads, .kv_heads = kv_heads, .head_dim = d, .scale = 0.25F}; }

  Tensor empty(DType dtype, const Shape& shape) {
    buffers_.emplace_back(*device_, static_cast<size_t>(shape.elements()) * size_of(dtype));
    return buffers_.back().view(dtype, shape);
  }
  Tensor random(const Shape& shape, uint64_t seed) {
    const Tensor tensor = empty(DType::bf16, shape);
    std::vector<uint16_t> values(static_cast<size_t>(shape.elements()));
    RandomStream stream(seed);
    for (uint16_t& x : values) x = float_to_bf16(static_cast<float>(stream.normal()));
    device_->copy_from_host(tensor.data, values.data(), values.size() * 2);
    return tensor;
  }
  Tensor ints(const std::vector<int32_t>& values, const Shape& shape) {
    const Tensor tensor = empty(DType::i32, shape);
    device_->copy_from_host(tensor.data, values.data(), values.size() * sizeof(int32_t));
    return tensor;
  }
  std::vector<std::byte> bytes_of(const Tensor& tensor) {
    std::vector<std::byte> bytes(tensor.bytes());
    device_->copy_to_host(bytes.data(), tensor.data, bytes.size());
    return bytes;
  }

  std::unique_ptr<gpu::GpuDevice> device_ = gpu::sim::make_device(GetParam().width, gpu::sim::Schedule::forward);
  ops::AttentionAttributes attributes_;
  std::vector<Buffer> buffers_;
};

class QueryBits : public AttentionBits {
 protected:
  static constexpr int64_t tokens = 310;

  struct Results {
    std::vector<std::byte> out, dq;
    std::vector<std::vector<std::byte>> lse;  // by head
    bool operator==(const Results&) const = default;
  };
  // Of queries `begin` to `end` of `all`, whose rows of out and dq have `row_bytes`.
  static Results part_of(const Results& all, int64_t begin, int64_t end, int64_t row_bytes) {
    const auto part = [&](const std::vector<std::byte>& bytes, int64_t of_row) {
      return std::vector<std::byte>(bytes.begin() + begin * of_row, bytes.begin() + end * of_row);
    };
    Results results{part(all.out, row_bytes), part(all.dq, row_bytes), {}};
    for (const std::vector<std::byte>& of_head : all.lse) results.lse.push_back(part(of_head, sizeof(float)));
    return results;
  }

  QueryBits() {
    q_ = random({tokens, heads * d}, 1);
    dout_ = random({tokens, heads * d}, 2);
    k_ = random({tokens, kv_heads * d}, 3);
    v_ = random({tokens, kv_heads * d}, 4);
    offsets_ = ints({0, 5, 5, 280, tokens}, {5});
  }

  std::vector<const char*> implementations() const {
    std::vector<const char*> all = {"mma"};
    if (d == 64) all.push_back("simt");
    if (d <= 128 && GetParam().width == 32) all.push_back("sm90");
    return all;
  }

  Results attend(const ops::Registry& registry, int64_t begin, int64_t end) {
    Arena scratch(*device_, ops::attention_backward_bytes(tokens, tokens, heads, d, 0), "scratch");
    ops::Context context{*device_, registry, scratch, nullptr};
    attributes_.first_query = begin;
    const Tensor q = q_.slice(begin, end), dout = dout_.slice(begin, end);
    const Tensor out = empty(DType::bf16, q.shape), dq = empty(DType::bf16, q.shape);
    const Tensor lse = empty(DType::f32, {heads, end - begin});
    const Tensor dk = empty(DType::bf16, k_.shape), dv = empty(DType::bf16, v_.shape);
    ops::attention(context, out, lse, q, k_, v_, offsets_, attributes_);
    ops::attention_backward(context, dq, dk, dv, dout, {out, lse, q, k_, v_}, offsets_, attributes_);
    Results results{bytes_of(out), bytes_of(dq), {}};
    for (int64_t head = 0; head < heads; ++head) results.lse.push_back(bytes_of(lse.slice(head, head + 1)));
    return results;
  }

  Tensor q_, dout_, k_, v_, offsets_;
};

TEST_P(QueryBits, DoNotDependOnTheOtherQueries) {
  for (const char* implementation : implementations()) {
    ops::Registry registry;
    gpu::register_ops(registry, DeviceKind::sim);
    registry.select_implementation("attention", implementation);
    registry.select_implementation("attention_backward", implementation);
    for (const int64_t window : {0, 100}) {
      attributes_.window = window;
      attributes_.softcap = window > 0 ? 3.0F : 0.0F;
      const Results whole = attend(registry, 0, tokens);
      for (const auto& [begin, end] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 64}, {64, 70}, {3, 290}, {279, 310}}) {
        EXPECT_TRUE(attend(registry, begin, end) == part_of(whole, begin, end, heads * d * 2))
            << implementation << ", window " << window << ", queries " << begin << " to " << end;
      }
    }
  }
}

TEST_P(QueryBits, DoNotDependOnJoinedKeysThatTheyDoNotAttendTo) {
  constexpr int64_t rows = 205, end = 200;  // the queries from `end` on attend to keys from `end` on
  for (const char* implementation : implementations()) {
    ops::Registry registry;
    gpu::register_ops(registry, DeviceKind::sim);
    registry.select_implementation("attention", implementation);
    Arena scratch(*device_, ops::attention_bytes(rows, tokens, heads, d, 0), "scratch");
    ops::Context context{*device_, registry, scratch, nullptr};
    const Tensor out = empty(DType::f32, {rows, heads * d}), lse = empty(DType::f32, {heads, rows});
    // Out and lse of the queries before `end`, after attention over some keys.
    const auto over = [&](int64_t first_key, int64_t end_key, bool accumulate) {
      attributes_.first_key = first_key;
      attributes_.accumulate = accumulate;
      ops::attention(context, out, lse, q_.slice(0, rows), k_.slice(first_key, end_key), v_.slice(first_key, end_key),
                     offsets_, attributes_);
      std::vector<std::byte> results = bytes_of(out.slice(0, end));
      for (int64_t head = 0; head < heads; ++head) {
        const std::vector<std::byte> of_head = bytes_of(lse.slice(head, head + 1));
        results.insert(results.end(), of_head.begin(), of_head.begin() + end * std::ssize(of_head) / rows);
      }
      return results;
    };
    const std::vector<std::byte> alone = over(3, 130, false);
    EXPECT_TRUE(over(end, tokens, true) == alone) << implementation << ": then keys that they do not attend to";
    EXPECT_FALSE(over(end, tokens, false) == alone);
    EXPECT_TRUE(over(3, 130, true) == alone) << implementation << ": after keys that they do not attend to";
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, QueryBits,
                         testing::Values(Choice{32, 64}, Choice{64, 64}, Choice{32, 128}, Choice{64, 128},
                                         Choice{32, 256}, Choice{64, 256}),
                         [](const auto& choice) {
                           return "sim" + std::to_string(choice.param.width) + "_" +
                                  std::to_string(choice.param.head_dim);
                         });

class PagedBits : public AttentionBits {
 protected:
  static constexpr int64_t page = 9;
  static constexpr int64_t tokens = 300;  // three splits of 128 keys
  static constexpr int64_t pages = (tokens + page - 1) / page;
  static constexpr int max_copies = 3;

  // Tensors of a call, and the place of the queries whose results are wanted.
  struct Call {
    Tensor out, q;
    ops::PagedLayout layout;
    int64_t begin, end;
  };

  PagedBits() {
    gpu::register_ops(registry_, DeviceKind::sim);
    registry_.select_implementation("paged_attention", "mma");
    for (int64_t i = 0; i < pages; ++i) table_.push_back(static_cast<int32_t>(pages - 1 - i));
    start(gpu::sim::Schedule::forward);
  }

  // A new device, which runs blocks and their threads in this order.
  void start(gpu::sim::Schedule schedule) {
    buffers_.clear();
    device_ = gpu::sim::make_device(GetParam().width, schedule);
    q_ = random({tokens, heads * d}, 1);
    pages_ = {random({pages, page, kv_heads * d}, 2), random({pages, page, kv_heads * d}, 3)};
    arrivals_ = empty(DType::i32, {max_copies * heads});
  }

  // Queries [first, last) of a sequence that is the last of `copies` sequences with equal queries and keys.
  Call call_of(int64_t first, int64_t last, int copies, bool is_split) {
    const int64_t n = last - first;
    Call call{random({n * copies, heads * d}, 8), random({n * copies, heads * d}, 7), {}, n * (copies - 1), n * copies};
    std::vector<uint16_t> own(static_cast<size_t>(n * heads * d));
    device_->copy_to_host(own.data(), q_.slice(first, last).data, own.size() * 2);
    std::vector<int32_t> offsets{0};
    std::vector<int32_t> tables;
    for (int c = 0; c < copies; ++c) {
      offsets.push_back(static_cast<int32_t>(n * (c + 1)));
      tables.insert(tables.end(), table_.begin(), table_.end());
    }
    device_->copy_from_host(call.q.slice(call.begin, call.end).data, own.data(), own.size() * 2);
    const std::vector<int32_t> lengths(static_cast<size_t>(copies), static_cast<int32_t>(last));
    call.layout = {ints(offsets, {copies + 1}), ints(lengths, {copies}), ints(tables, {copies, pages})};
    if (is_split) call.layout.arrivals = arrivals_;
    return call;
  }

  void run(const Call& call, Arena& scratch) {
    ops::Context context{*device_, registry_, scratch, nullptr};
    ops::paged_attention(context, call.out, call.q, pages_, call.layout, attributes_);
  }

  std::vector<uint16_t> results_of(const Call& call) {
    std::vector<uint16_t> bits(static_cast<size_t>((call.end - call.begin) * heads * d));
    device_->copy_to_host(bits.data(), call.out.slice(call.begin, call.end).data, bits.size() * 2);
    return bits;
  }

  size_t split_bytes(int64_t queries) const { return ops::attention_splits_bytes(queries, pages * page, heads, d); }

  // With one block for all keys of a query, or, `is_split`, for each 128 of them.
  std::vector<uint16_t> attend(int64_t first, int64_t last, int copies, bool is_split) {
    const Call call = call_of(first, last, copies, is_split);
    Arena scratch(*device_, is_split ? split_bytes(copies) : 0, "scratch");
    run(call, scratch);
    expect_zeros();
    return results_of(call);
  }

  void expect_zeros() {
    std::vector<int32_t> counts(static_cast<size_t>(arrivals_.elements()), -1);
    device_->copy_to_host(counts.data(), arrivals_.data, arrivals_.bytes());
    EXPECT_EQ(counts, std::vector<int32_t>(counts.size()));
  }

  ops::Registry registry_;
  Tensor q_, arrivals_;
  ops::KvPages pages_;
  std::vector<int32_t> table_;
};

TEST_P(PagedBits, DoNotDependOnChunksBatchOrKernel) {
  for (const int64_t window : {0, 100}) {
    attributes_.window = window;
    attributes_.softcap = window > 0 ? 3.0F : 0.0F;
    constexpr int64_t length = 140;
    const std::vector<uint16_t> whole = attend(0, length, 1, false);
    const auto part = [&](int64_t first, int64_t last) {
      return std::vector<uint16_t>(whole.begin() + first * heads * d, whole.begin() + last * heads * d);
    };
    EXPECT_TRUE(attend(100, length - 1, 1, false) == part(100, length - 1)) << "one chunk, window " << window;
    EXPECT_TRUE(attend(130, length, 2, false) == part(130, length)) << "two sequences, window " << window;
    for (const int64_t at : {int64_t{5}, int64_t{127}, int64_t{128}, length - 1}) {
      EXPECT_TRUE(attend(at, at + 1, 1, false) == part(at, at + 1)) << "token " << at << ", window " << window;
      EXPECT_TRUE(attend(at, at + 1, 3, true) == part(at, at + 1))
          << "split over keys, token " << at << ", window " << window;
    }
  }
}

// The block that is done last combines the sums of all: here the last one, the first one, and any.
TEST_P(PagedBits, DoNotDependOnTheOrderOfBlocks) {
  const std::vector<uint16_t> expected = attend(tokens - 1, tokens, 1, false);
  for (const auto schedule : {gpu::sim::Schedule::forward, gpu::sim::Schedule::backward, gpu::sim::Schedule::random}) {
    start(schedule);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(attend(tokens - 1, tokens, max_copies, true) == expected)
          << "schedule " << static_cast<int>(schedule) << ", call " << i;
    }
  }
}

TEST_P(PagedBits, AreThoseOfReplaysAndNotAffectedByAFailedRecording) {
  const std::vector<uint16_t> expected = attend(tokens - 1, tokens, 1, false);
  const Call call = call_of(tokens - 1, tokens, 2, true);
  Arena scratch(*device_, split_bytes(2), "scratch");
  run(call, scratch);
  const auto fail = [&] {
    run(call, scratch);
    throw_error(ErrorKind::internal, "the step fails");
  };
  EXPECT_THROW(device_->record(fail), Error);
  run(call, scratch);
  EXPECT_TRUE(results_of(call) == expected);
  expect_zeros();
  const std::unique_ptr<RecordedGraph> graph = device_->record([&] { run(call, scratch); });
  for (int i = 0; i < 3; ++i) {
    device_->fill_zero(call.out.data, call.out.bytes());
    graph->run();
    EXPECT_TRUE(results_of(call) == expected) << "replay " << i;
    expect_zeros();
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, PagedBits,
                         testing::Values(Choice{32, 64}, Choice{64, 64}, Choice{32, 136}, Choice{64, 80}),
                         [](const auto& choice) {
                           return "sim" + std::to_string(choice.param.width) + "_" +
                                  std::to_string(choice.param.head_dim);
                         });

}  // namespace
}  // namespace ingot

// Properties of attention outside the op table: which inputs a token's bits may depend on, and invalid arguments.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/half.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "ops/attention_bytes.h"
#include "ops/registry.h"
#include "tensor/tolerance.h"
#include "tests/ops/emulated_amx.h"
#include "tests/ops/expect_internal.h"

namespace ingot {
namespace {

const ops::AttentionAttributes attributes{.heads = 6, .kv_heads = 2, .head_dim = 20, .scale = 0.25F};
const int64_t q_width = attributes.heads * attributes.head_dim;
const int64_t kv_width = attributes.kv_heads * attributes.head_dim;

// A tensor that owns its memory.
class Owned {
 public:
  Owned(Device& device, DType dtype, const Shape& shape)
      : buffer_(device, static_cast<size_t>(shape.elements()) * size_of(dtype)), tensor_(buffer_.view(dtype, shape)) {}

  static Owned random(Device& device, DType dtype, const Shape& shape, uint64_t seed) {
    Owned owned(device, dtype, shape);
    RandomStream stream(seed);
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const auto value = static_cast<float>(stream.normal());
      if (dtype == DType::bf16) {
        owned.tensor_.as<uint16_t>()[i] = float_to_bf16(value);
      } else {
        owned.tensor_.as<float>()[i] = value;
      }
    }
    return owned;
  }
  static Owned integers(Device& device, const Shape& shape, const std::vector<int32_t>& values) {
    Owned owned(device, DType::i32, shape);
    std::copy(values.begin(), values.end(), owned.tensor_.as<int32_t>());
    return owned;
  }

  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }

 private:
  Buffer buffer_;
  Tensor tensor_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

struct KernelChoice {
  std::string implementation;
  DType dtype;
};

class AttentionBits : public testing::TestWithParam<KernelChoice> {
 protected:
  AttentionBits() {
    cpu::register_ops(registry_);
    add_emulated_amx(registry_);
    for (const char* op : {"attention", "attention_backward", "paged_attention"}) {
      registry_.select_implementation(op, GetParam().implementation);
    }
  }

  Owned empty(int64_t rows, int64_t width) { return {*device_, GetParam().dtype, {rows, width}}; }
  Owned random(int64_t rows, int64_t width, uint64_t seed) {
    return Owned::random(*device_, GetParam().dtype, {rows, width}, seed);
  }
  Owned integers(const Shape& shape, const std::vector<int32_t>& values) {
    return Owned::integers(*device_, shape, values);
  }

  // Llama's attention, and variants with a sliding window, a softcap and ALiBi slopes.
  std::vector<ops::AttentionAttributes> variants() const {
    ops::AttentionAttributes bent = attributes;
    bent.window = 50;
    bent.softcap = 3;
    bent.slopes = *slopes_;
    return {attributes, bent};
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  Owned slopes_ = Owned::random(*device_, DType::f32, {attributes.heads}, 8);
  ops::Registry registry_;
  ThreadPool threads_{2};
  Arena scratch_{*device_, ops::attention_backward_bytes(400, 400, attributes.heads, attributes.head_dim, 2),
                 "scratch"};
  ops::Context context_{*device_, registry_, scratch_, &threads_};
};

TEST_P(AttentionBits, DoNotDependOnOtherPackedSequences) {
  const int64_t before = 77;
  const int64_t own = 133;
  const int64_t after = 9;
  const int64_t tokens = before + own + after;
  const Owned q = random(tokens, q_width, 1);
  const Owned k = random(tokens, kv_width, 2);
  const Owned v = random(tokens, kv_width, 3);
  const Owned dout = random(tokens, q_width, 4);
  const Owned offsets = integers({4}, {0, 77, 77 + 133, 77 + 133 + 9});
  const Owned out = empty(tokens, q_width);
  const Owned lse(*device_, DType::f32, {attributes.heads, tokens});
  const Owned dq = empty(tokens, q_width);
  const Owned dk = empty(tokens, kv_width);
  const Owned dv = empty(tokens, kv_width);
  const auto mine = [&](const Owned& owned) { return owned->slice(before, before + own); };
  const Owned alone = integers({2}, {0, 133});
  const Owned out_alone = empty(own, q_width);
  const Owned lse_alone(*device_, DType::f32, {attributes.heads, own});
  const Owned dq_alone = empty(own, q_width);
  const Owned dk_alone = empty(own, kv_width);
  const Owned dv_alone = empty(own, kv_width);
  for (const ops::AttentionAttributes& variant : variants()) {
    ops::attention(context_, *out, *lse, *q, *k, *v, *offsets, variant);
    ops::attention_backward(context_, *dq, *dk, *dv, *dout, {*out, *lse, *q, *k, *v}, *offsets, variant);
    ops::attention(context_, *out_alone, *lse_alone, mine(q), mine(k), mine(v), *alone, variant);
    ops::attention_backward(context_, *dq_alone, *dk_alone, *dv_alone, mine(dout),
                            {*out_alone, *lse_alone, mine(q), mine(k), mine(v)}, *alone, variant);
    EXPECT_TRUE(same_bits(*out_alone, mine(out)));
    for (int64_t h = 0; h < attributes.heads; ++h) {
      const auto* alone_bits = reinterpret_cast<const std::byte*>(lse_alone->as<float>() + h * own);
      const auto* packed_bits = reinterpret_cast<const std::byte*>(lse->as<float>() + h * tokens + before);
      EXPECT_EQ(std::memcmp(alone_bits, packed_bits, static_cast<size_t>(own) * sizeof(float)), 0);
    }
    EXPECT_TRUE(same_bits(*dq_alone, mine(dq)));
    EXPECT_TRUE(same_bits(*dk_alone, mine(dk)));
    EXPECT_TRUE(same_bits(*dv_alone, mine(dv)));
  }
}

// Gradients over several blocks of keys and queries, with sequences longer and shorter than a block, by few and by many
// threads.
TEST_P(AttentionBits, DoNotDependOnTheNumberOfThreads) {
  const int64_t tokens = 210;
  const Owned q = random(tokens, q_width, 11);
  const Owned k = random(tokens, kv_width, 12);
  const Owned v = random(tokens, kv_width, 13);
  const Owned dout = random(tokens, q_width, 14);
  for (const std::vector<int32_t>& starts : {std::vector<int32_t>{0, 210}, {0, 5, 5, 134, 198, 209, 210}}) {
    const Owned offsets = integers({std::ssize(starts)}, starts);
    for (const ops::AttentionAttributes& variant : variants()) {
      const Owned out = empty(tokens, q_width);
      const Owned lse(*device_, DType::f32, {attributes.heads, tokens});
      ops::attention(context_, *out, *lse, *q, *k, *v, *offsets, variant);
      std::vector<Owned> first;
      for (const int threads : {1, 2, 3, 16}) {
        ThreadPool pool(threads);
        Arena scratch(*device_,
                      ops::attention_backward_bytes(tokens, tokens, attributes.heads, attributes.head_dim, threads),
                      "scratch");
        ops::Context context{*device_, registry_, scratch, &pool};
        for (int turn = 0; turn < 2; ++turn) {
          std::vector<Owned> gradients;
          for (const int64_t width : {q_width, kv_width, kv_width}) gradients.push_back(empty(tokens, width));
          ops::attention_backward(context, *gradients[0], *gradients[1], *gradients[2], *dout, {*out, *lse, *q, *k, *v},
                                  *offsets, variant);
          if (first.empty()) {
            first = std::move(gradients);
            continue;
          }
          for (size_t i = 0; i < gradients.size(); ++i) {
            EXPECT_TRUE(same_bits(*first[i], *gradients[i])) << threads << " threads, gradient " << i;
          }
        }
      }
    }
  }
}

// Results and gradients of queries, where a call has some of them only.
TEST_P(AttentionBits, DoNotDependOnTheOtherQueries) {
  const int64_t tokens = 210;
  const Owned q = random(tokens, q_width, 31);
  const Owned k = random(tokens, kv_width, 32);
  const Owned v = random(tokens, kv_width, 33);
  const Owned dout = random(tokens, q_width, 34);
  const Owned dk = empty(tokens, kv_width), dv = empty(tokens, kv_width);
  for (const std::vector<int32_t>& starts : {std::vector<int32_t>{0, 210}, {0, 5, 5, 134, 198, 209, 210}}) {
    const Owned offsets = integers({std::ssize(starts)}, starts);
    for (ops::AttentionAttributes variant : variants()) {
      const Owned out = empty(tokens, q_width), dq = empty(tokens, q_width);
      const Owned lse(*device_, DType::f32, {attributes.heads, tokens});
      ops::attention(context_, *out, *lse, *q, *k, *v, *offsets, variant);
      ops::attention_backward(context_, *dq, *dk, *dv, *dout, {*out, *lse, *q, *k, *v}, *offsets, variant);
      for (const auto& [begin, end] : {std::pair(0, 64), std::pair(64, 70), std::pair(70, 190), std::pair(130, 210)}) {
        const int64_t queries = end - begin;
        const auto part = [&](const Owned& all) { return all->slice(begin, end); };
        const Owned own_out = empty(queries, q_width), own_dq = empty(queries, q_width);
        const Owned own_lse(*device_, DType::f32, {attributes.heads, queries});
        variant.first_query = begin;
        ops::attention(context_, *own_out, *own_lse, part(q), *k, *v, *offsets, variant);
        ops::attention_backward(context_, *own_dq, *dk, *dv, part(dout), {*own_out, *own_lse, part(q), *k, *v},
                                *offsets, variant);
        EXPECT_TRUE(same_bits(*own_out, part(out))) << begin;
        EXPECT_TRUE(same_bits(*own_dq, part(dq))) << begin;
        for (int64_t head = 0; head < attributes.heads; ++head) {
          const float* const found = own_lse->as<float>() + head * queries;
          EXPECT_EQ(std::memcmp(found, lse->as<float>() + head * tokens + begin,
                                static_cast<size_t>(queries) * sizeof(float)),
                    0)
              << begin;
        }
      }
    }
  }
}

// Two results of sums of `length` terms, the second rounded to its type: each has an error of its own.
void expect_close(const Tensor& found, const Tensor& wanted, int64_t length, const char* what) {
  const auto value = [](const Tensor& x, int64_t i) {
    return static_cast<double>(x.dtype == DType::bf16 ? bf16_to_float(x.as<uint16_t>()[i]) : x.as<float>()[i]);
  };
  double largest = 0, apart = 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    largest = std::max(largest, std::abs(value(wanted, i)));
    apart = std::max(apart, std::abs(value(found, i) - value(wanted, i)));
  }
  EXPECT_LE(apart, 2 * tolerance(wanted.dtype, length) * largest) << what;
}

// Results over parts of the keys, in any order, join to those over all; so do gradients. Some queries attend to no key
// of the first part.
TEST_P(AttentionBits, OfPartsOfTheKeysJoin) {
  const int64_t tokens = 210;
  const std::vector<std::pair<int64_t, int64_t>> parts = {{130, 210}, {0, 64}, {70, 130}, {64, 70}};
  const Owned q = random(tokens, q_width, 41), dout = random(tokens, q_width, 42);
  const Owned k = random(tokens, kv_width, 43), v = random(tokens, kv_width, 44);
  const auto zeros = [&](int64_t rows, int64_t width) {
    Owned x(*device_, DType::f32, {rows, width});
    device_->fill_zero(x->data, x->bytes());
    return x;
  };
  for (const std::vector<int32_t>& starts : {std::vector<int32_t>{0, 210}, {0, 5, 5, 134, 198, 209, 210}}) {
    const Owned offsets = integers({std::ssize(starts)}, starts);
    for (ops::AttentionAttributes variant : variants()) {
      const Owned out = empty(tokens, q_width), dq = empty(tokens, q_width);
      const Owned dk = empty(tokens, kv_width), dv = empty(tokens, kv_width);
      const Owned lse(*device_, DType::f32, {attributes.heads, tokens});
      ops::attention(context_, *out, *lse, *q, *k, *v, *offsets, variant);
      ops::attention_backward(context_, *dq, *dk, *dv, *dout, {*out, *lse, *q, *k, *v}, *offsets, variant);
      const Owned joined_out = zeros(tokens, q_width), joined_dq = zeros(tokens, q_width);
      const Owned joined_dk = zeros(tokens, kv_width), joined_dv = zeros(tokens, kv_width);
      for (const auto& queries : parts) {
        const auto of_queries = [&](const Owned& all) { return all->slice(queries.first, queries.second); };
        const Owned own_lse(*device_, DType::f32, {attributes.heads, queries.second - queries.first});
        variant.first_query = queries.first;
        for (const bool backward : {false, true}) {
          for (size_t i = 0; i < parts.size(); ++i) {
            const auto of_keys = [&](const Owned& all) { return all->slice(parts[i].first, parts[i].second); };
            variant.first_key = parts[i].first;
            variant.accumulate = backward || i > 0;
            if (!backward) {
              ops::attention(context_, of_queries(joined_out), *own_lse, of_queries(q), of_keys(k), of_keys(v),
                             *offsets, variant);
            } else {
              ops::attention_backward(
                  context_, of_queries(joined_dq), of_keys(joined_dk), of_keys(joined_dv), of_queries(dout),
                  {of_queries(out), *own_lse, of_queries(q), of_keys(k), of_keys(v)}, *offsets, variant);
            }
          }
        }
      }
      const int64_t length = tokens * attributes.heads / attributes.kv_heads + attributes.head_dim;  // of the longest
      expect_close(*joined_out, *out, length, "out");
      expect_close(*joined_dq, *dq, length, "dq");
      expect_close(*joined_dk, *dk, length, "dk");
      expect_close(*joined_dv, *dv, length, "dv");
    }
  }
}

// Contributions of masked keys are skipped or zero.
TEST_P(AttentionBits, DoNotDependOnMaskedTokens) {
  const int64_t tokens = 190;
  const int64_t seen = 100;  // the other tokens are once of another sequence and once later tokens of the same one
  const Owned q = random(tokens, q_width, 21);
  const Owned k = random(tokens, kv_width, 22);
  const Owned v = random(tokens, kv_width, 23);
  const Owned dout = random(tokens, q_width, 24);
  // Later tokens have no gradient, so the gradients of earlier ones are as without them.
  std::memset(static_cast<std::byte*>(dout->data) + dout->bytes() * seen / tokens, 0,
              dout->bytes() * (tokens - seen) / tokens);
  const Owned whole = integers({2}, {0, 190});
  const Owned cut = integers({3}, {0, 100, 190});
  for (const ops::AttentionAttributes& variant : variants()) {
    std::vector<Owned> results;
    for (const Owned* offsets : {&whole, &cut}) {
      const Owned out = empty(tokens, q_width);
      const Owned lse(*device_, DType::f32, {attributes.heads, tokens});
      ops::attention(context_, *out, *lse, *q, *k, *v, **offsets, variant);
      for (const int64_t width : {q_width, kv_width, kv_width}) results.push_back(empty(tokens, width));
      const size_t at = results.size() - 3;
      ops::attention_backward(context_, *results[at], *results[at + 1], *results[at + 2], *dout,
                              {*out, *lse, *q, *k, *v}, **offsets, variant);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(results[i]->slice(0, seen), results[i + 3]->slice(0, seen))) << "gradient " << i;
    }
  }
}

TEST_P(AttentionBits, DoNotDependOnChunkingOrPageSize) {
  const int64_t tokens = 150;
  const Owned q = random(tokens, q_width, 5);
  const Owned k = random(tokens, kv_width, 6);
  const Owned v = random(tokens, kv_width, 7);
  const Owned offsets = integers({2}, {0, 150});
  std::vector<Owned> wholes;
  for (const ops::AttentionAttributes& variant : variants()) {
    wholes.push_back(empty(tokens, q_width));
    ops::attention(context_, *wholes.back(), {}, *q, *k, *v, *offsets, variant);
  }

  for (const int64_t page : {16, 7, 150}) {
    const int64_t pages = (tokens + page - 1) / page;
    Owned k_pages(*device_, GetParam().dtype, {pages, page, kv_width});
    Owned v_pages(*device_, GetParam().dtype, {pages, page, kv_width});
    std::vector<int32_t> table(static_cast<size_t>(pages));
    std::iota(table.rbegin(), table.rend(), 0);
    std::vector<int32_t> slots;
    for (int64_t i = 0; i < tokens; ++i) {
      slots.push_back(static_cast<int32_t>(table[static_cast<size_t>(i / page)] * page + i % page));
    }
    ops::kv_store(context_, {*k_pages, *v_pages}, *k, *v, *integers({tokens}, slots));
    for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{150}, {64, 86}, {1, 70, 78, 1}, {33, 1, 1, 115}}) {
      for (size_t i = 0; i < wholes.size(); ++i) {
        const Owned out = empty(tokens, q_width);
        int64_t at = 0;
        for (const int64_t piece : pieces) {
          const Owned lengths = integers({1}, {static_cast<int32_t>(at + piece)});
          const Owned query_offsets = integers({2}, {0, static_cast<int32_t>(piece)});
          ops::paged_attention(context_, out->slice(at, at + piece), q->slice(at, at + piece), {*k_pages, *v_pages},
                               {*query_offsets, *lengths, *integers({1, pages}, table)}, variants()[i]);
          at += piece;
        }
        EXPECT_TRUE(same_bits(*out, *wholes[i]))
            << "variant " << i << ", page " << page << ", " << pieces.size() << " chunks";
      }
    }
  }
}

std::vector<KernelChoice> kernel_choices() {
  std::vector<KernelChoice> all;
  ops::Registry registry;
  cpu::register_ops(registry);
  add_emulated_amx(registry);
  for (const auto& entry : registry.list<ops::Attention>(DeviceKind::cpu)) {
    for (const DType dtype : {DType::f32, DType::bf16}) all.push_back({entry.name, dtype});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cpu, AttentionBits, testing::ValuesIn(kernel_choices()),
                         [](const auto& info) { return info.param.implementation + "_" + name(info.param.dtype); });

class AttentionErrors : public testing::Test {
 protected:
  AttentionErrors() { cpu::register_ops(registry_); }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  ThreadPool threads_{1};
  Arena scratch_{*device_, ops::attention_bytes(8, 8, attributes.heads, attributes.head_dim, 1), "scratch"};
  ops::Context context_{*device_, registry_, scratch_, &threads_};
};

TEST_F(AttentionErrors, NameTheArgument) {
  const Owned q(*device_, DType::f32, {8, q_width});
  const Owned k(*device_, DType::f32, {8, kv_width});
  const Owned offsets = Owned::integers(*device_, {2}, {0, 8});
  const auto call = [&](const Tensor& keys, const Tensor& starts, ops::AttentionAttributes wanted) {
    ops::attention(context_, *q, {}, *q, keys, *k, starts, wanted);
  };
  EXPECT_NO_THROW(call(*k, *offsets, attributes));
  const Owned narrow(*device_, DType::f32, {8, kv_width - 1});
  expect_internal([&] { call(*narrow, *offsets, attributes); }, "attention: k is f32[8, 39]");
  const Owned half(*device_, DType::bf16, {8, kv_width});
  expect_internal([&] { call(*half, *offsets, attributes); }, "attention: k is bf16");
  expect_internal([&] { call(*k, *offsets, {.heads = 6, .kv_heads = 4, .head_dim = 20}); },
                  "6 heads of 20 elements with 4");
  ops::AttentionAttributes wrong = attributes;
  wrong.window = -1;
  expect_internal([&] { call(*k, *offsets, wrong); }, "window -1 and softcap ");
  wrong = attributes;
  wrong.slopes = *offsets;
  expect_internal([&] { call(*k, *offsets, wrong); }, "slopes is i32[2]");
  wrong = attributes;
  wrong.first_query = 1;
  expect_internal([&] { call(*k, *offsets, wrong); }, "8 queries from token 1 on, of 8 tokens with keys");
  wrong = attributes;
  wrong.accumulate = true;
  expect_internal([&] { call(*k, *offsets, wrong); }, "keys from token 0 on, which accumulate: true");
  wrong.first_key = 1;
  expect_internal([&] { call(*k, *offsets, wrong); }, "attention: lse is ");
  wrong.accumulate = false;
  expect_internal([&] { call(*k, *offsets, wrong); },
                  "8 queries from token 0 on and 8 keys from token 1 on, of 8 tokens");
  const Owned falling = Owned::integers(*device_, {3}, {0, 9, 8});
  expect_internal([&] { call(*k, *falling, attributes); }, "are not ascending from 0 to 8");
  const Owned short_of = Owned::integers(*device_, {2}, {0, 7});
  expect_internal([&] { call(*k, *short_of, attributes); }, "are not ascending from 0 to 8");
}

TEST_F(AttentionErrors, NamePagesThatDoNotExist) {
  const Owned q(*device_, DType::f32, {2, q_width});
  const Owned k(*device_, DType::f32, {2, kv_width});
  const Owned pages(*device_, DType::f32, {3, 4, kv_width});
  const auto store = [&](const std::vector<int32_t>& slots) {
    ops::kv_store(context_, {*pages, *pages}, *k, *k, *Owned::integers(*device_, {2}, slots));
  };
  EXPECT_NO_THROW(store({11, 0}));
  expect_internal([&] { store({0, 12}); }, "token 1 has slot 12, outside the cache of 3 pages of 4");
  expect_internal([&] { store({-1, 0}); }, "token 0 has slot -1");
  const Owned offsets = Owned::integers(*device_, {2}, {0, 2});
  const auto ask = [&](int32_t length, const std::vector<int32_t>& table) {
    ops::paged_attention(
        context_, *q, *q, {*pages, *pages},
        {*offsets, *Owned::integers(*device_, {1}, {length}), *Owned::integers(*device_, {1, 2}, table)}, attributes);
  };
  EXPECT_NO_THROW(ask(5, {2, 0}));
  expect_internal([&] { ask(5, {2, 3}); }, "page 1 of sequence 0 is 3, outside the 3 pages");
  expect_internal([&] { ask(9, {2, 0}); }, "sequence 0 has 9 keys, which do not fit its 2 queries or its 2 pages of 4");
  expect_internal([&] { ask(1, {2, 0}); }, "sequence 0 has 1 keys, which do not fit its 2 queries");
}

TEST_F(AttentionErrors, NameTooFewCounters) {
  const Owned q(*device_, DType::f32, {1, q_width});
  const Owned pages(*device_, DType::f32, {1, 4, kv_width});
  const Owned offsets = Owned::integers(*device_, {2}, {0, 1});
  const Owned lengths = Owned::integers(*device_, {1}, {3});
  const Owned tables = Owned::integers(*device_, {1, 1}, {0});
  const auto count_in = [&](int64_t size) {
    const Owned arrivals(*device_, DType::i32, {size});
    ops::paged_attention(context_, *q, *q, {*pages, *pages}, {*offsets, *lengths, *tables, *arrivals}, attributes);
  };
  EXPECT_NO_THROW(count_in(attributes.heads));
  expect_internal([&] { count_in(attributes.heads - 1); }, "arrivals is i32[5]");
}

}  // namespace
}  // namespace ingot

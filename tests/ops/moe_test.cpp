// Properties of the mixture of experts outside the op table: indices out of range, NaN, and what an observer sees.
#include "ops/moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/elementwise.h"
#include "ops/grouped_linear.h"
#include "ops/lora.h"
#include "ops/registry.h"
#include "tests/ops/expect_internal.h"

namespace ingot {
namespace {

class Moe : public testing::Test {
 protected:
  Moe() { cpu::register_ops(registry_); }

  Tensor tensor(std::vector<float>& values, const Shape& shape) {
    return {values.data(), DType::f32, shape, &*device_};
  }
  Tensor tensor(std::vector<int32_t>& values, const Shape& shape) {
    return {values.data(), DType::i32, shape, &*device_};
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  ThreadPool threads_{2};
  Arena scratch_;
  ops::Context context_{*device_, registry_, scratch_, &threads_};
};

TEST_F(Moe, IndicesOutOfRangeAreNamed) {
  std::vector<int32_t> experts{0, 4};
  std::vector<int32_t> token_of_row(2);
  std::vector<int32_t> row_of_choice(2);
  std::vector<int32_t> offsets(5);
  const auto group = [&] {
    ops::moe_group(context_, tensor(token_of_row, {2}), tensor(row_of_choice, {2}), tensor(offsets, {5}),
                   tensor(experts, {2, 1}));
  };
  expect_internal(group, "moe_group: experts[1] is 4, outside [0, 4)");
  experts[1] = 3;
  EXPECT_NO_THROW(group());

  std::vector<float> x(6);
  std::vector<float> y(6);
  std::vector<float> weights{1, 1};
  token_of_row = {0, -1};
  expect_internal([&] { ops::gather_rows(context_, tensor(y, {2, 3}), tensor(x, {2, 3}), tensor(token_of_row, {2})); },
                  "gather_rows: token_of_row[1] is -1, outside [0, 2)");
  row_of_choice = {2, 0};
  expect_internal(
      [&] {
        ops::combine_rows(context_, tensor(y, {2, 3}), tensor(x, {2, 3}), tensor(row_of_choice, {2, 1}), {}, false);
      },
      "combine_rows: row_of_choice[0] is 2, outside [0, 2)");
  expect_internal(
      [&] {
        ops::combine_rows_backward(context_, tensor(x, {2, 3}), {}, tensor(y, {2, 3}), {},
                                   tensor(row_of_choice, {2, 1}), tensor(weights, {2, 1}));
      },
      "combine_rows_backward: row_of_choice[0] is 2, outside [0, 2)");
}

// Of the ops on rows that are grouped by two experts: offsets that do not ascend from 0 to the number of rows, and rows
// of tokens that do not exist.
TEST_F(Moe, WrongGroupsAreNamed) {
  std::vector<float> x(6), y(6), values(9);
  std::vector<int32_t> offsets{0, 1, 2}, token_of_row{0, 1}, slots{-1, -1};
  std::vector<int64_t> ids{5, 6}, table(6);
  const Tensor dropout_rows{ids.data(), DType::i64, {2}, &*device_};
  const Tensor entries{table.data(), DType::i64, {1, 2, 3}, &*device_};
  const std::vector<Weight> weights(2, weight_of(tensor(values, {3, 3})));
  const auto linear = [&] {
    ops::grouped_linear(context_, tensor(y, {2, 3}), tensor(x, {2, 3}), weights, tensor(offsets, {3}), {});
  };
  const auto backward_input = [&] {
    ops::grouped_linear_backward_input(context_, tensor(y, {2, 3}), tensor(x, {2, 3}), weights, tensor(offsets, {3}),
                                       {});
  };
  const auto weight_gradient = [&] {
    ops::grouped_weight_gradient(context_, tensor(values, {3, 3}), tensor(y, {2, 3}), tensor(x, {2, 3}),
                                 tensor(offsets, {3}), tensor(token_of_row, {2}), {.token_end = 2, .batch_tokens = 2});
  };
  const auto dropout = [&] {
    ops::grouped_dropout(context_, tensor(y, {2, 3}), tensor(x, {2, 3}), dropout_rows, tensor(token_of_row, {2}),
                         tensor(offsets, {3}), {.probability = 0.5F}, 1);
  };
  const auto lora = [&] {
    ops::grouped_lora(context_, tensor(y, {2, 3}), tensor(x, {2, 3}), entries, tensor(slots, {2}),
                      tensor(token_of_row, {2}), tensor(offsets, {3}), {.rank = 1});
  };
  const auto expect_of_all = [&](const std::string& text) {
    expect_internal(linear, ("grouped_linear: " + text).c_str());
    expect_internal(backward_input, ("grouped_linear_backward_input: " + text).c_str());
    expect_internal(weight_gradient, ("grouped_weight_gradient: " + text).c_str());
    expect_internal(dropout, ("grouped_dropout: " + text).c_str());
    expect_internal(lora, ("grouped_lora: " + text).c_str());
  };
  offsets = {1, 1, 2};
  expect_of_all("offsets from 1 to 2 of 2 rows");
  offsets = {0, 1, 1};
  expect_of_all("offsets from 0 to 1 of 2 rows");
  offsets = {0, 3, 2};
  expect_of_all("offsets[2] is 2, below the 3 before it");
  offsets = {0, 1, 2};
  token_of_row = {0, 2};
  expect_internal(dropout, "grouped_dropout: token_of_row[1] is 2, outside [0, 2)");
  expect_internal(lora, "grouped_lora: token_of_row[1] is 2, outside [0, 2)");
  token_of_row = {0, 1};
  for (const auto& op : std::vector<std::function<void()>>{linear, backward_input, weight_gradient, dropout, lora}) {
    EXPECT_NO_THROW(op());
  }
}

TEST_F(Moe, ChoosingMoreExpertsThanThereAreIsAnError) {
  std::vector<float> logits(2);
  std::vector<int32_t> experts(3);
  std::vector<float> weights(3);
  expect_internal(
      [&] { ops::moe_route(context_, tensor(experts, {1, 3}), tensor(weights, {1, 3}), tensor(logits, {1, 2})); },
      "cannot choose 3 experts per token out of 2");
}

TEST_F(Moe, NanLogitsGiveNanWeights) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits{1, nan, 3, nan, 1, 2, 3, 4};
  std::vector<int32_t> experts(4);
  std::vector<float> weights(4);
  ops::moe_route(context_, tensor(experts, {2, 2}), tensor(weights, {2, 2}), tensor(logits, {2, 4}));
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 3, 3, 2}));
  EXPECT_TRUE(std::isnan(weights[0]) && std::isnan(weights[1]));
  EXPECT_FALSE(std::isnan(weights[2]) || std::isnan(weights[3]));
}

// The work of all calls by op.
class WorkByOp : public ops::OpObserver {
 public:
  void ran(const char* op, std::span<const Tensor>, const ops::OpWork& work) override {
    flops[op] += work.gemm_flops();
    bytes[op] += work.bytes;
  }
  std::map<std::string, double> flops, bytes;
};

// Three tokens with one expert each, of four experts, in two accumulation units.
TEST_F(Moe, TheWorkOfAllWeightGradientsIsThatOfOneGemm) {
  std::vector<float> x(3 * 2), dy(3 * 5), dw(5 * 2);
  std::vector<int32_t> offsets{0, 2, 2, 3, 3}, token_of_row{0, 2, 1};
  WorkByOp work;
  context_.watch = &work;
  for (int64_t expert = 0; expert < 4; ++expert) {
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}}) {
      ops::grouped_weight_gradient(context_, tensor(dw, {5, 2}), tensor(dy, {3, 5}), tensor(x, {3, 2}),
                                   tensor(offsets, {5}), tensor(token_of_row, {3}),
                                   {.expert = expert, .token_begin = begin, .token_end = end, .batch_tokens = 3});
    }
  }
  EXPECT_NEAR(work.flops["grouped_weight_gradient"], 2.0 * 3 * 5 * 2, 1e-9);
  EXPECT_NEAR(work.bytes["grouped_weight_gradient"], 4.0 * (8 * 5 * 2 + 3 * (5 + 2)), 1e-9);
}

TEST_F(Moe, TheWorkOfAGroupedGemmHasTheBytesOfItsWeights) {
  std::vector<float> x(3 * 2), y(3 * 5), values(4 * 5 * 2);
  std::vector<int32_t> offsets{0, 2, 2, 3, 3};
  const Weight all = weight_of(tensor(values, {4 * 5, 2}));
  std::vector<Weight> weights;
  for (int64_t e = 0; e < 4; ++e) weights.push_back(all.slice(e * 5, (e + 1) * 5));
  WorkByOp work;
  context_.watch = &work;
  ops::grouped_linear(context_, tensor(y, {3, 5}), tensor(x, {3, 2}), weights, tensor(offsets, {5}), {});
  EXPECT_EQ(work.flops["grouped_linear"], 2.0 * 3 * 5 * 2);
  EXPECT_EQ(work.bytes["grouped_linear"], 4.0 * (3 * 5 + 3 * 2 + 4 * 5 * 2 + 5));
}

}  // namespace
}  // namespace ingot

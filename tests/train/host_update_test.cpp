#include "train/host_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/ops.h"
#include "base/thread_pool.h"
#include "tests/counting_device.h"
#include "train/optimizer_state.h"

namespace ingot::train {
namespace {

constexpr int64_t n = 1000;

class HostUpdateTest : public testing::TestWithParam<OptimizerName> {
 protected:
  HostUpdateTest() {
    cpu::register_ops(registry_);
    parameter_.shape = Shape{n};
    parameter_.decay = true;
    parameter_.optimizer = &optimizer_for(GetParam(), Shape{n / 10, 10}, 0);
    parameter_.weight = parameter_.own_weight = weight_.view(DType::bf16, Shape{n});
    parameter_.master = master_.view(DType::f32, Shape{n});
    parameter_.state = state_layout(*parameter_.optimizer, Shape{n}, n, DType::f32);
    for (StateTensor& each : parameter_.state) {
      state_.emplace_back(host_, n * sizeof(float));
      each.tensor = state_.back().view(DType::f32, Shape{n});
    }
    for (int64_t i = 0; i < n; ++i) gradient().as<float>()[i] = std::sin(static_cast<float>(i));
    for (int64_t i = 0; i < n; ++i) parameter_.own_weight.as<uint16_t>()[i] = static_cast<uint16_t>(0x3f80 + i % 64);
    attributes_ = {.settings = {.weight_decay = 0.1}, .lr = 0.01, .decision = decision_.view(DType::f64, Shape{3})};
    attributes_.decision.as<double>()[1] = 0.5;  // the gradient's scale
  }
  Tensor gradient() const { return gradient_.view(DType::f32, Shape{n}); }
  static std::vector<std::byte> bytes_of(const Tensor& tensor) {
    const auto* begin = static_cast<const std::byte*>(tensor.data);
    return {begin, begin + tensor.bytes()};
  }
  // Weight, master and states.
  std::vector<std::vector<std::byte>> bytes() const {
    std::vector<std::vector<std::byte>> all = {bytes_of(parameter_.own_weight), bytes_of(parameter_.master)};
    for (const StateTensor& each : parameter_.state) all.push_back(bytes_of(each.tensor));
    return all;
  }
  // After two updates in chunks of `chunk` elements.
  std::vector<std::vector<std::byte>> updated(int64_t chunk) {
    Arena none(device_, 0, "none");
    ops::Context context{device_, registry_, none, &threads_};
    HostUpdate update(device_, host_, chunk);
    update.init_master(context, parameter_);
    for (StateTensor& each : parameter_.state) std::memset(each.tensor.data, 0, each.tensor.bytes());
    for (attributes_.updates = 1; attributes_.updates <= 2; ++attributes_.updates) {
      update.add(parameter_, gradient(), attributes_, 0);
      update.begin();
      update.advance(context, 0);
    }
    return bytes();
  }

  CountingDevice device_{false}, host_{true};
  ops::Registry registry_;
  ThreadPool threads_{2};
  Buffer weight_{device_, n * sizeof(uint16_t)}, gradient_{device_, n * sizeof(float)},
      decision_{device_, 3 * sizeof(double)}, master_{host_, n * sizeof(float)};
  std::vector<Buffer> state_;
  TrainedParameter parameter_;
  UpdateAttributes attributes_;
};

INSTANTIATE_TEST_SUITE_P(Optimizers, HostUpdateTest,
                         testing::Values(OptimizerName::adamw, OptimizerName::sgd, OptimizerName::lion));

TEST_P(HostUpdateTest, ChunksHaveTheBitsOfOneUpdate) {
  const std::vector<std::byte> first = bytes_of(parameter_.own_weight);
  const auto whole = updated(n);
  EXPECT_NE(whole.front(), first);
  for (const int64_t chunk : {256, 300, 999}) {
    std::memcpy(parameter_.own_weight.data, first.data(), first.size());
    EXPECT_EQ(updated(chunk), whole) << chunk;
  }
}

TEST_P(HostUpdateTest, ASkippedUpdateChangesNothing) {
  const std::vector<std::byte> first = bytes_of(parameter_.own_weight);
  attributes_.decision.as<double>()[2] = 1;
  const auto skipped = updated(256);
  EXPECT_EQ(skipped.front(), first);
  for (size_t i = 2; i < skipped.size(); ++i) EXPECT_EQ(skipped[i], std::vector<std::byte>(skipped[i].size()));
}

TEST_P(HostUpdateTest, WeightsAreTheRoundedMasters) {
  const auto whole = updated(n);
  std::memset(parameter_.own_weight.data, 0, parameter_.own_weight.bytes());
  Arena none(device_, 0, "none");
  ops::Context context{device_, registry_, none, &threads_};
  HostUpdate(device_, host_, 256).refresh_weight(context, parameter_);
  EXPECT_EQ(bytes(), whole);
}

}  // namespace
}  // namespace ingot::train

// Decoding with recorded launches (CUDA graphs) gives the tokens and probabilities of decoding without them, and the
// tokens of the CPU.
#include <gtest/gtest.h>

#include <map>

#include "infer/engine.h"
#include "tensor/tolerance.h"
#include "tests/parity/counting_gpu.h"
#include "tests/parity/golden.h"

namespace ingot::parity {
namespace {

using gpu::sim::Schedule;

struct Subject {
  const char* model;
  int width;
  Schedule schedule;
};

class ReplayTest : public testing::TestWithParam<Subject> {
 protected:
  ReplayTest() {
    auto device = std::make_unique<CountingGpu>(GetParam().width, GetParam().schedule);
    device_ = device.get();
    machine_.device = std::move(device);
  }

  // With random adapters of every linear layer, so also of experts.
  static std::unique_ptr<Bench> bench(Machine& machine) {
    return make_bench(machine, GetParam().model,
                      {.new_adapter = spec::LoraSpec{.rank = 4, .alpha = 8, .targets = {"all-linear"}}});
  }

  // The answers of an engine with pages of four tokens to two requests, with an adapter and without. The second starts
  // later, so that batches of one and two rows alternate.
  std::map<int64_t, std::vector<infer::SampledToken>> answers(Machine& machine, Bench& bench) {
    infer::EngineSettings settings;
    settings.activation = DType::f32;
    settings.context = 32;
    settings.sequences = 2;
    settings.batch_tokens = 8;
    settings.page_tokens = 4;
    settings.adapter_rank = 16;
    infer::Engine engine(*machine.device, machine.registry, machine.threads, *bench.model, settings);
    allocations_ = device_->allocations;
    std::map<int64_t, std::vector<infer::SampledToken>> all;
    const auto submit = [&](std::vector<int32_t> prompt, int64_t most, const nn::Adapter* adapter) {
      infer::Request request;
      request.prompt = std::move(prompt);
      request.max_tokens = most;
      request.adapter = infer::shared_adapter(adapter);
      engine.submit(std::move(request));
    };
    submit({3, 1, 4, 1, 5}, 20, bench.optimizer_state->adapter());
    for (int step = 0; !engine.idle(); ++step) {
      if (step == 6) submit({2, 7}, 8, nullptr);
      for (const infer::Output& output : engine.step()) {
        if (output.token) all[output.request].push_back(*output.token);
      }
    }
    return all;
  }

  CountingGpu* device_ = nullptr;
  int allocations_ = 0;  // before the first step
  Machine machine_{1, "sim32"};
};

TEST_P(ReplayTest, EqualsDecodingWithoutGraphs) {
  const auto made = bench(machine_);
  device_->replaying = false;
  const auto expected = answers(machine_, *made);
  EXPECT_EQ(device_->recordings, 0);
  const int launches = std::exchange(device_->launches, 0);
  device_->replaying = true;
  const auto found = answers(machine_, *made);
  EXPECT_EQ(device_->allocations, allocations_);
  EXPECT_EQ(device_->recordings, 2);  // one row with the adapter, and two rows with and without it
  EXPECT_LT(device_->launches, launches / 2);
  ASSERT_EQ(found.size(), 2U);
  for (const auto& [request, tokens] : expected) {
    ASSERT_EQ(found.at(request).size(), tokens.size());
    EXPECT_GE(tokens.size(), 8U);
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(found.at(request)[i].id, tokens[i].id) << i;
      EXPECT_EQ(found.at(request)[i].logprob, tokens[i].logprob) << i;
    }
  }

  Machine cpu{1, "cpu"};
  const auto on_cpu = bench(cpu);
  const double bound = tolerance(DType::f32, chain_length(on_cpu->loaded.spec, 32));
  for (const auto& [request, tokens] : answers(cpu, *on_cpu)) {
    ASSERT_EQ(found.at(request).size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(found.at(request)[i].id, tokens[i].id) << i;
      EXPECT_NEAR(found.at(request)[i].logprob / tokens[i].logprob, 1, bound) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Devices, ReplayTest,
    testing::Values(Subject{"llama/a", 32, Schedule::forward}, Subject{"llama/a", 32, Schedule::random},
                    Subject{"llama/a", 64, Schedule::backward}, Subject{"mixtral/a", 32, Schedule::backward},
                    Subject{"qwen3_moe/a", 64, Schedule::random}),
    [](const auto& info) { return "sim" + std::to_string(info.param.width) + "_" + std::to_string(info.index); });

}  // namespace
}  // namespace ingot::parity

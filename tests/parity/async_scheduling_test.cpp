// An engine on a simulated GPU, whose work runs late, where the model's work of a step is queued before the tokens of
// the step before it are read: it gives the tokens of an engine that reads them first.
#include <gtest/gtest.h>

#include <map>

#include "infer/engine.h"
#include "tensor/tolerance.h"
#include "tests/parity/counting_gpu.h"
#include "tests/parity/golden.h"

namespace ingot::parity {
namespace {

using gpu::sim::Schedule;

// Allows tokens of the other parity than the last one.
class ParityMask : public infer::TokenMask {
 public:
  void fill(std::span<uint32_t> bits) override { std::ranges::fill(bits, last_ % 2 == 0 ? 0xaaaaaaaaU : 0x55555555U); }
  void accept(int32_t id) override {
    EXPECT_NE(id % 2, last_ % 2);
    last_ = id;
  }
  void rollback(int64_t) override {}
  bool finished() const override { return false; }

 private:
  int32_t last_ = 0;
};

struct Subject {
  const char* model;
  int width;
  Schedule schedule;
};

class AsyncScheduling : public testing::TestWithParam<Subject> {
 protected:
  AsyncScheduling() {
    auto device = std::make_unique<CountingGpu>(GetParam().width, GetParam().schedule);
    device_ = device.get();
    machine_.device = std::move(device);
    bench_ = make_bench(machine_, GetParam().model,
                        {.new_adapter = spec::LoraSpec{.rank = 4, .alpha = 8, .targets = {"all-linear"}}});
  }

  struct Answer {
    std::vector<infer::SampledToken> tokens;
    std::optional<infer::FinishReason> finish;
  };
  struct Served {
    std::map<int64_t, Answer> answers;
    infer::EngineCounts counts;
    int ahead = 0;  // steps that launched a kernel before the host waited
  };

  // Six requests of different kinds in a cache that holds three, one of them cancelled after four steps.
  Served serve(bool async) {
    infer::EngineSettings settings;
    settings.activation = DType::f32;
    settings.context = 24;
    settings.sequences = 4;
    settings.batch_tokens = 8;
    settings.page_tokens = 4;
    settings.pages = 14;
    settings.adapter_rank = 8;
    settings.prefix_cache = true;
    settings.async_scheduling = async;
    infer::Engine engine(*machine_.device, machine_.registry, machine_.threads, *bench_->model, settings);
    std::vector<int64_t> ids;
    for (int i = 0; i < 6; ++i) {
      infer::Request r;
      r.prompt = std::vector<int32_t>{3, 1, 4, 1, 5, 9, 2, i};
      r.max_tokens = 9 + i % 2;
      r.sampling.seed = static_cast<uint64_t>(i);
      if (i > 0) r.sampling.temperature = 0.8;
      if (i == 1) r.mask = std::make_shared<ParityMask>();
      if (i == 2) r.adapter = infer::shared_adapter(bench_->optimizer_state->adapter());
      if (i == 3) r.sampling.frequency_penalty = 1;
      if (i == 3) r.sampling.top_logprobs = 2;
      for (int32_t id = 0; i == 4 && id < bench_->loaded.spec.vocab; id += 5) r.stop_ids.push_back(id);
      ids.push_back(engine.submit(std::move(r)));
    }
    Served served;
    for (int step = 0; !engine.idle(); ++step) {
      if (step == 4) engine.cancel(ids[0]);
      std::vector<std::string> calls;
      device_->kernels = &calls;
      const std::vector<infer::Output> outputs = engine.step();
      device_->kernels = nullptr;
      served.ahead += !calls.empty() && calls.front() == "insert_sampled" ? 1 : 0;
      for (const infer::Output& output : outputs) {
        Answer& answer = served.answers[output.request];
        if (output.token) answer.tokens.push_back(*output.token);
        answer.finish = output.finish;
      }
    }
    served.counts = engine.counts();
    return served;
  }

  CountingGpu* device_ = nullptr;
  Machine machine_{1, "sim32"};
  std::unique_ptr<Bench> bench_;
};

TEST_P(AsyncScheduling, AnswersAreThoseOfReadingFirst) {
  const Served waiting = serve(false), async = serve(true);
  EXPECT_EQ(waiting.ahead, 0);
  EXPECT_GT(async.ahead, 10);
  EXPECT_EQ(async.counts.used_pages, 0);
  ASSERT_EQ(async.answers.size(), 6U);
  const double bound = tolerance(DType::f32, chain_length(bench_->loaded.spec, 24));
  for (const auto& [request, expected] : waiting.answers) {
    const Answer& found = async.answers.at(request);
    EXPECT_EQ(found.finish, expected.finish) << request;
    if (expected.finish == infer::FinishReason::cancelled) continue;  // after as many steps, not tokens
    ASSERT_EQ(found.tokens.size(), expected.tokens.size()) << request;
    for (size_t i = 0; i < expected.tokens.size(); ++i) {
      EXPECT_EQ(found.tokens[i].id, expected.tokens[i].id) << request << ", token " << i;
      EXPECT_NEAR(found.tokens[i].logprob / expected.tokens[i].logprob, 1, bound) << request << ", token " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Devices, AsyncScheduling,
    testing::Values(Subject{"llama/a", 32, Schedule::forward}, Subject{"llama/a", 32, Schedule::random},
                    Subject{"llama/a", 64, Schedule::backward}, Subject{"mixtral/a", 64, Schedule::random}),
    [](const auto& info) { return "sim" + std::to_string(info.param.width) + "_" + std::to_string(info.index); });

}  // namespace
}  // namespace ingot::parity

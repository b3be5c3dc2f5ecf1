// An engine on a simulated GPU, whose work runs late, where the model's work of a step is queued before the tokens of
// the step before it are read: it gives the tokens of an engine that reads them first.
#include <gtest/gtest.h>

#include <map>

#include "base/philox.h"
#include "infer/engine.h"
#include "tensor/arena.h"
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

  static infer::EngineSettings settings(bool async) {
    infer::EngineSettings settings;
    settings.activation = DType::f32;
    settings.context = 24;
    settings.sequences = 4;
    settings.batch_tokens = 8;
    settings.page_tokens = 4;
    settings.adapter_rank = 8;
    settings.async_scheduling = async;
    return settings;
  }

  // Steps until no request is left. `before` is called before each step, with its number.
  template <class Before>
  Served run(infer::Engine& engine, Before before) {
    Served served;
    for (int step = 0; !engine.idle(); ++step) {
      before(step);
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

  // Six requests of different kinds in a cache that holds three, one of them cancelled after four steps.
  Served serve(bool async) {
    infer::EngineSettings of_engine = settings(async);
    of_engine.pages = 14;
    of_engine.prefix_cache = true;
    infer::Engine engine(*machine_.device, machine_.registry, machine_.threads, *bench_->model, of_engine);
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
    return run(engine, [&](int step) {
      if (step == 4) engine.cancel(ids[0]);
    });
  }

  // An adapter of the same layers as the bench's, with other random values. Its weights are on the device, in `memory`.
  nn::Adapter other_adapter(Arena& memory) const {
    nn::Adapter other = *bench_->optimizer_state->adapter();
    int64_t number = 0;
    for (nn::LoraWeights& layer : other.layers) {
      for (Tensor* matrix : {&layer.a, &layer.b}) {
        if (!*matrix) continue;
        RandomStream random(8, number++);
        std::vector<float> values(static_cast<size_t>(matrix->elements()));
        for (float& value : values) value = static_cast<float>(random.normal()) * 0.1F;
        *matrix = memory.allocate(DType::f32, matrix->shape);
        machine_.device->copy_from_host(matrix->data, values.data(), matrix->bytes());
      }
    }
    return other;
  }

  // Answers with the bench's adapter (request 1), without adapters (2) and with another adapter (3). There is one
  // adapter slot. Request 3 has the higher priority: it takes the slot while request 1 decodes, which waits until
  // request 3 has ended.
  Served serve_adapters(bool async) {
    Arena memory(*machine_.device, size_t{1} << 20, "adapter");
    const nn::Adapter other = other_adapter(memory);
    infer::EngineSettings of_engine = settings(async);
    of_engine.adapter_slots = 1;
    infer::Engine engine(*machine_.device, machine_.registry, machine_.threads, *bench_->model, of_engine);
    const auto submit = [&](int64_t max_tokens, const nn::Adapter* adapter, int priority) {
      infer::Request r;
      r.prompt = std::vector<int32_t>{3, 1, 4, 1, 5};
      r.max_tokens = max_tokens;
      r.priority = priority;
      r.adapter = infer::shared_adapter(adapter);
      engine.submit(std::move(r));
    };
    submit(8, bench_->optimizer_state->adapter(), 0);
    submit(12, nullptr, 0);
    return run(engine, [&](int step) {
      if (step == 4) submit(3, &other, 1);
    });
  }

  // Requests that are cancelled end after as many steps, not tokens.
  void expect_same_answers(const Served& found, const Served& expected) const {
    const double bound = tolerance(DType::f32, chain_length(bench_->loaded.spec, 24));
    ASSERT_EQ(found.answers.size(), expected.answers.size());
    for (const auto& [request, answer] : expected.answers) {
      const Answer& same = found.answers.at(request);
      EXPECT_EQ(same.finish, answer.finish) << request;
      if (answer.finish == infer::FinishReason::cancelled) continue;
      ASSERT_EQ(same.tokens.size(), answer.tokens.size()) << request;
      for (size_t i = 0; i < answer.tokens.size(); ++i) {
        EXPECT_EQ(same.tokens[i].id, answer.tokens[i].id) << request << ", token " << i;
        EXPECT_NEAR(same.tokens[i].logprob / answer.tokens[i].logprob, 1, bound) << request << ", token " << i;
      }
    }
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
  expect_same_answers(async, waiting);
}

// What a slot had is in use until the batch in flight is done: an adapter is copied there only then.
TEST_P(AsyncScheduling, AnAdapterTakesTheSlotOfABatchInFlight) {
  const Served waiting = serve_adapters(false), async = serve_adapters(true);
  EXPECT_EQ(waiting.ahead, 0);
  EXPECT_GT(async.ahead, 5);
  for (const Served* served : {&waiting, &async}) {
    EXPECT_EQ(served->counts.adapter_uploads, 3);  // that of request 1 twice
    EXPECT_EQ(served->counts.preemptions, 1);
  }
  expect_same_answers(async, waiting);
  const auto first = [&](int64_t request) { return waiting.answers.at(request).tokens.front().logprob; };
  EXPECT_NE(first(1), first(2));
  EXPECT_NE(first(1), first(3));
  EXPECT_NE(first(2), first(3));
}

INSTANTIATE_TEST_SUITE_P(
    Devices, AsyncScheduling,
    testing::Values(Subject{"llama/a", 32, Schedule::forward}, Subject{"llama/a", 32, Schedule::random},
                    Subject{"llama/a", 64, Schedule::backward}, Subject{"mixtral/a", 64, Schedule::random}),
    [](const auto& info) { return "sim" + std::to_string(info.param.width) + "_" + std::to_string(info.index); });

}  // namespace
}  // namespace ingot::parity

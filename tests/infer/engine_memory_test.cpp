// An engine allocates exactly what engine_bytes returns.
#include <gtest/gtest.h>

#include "checkpoint/row_codec.h"
#include "infer/engine.h"
#include "tests/host_heap.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

class EngineMemoryTest : public EngineTest {};

// The engine allocates what engine_bytes returns at its creation and nothing later. That suffices at the limits:
// batches full of one prompt, batches full of decoding sequences, adapters of the largest rank, and quantized weights.
TEST_P(EngineMemoryTest, AllocatesExactlyEngineBytes) {
  for (const auto& [weights, activation] : {std::pair{DType::f32, DType::f32},
                                            {DType::bf16, DType::bf16},
                                            {DType::bf16, DType::f32},
                                            {DType::f16, DType::f16}}) {
    SmallModel model(GetParam(), checkpoint::storage_of(weights));
    const auto adapter = model.adapter(8, 3, activation);
    for (const int64_t batch_tokens : {1, 8, 40}) {
      EngineSettings s = settings(8, batch_tokens, 16);
      s.activation = activation;
      s.decoded = weights != activation;
      const size_t before = model.device.allocated();
      Engine e(model.device, model.registry, model.threads, *model.model, s);
      const EngineBytes bytes = engine_bytes(model.spec(), s, model.threads.threads(), true);
      EXPECT_EQ(model.device.allocated() - before, bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
      for (uint64_t i = 0; i < 9; ++i) {
        Request r = request(model.prompt(i, 40), 1000, i % 2 ? &adapter->adapter : nullptr);
        r.prompt_logprobs = i % 3 == 0;
        r.sampling.top_logprobs = 20;
        e.submit(r);
      }
      std::map<int64_t, Answer> found;
      run(e, found);
      for (const auto& [name, answer] : found) EXPECT_EQ(answer.tokens.size(), 8U) << name;
      EXPECT_EQ(model.device.allocated() - before, bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
    }
  }
}

class EngineInt8MemoryTest : public EngineTest {};

TEST_P(EngineInt8MemoryTest, Int8ActivationsAreInEngineBytes) {
  SmallModel model(GetParam(), StorageType::q4_0);
  const auto adapter = model.adapter(8, 3, DType::bf16);
  for (const int64_t batch_tokens : {1, 40}) {
    EngineSettings s = settings(8, batch_tokens, 16);
    s.activation = DType::bf16;
    s.decoded = s.int8_activations = true;
    const size_t before = model.device.allocated();
    Engine e(model.device, model.registry, model.threads, *model.model, s);
    for (uint64_t i = 0; i < 9; ++i) e.submit(request(model.prompt(i, 40), 20, i % 2 ? &adapter->adapter : nullptr));
    std::map<int64_t, Answer> found;
    run(e, found);
    for (const auto& [name, answer] : found) EXPECT_EQ(answer.tokens.size(), 8U) << name;
    const EngineBytes bytes = engine_bytes(model.spec(), s, model.threads.threads(), true);
    EXPECT_EQ(model.device.allocated() - before, bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
  }
}

// An engine computes with the workspace of its thread pool: prefill and decode steps allocate nothing on the heap. The
// first engine has filled the tables that a process has once.
TEST_P(EngineMemoryTest, StepsAllocateNoHostMemory) {
  for (const auto& [weights, activation] : {std::pair{StorageType::f32, DType::f32}, {StorageType::bf16, DType::f32}}) {
    int64_t before = 0, after = 0;
    for (int time = 0; time < 2; ++time) {
      SmallModel model(GetParam(), weights);
      const auto adapter = model.adapter(8, 3, activation);
      EngineSettings s = settings(8, 40, 16);
      s.activation = activation;
      s.decoded = weights != StorageType::f32;
      Engine e(model.device, model.registry, model.threads, *model.model, s);
      before = host_heap_bytes();
      for (uint64_t i = 0; i < 9; ++i) {
        e.submit(request(model.prompt(i, 30), 20, i % 2 ? &adapter->adapter : nullptr));
      }
      while (!e.idle()) e.step();
      after = host_heap_bytes();
    }
    EXPECT_LE(after - before, small_objects) << name(weights);
  }
}

// Prompt log-probabilities are computed for as many tokens at once as requested: there is memory for their logits.
TEST_P(EngineMemoryTest, PromptsAreScoredManyTokensAtOnce) {
  EngineSettings s = settings(2, 40, 16);
  const EngineBytes before = engine_bytes(small_.spec(), s, small_.threads.threads(), true);
  s.scored_at_once = 16;
  const EngineBytes bytes = engine_bytes(small_.spec(), s, small_.threads.threads(), true);
  EXPECT_GE(bytes.batch - before.batch, static_cast<size_t>(14 * small_.spec().vocab) * sizeof(float));
  const size_t allocated = small_.device.allocated();
  Engine e = engine(s);
  EXPECT_EQ(small_.device.allocated() - allocated, bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
  Request r = request(small_.prompt(1, 40), 3);
  r.prompt_logprobs = true;
  r.sampling.top_logprobs = 20;
  e.submit(r);
  std::map<int64_t, Answer> found;
  run(e, found);
  EXPECT_EQ(found.begin()->second.prompt.size(), 39U);
  EXPECT_EQ(small_.device.allocated() - allocated, bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
  s.scored_at_once = 0;
  EXPECT_THROW(engine(s), Error);
}

// On a device whose memory the host cannot access, adapter weights are kept in slots.
TEST_P(EngineMemoryTest, CountsSlotsOfADeviceWithoutHostAccess) {
  CountingDevice hidden(false);
  const EngineSettings s = settings(3, 8, 16);
  const Engine e(hidden, small_.registry, small_.threads, *small_.model, s);
  const EngineBytes bytes = engine_bytes(small_.spec(), s, small_.threads.threads(), false);
  EXPECT_EQ(hidden.allocated(), bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
  EXPECT_GT(bytes.adapters, engine_bytes(small_.spec(), s, small_.threads.threads(), true).adapters);
}

TEST_P(EngineMemoryTest, WithoutAContextUsesTheModels) {
  EngineSettings s = settings(2, 8, 16);
  s.context = 0;
  const size_t before = small_.device.allocated();
  const Engine e = engine(s);
  const EngineBytes bytes = engine_bytes(small_.spec(), s, small_.threads.threads(), true);
  EXPECT_EQ(small_.device.allocated() - before, bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
  s.context = small_.spec().context;
  EXPECT_EQ(engine_bytes(small_.spec(), s, small_.threads.threads(), true).kv, bytes.kv);
  EXPECT_GT(bytes.kv, 0U);
}

// The shape whose row sizes are multiples of 32.
INSTANTIATE_TEST_SUITE_P(Shapes, EngineInt8MemoryTest, testing::Values("a"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Shapes, EngineMemoryTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer

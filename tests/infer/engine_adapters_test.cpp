// The engine with several adapters: in one batch, and sharing slots.
#include <gtest/gtest.h>

#include <limits>

#include "infer/engine.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

class EngineAdaptersTest : public EngineTest {};

TEST_P(EngineAdaptersTest, AdaptersAndBaseMixInABatch) {
  const auto small = small_.adapter(3, 1);
  const auto large = small_.adapter(8, 2);
  const std::vector<int32_t> prompt = small_.prompt(9, 11);
  std::vector<Request> requests;
  std::vector<std::vector<int32_t>> expected;
  for (const nn::Adapter* adapter : {&small->adapter, static_cast<nn::Adapter*>(nullptr), &large->adapter}) {
    requests.push_back(request(prompt, 16, adapter));
    expected.push_back(ids_of(small_.greedy(prompt, 16, adapter)));
  }
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(expected[0], expected[2]);
  EXPECT_NE(expected[1], expected[2]);
  for (const int64_t batch_tokens : {64, 5}) {
    const std::vector<Answer> found = answers(settings(3, batch_tokens, 4), requests);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].ids(), expected[i]) << i << ", batch " << batch_tokens;
  }
}

TEST_P(EngineAdaptersTest, NaNLogitsFailOnlyTheirRequest) {
  const auto broken = small_.adapter(4, 1);
  for (nn::LoraWeights& layer : broken->adapter.layers) {
    if (layer.b) *layer.b.as<float>() = std::numeric_limits<float>::quiet_NaN();
  }
  const std::vector<int32_t> prompt = small_.prompt(8, 9);
  Request states = request(prompt, 0, &broken->adapter);
  states.embed = true;
  Engine e = engine(settings(4, 64, 4));
  const int64_t good = e.submit(request(prompt, 12));
  const int64_t bad = e.submit(request(prompt, 12, &broken->adapter));
  const int64_t embedded = e.submit(states);
  std::map<int64_t, Answer> found;
  std::map<int64_t, std::string> errors;
  while (!e.idle()) {
    for (const Output& output : e.step()) {
      if (output.token) found[output.request].tokens.push_back(*output.token);
      if (output.finish) found[output.request].finish = output.finish;
      if (!output.error.empty()) errors[output.request] = output.error;
    }
  }
  EXPECT_EQ(found[bad].finish, FinishReason::failed);
  EXPECT_TRUE(found[bad].tokens.empty());
  EXPECT_NE(errors[bad].find("not finite"), std::string::npos) << errors[bad];
  EXPECT_EQ(found[embedded].finish, FinishReason::failed);
  EXPECT_EQ(errors.size(), 2U);
  EXPECT_EQ(found[good].finish, FinishReason::length);
  EXPECT_EQ(found[good].ids(), ids_of(small_.greedy(prompt, 12)));
}

// One slot for three adapters: they alternate, and no request gets another adapter's weights.
TEST_P(EngineAdaptersTest, AdaptersShareOneSlot) {
  std::vector<std::unique_ptr<RandomAdapter>> weights;
  std::vector<Request> requests;
  const std::vector<int32_t> prompt = small_.prompt(9, 11);
  for (uint64_t i = 0; i < 4; ++i) {
    weights.push_back(small_.adapter(static_cast<int64_t>(2 + 2 * i), i));
    requests.push_back(request(prompt, 8, &weights.back()->adapter));
  }
  requests.push_back(request(prompt, 8));
  for (const int64_t slots : {1, 2}) {
    EngineSettings s = settings(5, 64, 4);
    s.adapter_slots = slots;
    const std::vector<Answer> found = answers(s, requests);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].ids(), ids_of(small_.greedy(prompt, 8, i < 4 ? &weights[i]->adapter : nullptr))) << i;
    }
  }
}

// On a device whose memory the host cannot access, slots are filled during the steps. Texts do not change, and requests
// that end during the copy of their adapter leak nothing.
TEST_P(EngineAdaptersTest, SlotsAreFilledDuringSteps) {
  SmallModel far(GetParam(), StorageType::f32, false);
  std::vector<std::unique_ptr<RandomAdapter>> weights;
  std::vector<std::vector<int32_t>> expected;
  const std::vector<int32_t> prompt = small_.prompt(9, 11);
  for (uint64_t i = 0; i < 4; ++i) {
    weights.push_back(small_.adapter(static_cast<int64_t>(2 + 2 * i), i));
    expected.push_back(ids_of(small_.greedy(prompt, 8, &weights.back()->adapter)));
  }
  expected.push_back(ids_of(small_.greedy(prompt, 8)));
  for (const int64_t slots : {1, 2, 5}) {
    EngineSettings s = settings(5, 64, 4);
    s.adapter_slots = slots;
    Engine e(far.device, far.registry, far.threads, *far.model, s);
    std::vector<int64_t> names;
    for (size_t i = 0; i < 5; ++i) {
      names.push_back(e.submit(request(prompt, 8, i < 4 ? &weights[i]->adapter : nullptr)));
    }
    std::map<int64_t, Answer> found;
    // A request that is cancelled with its adapter after each number of steps of the copy.
    for (int64_t steps = 0; steps < 4; ++steps) {
      auto passing = small_.adapter(8, static_cast<uint64_t>(10 + steps));
      const int64_t name = e.submit(request(prompt, 8, &passing->adapter));
      run(e, found, steps);
      e.cancel(name);
      run(e, found, 1);
      passing.reset();
    }
    run(e, found);
    for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(found[names[i]].ids(), expected[i]) << i << ", slots " << slots;
    e.submit(request(prompt, 8, &weights[0]->adapter));  // the engine is destroyed with it
  }
}

// One slot and an endless stream of requests for one adapter: a request for another adapter gets its turn.
TEST_P(EngineAdaptersTest, AStreamOfRequestsDoesNotKeepASlot) {
  const auto popular = small_.adapter(2, 1), rare = small_.adapter(3, 2);
  const auto first = shared_adapter(&popular->adapter), second = shared_adapter(&rare->adapter);
  EngineSettings s = settings(2, 64, 3);
  s.adapter_slots = 1;
  Engine engine(small_.device, small_.registry, small_.threads, *small_.model, s);
  const auto ask = [&](const std::shared_ptr<const HostAdapter>& adapter) {
    Request r = request(small_.prompt(1, 5), 4);
    r.adapter = adapter;
    return engine.submit(std::move(r));
  };
  ask(first);
  ask(first);
  const int64_t waits = ask(second);
  bool ended = false;
  for (int step = 0; step < 64 && !ended; ++step) {
    ask(first);
    for (const Output& output : engine.step()) ended |= output.request == waits && output.finish.has_value();
  }
  EXPECT_TRUE(ended);
}

// One slot, and a request of higher priority that needs another adapter: it takes the slot from a running or waiting
// request, which continues later with the same text. A request of equal priority waits.
TEST_P(EngineAdaptersTest, HigherPriorityTakesTheSlotOfALowerOne) {
  const auto small = small_.adapter(2, 1), large = small_.adapter(3, 2);
  const auto first = shared_adapter(&small->adapter), second = shared_adapter(&large->adapter);
  const std::vector<int32_t> prompt = small_.prompt(1, 5), other = small_.prompt(2, 6);
  const auto ask = [](Engine& e, const std::vector<int32_t>& ids, const std::shared_ptr<const HostAdapter>& adapter,
                      int priority) {
    Request r = request(ids, 12);
    r.adapter = adapter;
    r.priority = priority;
    return e.submit(std::move(r));
  };
  const std::vector<int32_t> of_first = ids_of(small_.greedy(prompt, 12, &small->adapter));
  const std::vector<int32_t> of_second = ids_of(small_.greedy(other, 12, &large->adapter));
  const std::vector<int32_t> of_base = ids_of(small_.greedy(other, 12));
  for (const int64_t draft_tokens : {0, 4}) {
    for (const int64_t sequences : {4, 1}) {
      EngineSettings s = settings(sequences, 64, 4);
      s.adapter_slots = 1;
      s.draft_tokens = draft_tokens;
      Engine e = engine(s);
      std::map<int64_t, Answer> found;
      const int64_t between = ask(e, other, nullptr, 1);
      const int64_t plain = ask(e, prompt, first, 0);
      run(e, found, 2);
      EXPECT_EQ(found[plain].tokens.empty(), sequences == 1) << "with one sequence it waits and keeps its slot";
      const int64_t urgent = ask(e, other, second, 2);
      run(e, found, 1);
      EXPECT_FALSE(found[urgent].tokens.empty());
      EXPECT_EQ(e.counts().preemptions, 1);
      const int64_t equal = ask(e, prompt, first, 2);
      while (!found[urgent].finish) run(e, found, 1);
      EXPECT_TRUE(found[equal].tokens.empty()) << "requests of equal priority wait";
      run(e, found);
      EXPECT_EQ(found[urgent].ids(), of_second);
      EXPECT_EQ(found[plain].ids(), of_first);
      EXPECT_EQ(found[equal].ids(), of_first);
      EXPECT_EQ(found[between].ids(), of_base);
      EXPECT_EQ(e.counts().used_pages, 0);
    }
  }
}

// Two slots, one of them shared by a request of equal and one of lower priority: the other slot is taken, although its
// user's priority is above the lower one.
TEST_P(EngineAdaptersTest, PriorityTakesASlotWithoutEqualPriorities) {
  const auto mixed = small_.adapter(2, 1), lower = small_.adapter(3, 2), wanted = small_.adapter(4, 3);
  const auto first = shared_adapter(&mixed->adapter), second = shared_adapter(&lower->adapter),
             third = shared_adapter(&wanted->adapter);
  const std::vector<int32_t> prompt = small_.prompt(2, 5);
  EngineSettings s = settings(4, 64, 4);
  s.adapter_slots = 2;
  Engine e = engine(s);
  const auto ask = [&](const std::shared_ptr<const HostAdapter>& adapter, int priority) {
    Request r = request(prompt, 12);
    r.adapter = adapter;
    r.priority = priority;
    return e.submit(std::move(r));
  };
  std::map<int64_t, Answer> found;
  const int64_t low = ask(first, 0), equal = ask(first, 2), between = ask(second, 1);
  run(e, found, 2);
  for (const int64_t id : {low, equal, between}) EXPECT_EQ(found[id].tokens.size(), 2U);
  const int64_t urgent = ask(third, 2);
  run(e, found, 1);
  EXPECT_EQ(e.counts().preemptions, 1);
  EXPECT_EQ(found[urgent].tokens.size(), 1U);
  EXPECT_EQ(found[low].tokens.size(), 3U);
  EXPECT_EQ(found[equal].tokens.size(), 3U);
  EXPECT_EQ(found[between].tokens.size(), 2U) << "it was preempted from its slot";
  run(e, found);
  EXPECT_EQ(found[low].ids(), ids_of(small_.greedy(prompt, 12, &mixed->adapter)));
  EXPECT_EQ(found[equal].ids(), found[low].ids());
  EXPECT_EQ(found[between].ids(), ids_of(small_.greedy(prompt, 12, &lower->adapter)));
  EXPECT_EQ(found[urgent].ids(), ids_of(small_.greedy(prompt, 12, &wanted->adapter)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineAdaptersTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer

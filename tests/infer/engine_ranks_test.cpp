// The engine of a model that ranks share, as tensor-parallel ranks and as stages of a pipeline, compared with an engine
// on one device.
#include <gtest/gtest.h>

#include "comm/grid.h"
#include "comm/in_process.h"
#include "infer/engine_link.h"
#include "infer/follower.h"
#include "infer/service.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

struct Extents {
  int tp = 1, pp = 1;
};

// GetParam(): the model's shape.
class EngineRanksTest : public EngineTest {
 protected:
  static constexpr Extents all_extents[] = {{.tp = 2}, {.pp = 2}, {.tp = 2, .pp = 2}};

  static models::ModelRanks ranks_of(const comm::Group& all, Extents extents) {
    const comm::Grid grid = comm::make_grid(all, {.pp = extents.pp, .tp = extents.tp});
    return {all, {grid.tp}, grid.pp};
  }

  // Runs rank 0's `body` with its shard of the model, while the other ranks follow its engine.
  // `visible`: whether the host can read the devices' memory.
  void on_ranks(Extents extents, const std::function<void(SmallModel&, const comm::Group&)>& body,
                bool visible = true) {
    SCOPED_TRACE(testing::Message() << "tp " << extents.tp << ", pp " << extents.pp);
    comm::run_in_process({.ranks = extents.tp * extents.pp, .timeout_s = 60}, [&](const comm::Group& all) {
      SmallModel part(GetParam(), StorageType::f32, visible, ranks_of(all, extents));
      if (all.rank() == 0) return body(part, all);
      follow_engine(part.device, part.registry, part.threads, *part.model, all);
    });
  }

  // The answers to requests that are submitted together.
  static std::vector<Answer> answers_of(Engine& engine, const std::vector<Request>& requests) {
    std::vector<int64_t> names;
    for (const Request& r : requests) names.push_back(engine.submit(r));
    std::map<int64_t, Answer> by_name;
    run(engine, by_name);
    std::vector<Answer> all;
    for (const int64_t name : names) all.push_back(by_name[name]);
    return all;
  }

  static Engine engine_of(SmallModel& part, const EngineSettings& s, const comm::Group& all) {
    return Engine(part.device, part.registry, part.threads, *part.model, s, all);
  }
};

void expect_near(const std::vector<SampledToken>& found, const std::vector<SampledToken>& expected) {
  ASSERT_EQ(ids_of(found), ids_of(expected));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i].logprob, expected[i].logprob, 1e-4) << i;
}

TEST_P(EngineRanksTest, AnswersAsOneDevice) {
  std::vector<std::unique_ptr<RandomAdapter>> adapters;
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) {  // of bases and adapters; a slot is filled again
    const std::vector<int32_t> prompt = small_.prompt(9 + i, 7 + static_cast<int64_t>(i));
    if (i % 2 == 0) adapters.push_back(small_.adapter(static_cast<int64_t>(2 + i), i));
    requests.push_back(request(prompt, 12, i % 2 == 0 ? &adapters.back()->adapter : nullptr));
    requests.back().prompt_logprobs = i > 2;
  }
  EngineSettings s = settings(4, 16, 4);
  s.adapter_slots = 2;
  s.draft_tokens = 2;
  const std::vector<Answer> expected = answers(s, requests);
  const auto compare = [&](SmallModel& part, const comm::Group& all) {
    Engine engine = engine_of(part, s, all);
    EXPECT_TRUE(engine.has_ranks());
    engine.check_ranks();
    engine.cancel(engine.submit(requests[2]));  // its adapter may be on its way
    const std::vector<Answer> found = answers_of(engine, requests);
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(found[i].finish, FinishReason::length);
      expect_near(found[i].tokens, expected[i].tokens);
      expect_near(found[i].prompt, expected[i].prompt);
    }
    engine.check_ranks();
  };
  for (const Extents extents : all_extents) {
    for (const bool visible : {true, false}) on_ranks(extents, compare, visible);
  }
}

TEST_P(EngineRanksTest, EmbedsAsOneDevice) {
  Request embedded = request(small_.prompt(3, 13), 0);
  embedded.embed = true;
  const std::vector<double> expected = small_.mean_state(embedded.prompt.get());
  for (const Extents extents : all_extents)
    on_ranks(extents, [&](SmallModel& part, const comm::Group& all) {
      Engine engine = engine_of(part, settings(2, 8, 4), all);
      engine.submit(embedded);
      std::vector<float> found;
      while (!engine.idle()) {
        for (const Output& output : engine.step()) found = output.embedding;
      }
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
    });
}

// Each rank has its share of the keys and values.
TEST_P(EngineRanksTest, DivideTheCache) {
  EngineSettings s = settings(4, 16, 4);
  const size_t whole = engine_bytes(small_.spec(), s, 2, true).kv;
  s.shard = {.tp = 2, .tp_rank = 1, .pp = 2, .stage = 1};
  EXPECT_EQ(engine_bytes(small_.spec(), s, 2, true).kv, whole / 4);
}

TEST_P(EngineRanksTest, RequestsEndWhenARankFails) {
  const auto run_with_failure = [&] {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& group) {
      SmallModel part(GetParam(), StorageType::f32, true, ranks_of(group, {.tp = 2}));
      if (group.rank() > 0) {  // fails when it is to compute a batch
        const EngineLink link(group);
        EXPECT_EQ(link.receive().message, EngineMessage::settings);
        EXPECT_EQ(link.receive().message, EngineMessage::batch);
        throw Error(ErrorKind::resource, "no memory");
      }
      Guarded<std::vector<Output>> outputs;  // outlives the service, whose thread notifies it
      Service service(
          std::make_unique<Engine>(part.device, part.registry, part.threads, *part.model, settings(2, 16, 4), group),
          8);
      service.submit({request(small_.prompt(1, 5), 4)}, [&](const Output& output) {
        outputs.lock()->push_back(output);
        outputs.notify_all();
        return true;
      });
      auto held = outputs.lock();
      held.wait([](const std::vector<Output>& all) { return !all.empty() && all.back().finish.has_value(); });
      EXPECT_EQ(held->back().finish, FinishReason::failed);
      EXPECT_NE(held->back().error.find("no memory"), std::string::npos) << held->back().error;
      EXPECT_NE(service.failure().find("rank 1"), std::string::npos) << service.failure();
    });
  };
  EXPECT_THROW(run_with_failure(), Error);
}

// Also while there are no requests.
TEST_P(EngineRanksTest, AnIdleEngineNoticesThatARankHasFailed) {
  const auto run_with_failure = [&] {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& group) {
      SmallModel part(GetParam(), StorageType::f32, true, ranks_of(group, {.tp = 2}));
      if (group.rank() > 0) {
        const EngineLink link(group);
        EXPECT_EQ(link.receive().message, EngineMessage::settings);
        EXPECT_EQ(link.receive().message, EngineMessage::idle);
        throw Error(ErrorKind::resource, "no memory");
      }
      Engine engine = engine_of(part, settings(2, 16, 4), group);
      EXPECT_THROW(engine.check_ranks(), Error);
    });
  };
  EXPECT_THROW(run_with_failure(), Error);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineRanksTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer

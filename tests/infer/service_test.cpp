// The engine's thread: requests from many threads, and cancellation between steps.
#include "infer/service.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/infer/service_fixture.h"

namespace ingot::infer {
namespace {

TEST_F(ServiceTest, EachThreadGetsItsRequestsOutput) {
  start();
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 8; ++i) expected.push_back(ids_of(model.greedy(model.prompt(i, 5), 6)));
  std::vector<std::vector<int32_t>> got(8);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      Collector collector(1);
      const int64_t ticket = service->submit({request(i, 6)}, collector.listener());
      got[i] = collector.ends(1).ids[0];
      service->cancel(ticket);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
  EXPECT_EQ(service->counts().prompt_tokens, 40);
}

TEST_F(ServiceTest, RequestsOfOneTicketKeepTheirIndices) {
  start();
  Collector collector(3);
  const int64_t ticket = service->submit({request(1, 4), request(2, 7), request(3, 1)}, collector.listener());
  const Collected all = collector.ends(3);
  EXPECT_EQ(all.ids[0], ids_of(model.greedy(model.prompt(1, 5), 4)));
  EXPECT_EQ(all.ids[1], ids_of(model.greedy(model.prompt(2, 5), 7)));
  EXPECT_EQ(all.ids[2], ids_of(model.greedy(model.prompt(3, 5), 1)));
  service->cancel(ticket);
}

TEST_F(ServiceTest, AfterCancelNothingIsReported) {
  start(100, 1);
  std::atomic<bool> cancelled = false;
  std::atomic<bool> reported_late = false;
  Guarded<int> tokens{0};
  const int64_t ticket = service->submit({request(1, 200), request(2, 200)}, [&](const Output&) {
    if (cancelled) reported_late = true;
    ++*tokens.lock();
    tokens.notify_all();
    return true;
  });
  {
    tokens.lock().wait([](int count) { return count > 2; });
  }
  service->cancel(ticket);
  cancelled = true;
  Collector other(1);
  const int64_t second = service->submit({request(3, 4)}, other.listener());
  EXPECT_EQ(other.ends(1).ids[0].size(), 4U);
  service->cancel(second);
  EXPECT_FALSE(reported_late);
}

// Two requests may run: a short one, whose listener blocks the engine's thread while the long ones are cancelled, and
// one of the long ones. The result does not depend on the engine's speed.
TEST_F(ServiceTest, CancelEndsTheWorkAtTheNextStep) {
  struct Scene {
    bool submitted = false;  // the long ones are submitted
    int heard = 0;           // number of tokens of the long ones
    bool holds = false;      // the engine's thread is blocked
    bool cancelled = false;  // the long ones are cancelled
  };
  start(100, 2);
  Guarded<Scene> scene;
  Collector collector(1);
  const auto beside = [&scene, collect = collector.listener()](Output output) {
    {
      auto held = scene.lock();
      held.wait([](const Scene& s) { return s.submitted; });
      if (held->heard >= 2 && !held->holds) {
        held->holds = true;
        scene.notify_all();
        held.wait([](const Scene& s) { return s.cancelled; });
      }
    }
    return collect(std::move(output));
  };
  const int64_t short_one = service->submit({request(3, 16)}, beside);
  const int64_t long_ones = service->submit({request(1, 200), request(2, 200)}, [&](const Output&) {
    ++scene.lock()->heard;
    return true;
  });
  scene.lock()->submitted = true;
  scene.notify_all();
  int heard = 0;
  {
    auto held = scene.lock();
    EXPECT_TRUE(held.wait_for(60, [](const Scene& s) { return s.holds; }));
    heard = held->heard;
  }
  service->cancel(long_ones);
  scene.lock()->cancelled = true;
  scene.notify_all();
  EXPECT_EQ(collector.ends(1).ids[0].size(), 16U);
  // Its place is free.
  Collector other(1);
  const int64_t last = service->submit({request(4, 4)}, other.listener());
  EXPECT_EQ(other.ends(1).ids[0].size(), 4U);
  service->cancel(short_one);
  service->cancel(last);
  EXPECT_EQ(scene.lock()->heard, heard);
  EXPECT_LT(service->counts().output_tokens, 200);
}

TEST_F(ServiceTest, OneOfATicketCanBeCancelled) {
  start();
  Collector collector(2);
  const int64_t ticket = service->submit({request(1, 240), request(2, 8)}, collector.listener());
  collector.wait([](const Collected& c) { return !c.ids[0].empty(); });
  service->cancel(ticket, 0);
  const Collected all = collector.ends(2);
  EXPECT_EQ(all.ids[1].size(), 8U);
  service->cancel(ticket);
}

TEST_F(ServiceTest, AListenerMayEndItsRequest) {
  start();
  Guarded<std::vector<Output>> outputs;
  const int64_t ticket = service->submit({request(1, 240)}, [&](Output output) {
    auto held = outputs.lock();
    held->push_back(std::move(output));
    outputs.notify_all();
    return held->size() < 3;
  });
  {
    auto held = outputs.lock();
    EXPECT_TRUE(held.wait_for(60, [](const auto& all) { return !all.empty() && all.back().finish; }));
    EXPECT_EQ(held->back().finish, FinishReason::cancelled);
    EXPECT_LT(held->size(), 10U);
  }
  service->cancel(ticket);
}

TEST_F(ServiceTest, ARefusedRequestFailsAlone) {
  start();
  Request bad = request(1, 4);
  bad.prompt = std::vector<int32_t>{-1};
  Collector collector(3);
  const int64_t ticket = service->submit({request(1, 4), bad, request(2, 4)}, collector.listener());
  const Collected all = collector.ends(3);
  ASSERT_EQ(all.errors.size(), 1U);
  EXPECT_NE(all.errors[0].find("-1"), std::string::npos);
  EXPECT_EQ(all.kinds[0], ErrorKind::usage);
  EXPECT_EQ(all.ids[0].size(), 4U);
  EXPECT_EQ(all.ids[1].size(), 0U);
  EXPECT_EQ(all.ids[2].size(), 4U);
  service->cancel(ticket);
}

}  // namespace
}  // namespace ingot::infer

// How requests end when the service is shut down, the engine fails, a listener throws, or the model's file changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <thread>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/file.h"
#include "ops/embedding.h"
#include "ops/registry.h"
#include "tests/base/scratch.h"
#include "tests/infer/service_fixture.h"

namespace ingot::infer {
namespace {

TEST_F(ServiceTest, DrainingAcceptsNoRequests) {
  start();
  Collector collector(1);
  const int64_t ticket = service->submit({request(1, 20)}, collector.listener());
  service->drain();
  try {
    service->submit({request(2, 1)}, collector.listener());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  }
  EXPECT_EQ(collector.ends(1).ids[0].size(), 20U);
  service->cancel(ticket);
}

// An embedding op that fails after a given number of calls.
std::atomic<int> left_until_fault{0};
void fail_at_last(ops::Context&, const Tensor&, const Weight&, const Tensor&, ops::TablePart) {
  throw std::runtime_error("a fault");
}
bool not_yet(const ops::Context&, const Tensor&, const Weight&, const Tensor&, ops::TablePart, ops::Refusal refuse) {
  return --left_until_fault > 0 && refuse("later");
}

// When the engine fails, requests without output may be sent again; those with output may not.
TEST_F(ServiceTest, AFailingEngineDistinguishesRequestsWithOutput) {
  left_until_fault = 10;
  ops::Registry registry;
  registry.add<ops::Embedding>(DeviceKind::cpu, "failing", fail_at_last, not_yet);
  cpu::register_ops(registry);
  EngineSettings settings;
  settings.activation = DType::f32;
  settings.sequences = 1;
  service = std::make_unique<Service>(
      std::make_unique<Engine>(model.device, registry, model.threads, *model.model, settings), 100, 0);
  Collector collector(3);
  service->submit({request(1, 200), request(2, 200), request(3, 200)}, collector.listener());
  const Collected all = collector.ends(3);
  EXPECT_EQ(all.finishes, std::vector<FinishReason>(3, FinishReason::failed));
  EXPECT_EQ(all.ids.at(0).size(), 9U);
  EXPECT_EQ(std::count(all.kinds.begin(), all.kinds.end(), ErrorKind::internal), 1);
  EXPECT_EQ(std::count(all.kinds.begin(), all.kinds.end(), ErrorKind::unavailable), 2);
  service.reset();
}

// The first listener blocks the engine's thread until the service is about to end. The queue is full in the meantime,
// so asking for its state changes nothing.
TEST_F(ServiceTest, ShutdownReportsWaitingRequests) {
  start(2, 1);
  Guarded<bool> holds{false};
  Guarded<bool> ends{false};
  Collector collector(3);
  service->submit({request(1, 240)}, [&, collect = collector.listener()](Output output) {
    *holds.lock() = true;
    holds.notify_all();
    ends.lock().wait([](bool there) { return there; });
    return collect(std::move(output));
  });
  EXPECT_TRUE(holds.lock().wait_for(60, [](bool there) { return there; }));
  service->submit({request(2, 240), request(3, 240)}, collector.listener());
  Service& ending = *service;
  std::thread end([&] { service.reset(); });
  const auto refusal = [&] {
    try {
      ending.submit({request(4, 1)}, nullptr);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  while (refusal() == ErrorKind::resource) std::this_thread::yield();
  EXPECT_EQ(refusal(), ErrorKind::unavailable);
  *ends.lock() = true;
  ends.notify_all();
  end.join();
  const Collected all = collector.ends(3);
  EXPECT_EQ(all.finishes, std::vector<FinishReason>(3, FinishReason::failed));
  EXPECT_EQ(all.kinds, std::vector<ErrorKind>(3, ErrorKind::unavailable));
}

// While the first listener is informed of the end, the ticket of the second is cancelled, which must therefore get no
// further output.
TEST_F(ServiceTest, AfterCancelTheEndIsNotReportedEither) {
  struct Turns {
    bool reported = false;
    bool may_go_on = false;
  };
  start(100, 1);
  Guarded<Turns> turns;
  std::atomic<bool> reported_late = false;
  service->submit({request(1, 240)}, [&](const Output& output) {
    if (!output.finish) return true;
    auto held = turns.lock();
    held->reported = true;
    turns.notify_all();
    held.wait([](const Turns& t) { return t.may_go_on; });
    return true;
  });
  const int64_t second = service->submit({request(2, 240)}, [&](const Output&) {
    reported_late = true;
    return true;
  });
  Service& ending = *service;
  std::thread end([&] { service.reset(); });
  {
    auto held = turns.lock();
    EXPECT_TRUE(held.wait_for(60, [](const Turns& t) { return t.reported; }));
  }
  ending.cancel(second);
  reported_late = false;
  turns.lock()->may_go_on = true;
  turns.notify_all();
  end.join();
  EXPECT_FALSE(reported_late);
}

// A listener throws, as one without memory would. Its requests end, others do not, and the engine continues.
TEST_F(ServiceTest, AThrowingListenerEndsOnlyItsRequests) {
  start(100, 4);
  std::atomic<int> heard = 0;
  Collector beside(1);
  const int64_t fine = service->submit({request(1, 30)}, beside.listener());
  service->submit({request(2, 200), request(3, 200)}, [&](const Output&) -> bool {
    if (++heard == 2) throw std::bad_alloc();
    return true;
  });
  Request refused = request(4, 4);
  refused.prompt = std::vector<int32_t>{-1};
  service->submit({refused}, [](const Output&) -> bool { throw std::bad_alloc(); });
  EXPECT_EQ(beside.ends(1).ids[0], ids_of(model.greedy(model.prompt(1, 5), 30)));
  service->cancel(fine);
  while (!service->idle()) std::this_thread::yield();
  EXPECT_EQ(heard, 2);
  EXPECT_EQ(service->failure(), "");
  Collector later(1);
  const int64_t last = service->submit({request(5, 4)}, later.listener());
  EXPECT_EQ(later.ends(1).ids[0].size(), 4U);
  service->cancel(last);
}

// When the stream to a client fails, its other choices are cancelled too.
TEST_F(ServiceTest, AListenerThatThrowsEndsAllRequestsOfItsTicket) {
  start(100, 2);
  std::atomic<int> outputs = 0;
  service->submit({request(1, 200), request(2, 200), request(3, 200)}, [&](const Output&) -> bool {
    if (++outputs == 3) throw std::bad_alloc();
    return true;
  });
  while (!service->idle()) std::this_thread::yield();
  EXPECT_EQ(outputs, 3);
  EXPECT_LT(service->counts().output_tokens, 20);
  // A request that the engine refuses fails in the listener before the other one begins.
  const int64_t before = service->counts().output_tokens;
  Request refused = request(4, 4);
  refused.prompt = std::vector<int32_t>{-1};
  service->submit({refused, request(5, 200)}, [](const Output&) -> bool { throw std::bad_alloc(); });
  while (!service->idle()) std::this_thread::yield();
  EXPECT_LT(service->counts().output_tokens - before, 20);
}

TEST_F(ServiceTest, AFaultOfTheModelFileFailsRequestsNotTheService) {
  const Scratch scratch;
  write_file(scratch / "weights", "0123456789");
  auto watch = std::make_shared<FileWatch>();
  watch->add(MappedFile(scratch / "weights"));
  EngineSettings settings;
  settings.activation = DType::f32;
  settings.sequences = 1;
  service = std::make_unique<Service>(
      std::make_unique<Engine>(model.device, model.registry, model.threads, *model.model, settings), 100, 0, watch);
  EXPECT_FALSE(service->file_fault());
  struct Heard {
    int tokens = 0;
    std::vector<Output> ends;
  };
  Guarded<Heard> heard;
  const auto listener = [&](Output output) {
    auto held = heard.lock();
    if (output.token && ++held->tokens == 3) std::filesystem::resize_file(scratch / "weights", 5);
    if (output.finish) held->ends.push_back(std::move(output));
    heard.notify_all();
    return true;
  };
  const auto wait_for_ends = [&](size_t count) {
    auto held = heard.lock();
    EXPECT_TRUE(held.wait_for(60, [&](const Heard& h) { return h.ends.size() >= count; }));
  };
  service->submit({request(1, 200), request(2, 200)}, listener);
  wait_for_ends(2);
  service->submit({request(3, 4)}, listener);
  wait_for_ends(3);
  EXPECT_EQ(heard.lock()->tokens, 3);
  for (const Output& end : heard.lock()->ends) {
    EXPECT_EQ(end.finish, FinishReason::failed);
    EXPECT_EQ(end.file, (scratch / "weights").string());
    EXPECT_NE(end.error.find("weights: it has 5 bytes now"), std::string::npos) << end.error;
  }
  EXPECT_EQ(service->failure(), "");
  EXPECT_EQ(service->file_fault()->file, scratch / "weights");
  while (!service->idle()) std::this_thread::yield();
}

}  // namespace
}  // namespace ingot::infer

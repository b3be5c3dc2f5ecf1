// The engine's thread: requests from many threads, cancels between steps, a full queue, draining.
#include "infer/service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <new>
#include <thread>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mutex.h"
#include "ops/embedding.h"
#include "ops/registry.h"
#include "tests/base/scratch.h"
#include "tests/infer/small_model.h"

namespace ingot::infer {
namespace {

// What came of one ticket.
struct Collected {
  std::vector<std::vector<int32_t>> ids;
  std::vector<Finish> finishes;
  std::vector<std::string> errors;
  std::vector<ErrorKind> kinds;  // of these
};

class Collector {
 public:
  explicit Collector(size_t requests) { collected_.lock()->ids.resize(requests); }
  Listener listener() {
    return [this](Output output) {
      auto held = collected_.lock();
      if (output.token) held->ids.at(static_cast<size_t>(output.request)).push_back(output.token->id);
      if (output.finish) held->finishes.push_back(*output.finish);
      if (!output.error.empty()) {
        held->errors.push_back(output.error);
        held->kinds.push_back(output.kind);
      }
      collected_.notify_all();
      return true;
    };
  }
  template <class Ready>
  Collected wait(Ready ready) {
    auto held = collected_.lock();
    EXPECT_TRUE(held.wait_for(60, ready));
    return *held;
  }
  Collected ends(size_t count) {
    return wait([=](const Collected& c) { return c.finishes.size() >= count; });
  }

 private:
  Guarded<Collected> collected_;
};

struct ServiceTest : testing::Test {
  SmallModel model{"a"};
  std::unique_ptr<Service> service;

  void start(int64_t queue = 100, int64_t sequences = 4, int64_t share = 0, int64_t max_prompt_tokens = INT64_MAX) {
    EngineSettings settings;
    settings.activation = DType::f32;
    settings.sequences = sequences;
    settings.batch_tokens = 32;
    service = std::make_unique<Service>(
        std::make_unique<Engine>(model.device, model.registry, model.threads, *model.model, settings), queue, share,
        nullptr, max_prompt_tokens);
  }
  Request request(uint64_t seed, int64_t tokens) const {
    Request out;
    out.prompt = model.prompt(seed, 5);
    out.max_tokens = tokens;
    return out;
  }
};

TEST_F(ServiceTest, GivesWhatTheModelSaysToEachThread) {
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

TEST_F(ServiceTest, SeveralRequestsOfOneTicketKeepTheirPlaces) {
  start();
  Collector collector(3);
  const int64_t ticket = service->submit({request(1, 4), request(2, 7), request(3, 1)}, collector.listener());
  const Collected all = collector.ends(3);
  EXPECT_EQ(all.ids[0], ids_of(model.greedy(model.prompt(1, 5), 4)));
  EXPECT_EQ(all.ids[1], ids_of(model.greedy(model.prompt(2, 5), 7)));
  EXPECT_EQ(all.ids[2], ids_of(model.greedy(model.prompt(3, 5), 1)));
  service->cancel(ticket);
}

TEST_F(ServiceTest, AfterCancelNothingIsTold) {
  start(100, 1);
  std::atomic<bool> cancelled = false;
  std::atomic<bool> told_late = false;
  Guarded<int> tokens{0};
  const int64_t ticket = service->submit({request(1, 200), request(2, 200)}, [&](const Output&) {
    if (cancelled) told_late = true;
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
  EXPECT_FALSE(told_late);
}

// Two may run: a short request, whose listener holds the engine's thread while the long ones beside it are cancelled,
// and one of these. So it does not matter how fast the engine is.
TEST_F(ServiceTest, CancelEndsTheWorkAtTheNextStep) {
  struct Scene {
    bool submitted = false;  // the long ones are
    int heard = 0;           // tokens of the long ones
    bool holds = false;      // the engine's thread waits
    bool cancelled = false;  // the long ones are
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
  // Its place is free, too.
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

TEST_F(ServiceTest, AListenerThatHasEnoughEndsItsRequest) {
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
    EXPECT_EQ(held->back().finish, Finish::cancelled);
    EXPECT_LT(held->size(), 10U);
  }
  service->cancel(ticket);
}

TEST_F(ServiceTest, AFullQueueTakesAllOrNone) {
  start(3, 1);
  Collector collector(4);
  try {
    service->submit({request(1, 1), request(2, 1), request(3, 1), request(4, 1)}, collector.listener());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);  // there will never be room
    EXPECT_NE(std::string(error.what()).find("3 at most"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(service->idle());
  Collector three(3);
  const int64_t ticket = service->submit({request(1, 1), request(2, 1), request(3, 1)}, three.listener());
  three.ends(3);
  service->cancel(ticket);
}

// The engine waits while one owner has all it may have.
TEST_F(ServiceTest, AnOwnerTakesNoMoreThanItsShareOfTheQueue) {
  start(4, 1, 2);
  Guarded<bool> may_go_on{false};
  Guarded<bool> waits{false};
  const auto of = [&](uint64_t owner, size_t count) {
    std::vector<Request> requests;
    for (size_t i = 0; i < count; ++i) {
      requests.push_back(request(i, 2));
      requests.back().owner = owner;
    }
    return requests;
  };
  const auto refused = [&](uint64_t owner, size_t count, ErrorKind kind = ErrorKind::resource) {
    try {
      service->submit(of(owner, count), nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused(7, 3, ErrorKind::usage)) << "never, however empty the queue is";
  service->submit(of(7, 1), [&](const Output&) {
    *waits.lock() = true;
    waits.notify_all();
    may_go_on.lock().wait([](bool go_on) { return go_on; });
    return true;
  });
  EXPECT_TRUE(waits.lock().wait_for(60, [](bool there) { return there; }));
  Collector first(2), second(2);
  service->submit(of(7, 2), first.listener());
  EXPECT_TRUE(refused(7, 1));
  EXPECT_TRUE(refused(0, 3)) << "all or none";
  service->submit(of(8, 2), second.listener());
  EXPECT_TRUE(refused(9, 1)) << "the queue is full";
  *may_go_on.lock() = true;
  may_go_on.notify_all();
  EXPECT_EQ(first.ends(2).ids[1].size(), 2U);
  EXPECT_EQ(second.ends(2).ids[1].size(), 2U);
  while (!service->idle()) std::this_thread::yield();
  EXPECT_FALSE(refused(7, 2));
}

// A prompt that choices share counts once; it is given back when the last of them has ended.
TEST_F(ServiceTest, PromptsUnderWayHaveABound) {
  start(100, 4, 0, 20);
  const auto asked = [&](uint64_t owner, int choices, int64_t tokens) {
    std::vector<Request> all(static_cast<size_t>(choices), request(1, tokens));
    for (Request& each : all) each.owner = owner;
    return all;
  };
  const auto kind_of = [&](std::vector<Request> requests) {
    try {
      service->submit(std::move(requests), {});
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  std::vector<Request> apart = asked(1, 3, 1);
  for (Request& each : apart) each.prompt = each.prompt.get();  // copies
  EXPECT_EQ(kind_of(apart), ErrorKind::usage) << "15 tokens; one owner has half of 20";
  Collector first(3), second(1);
  const int64_t ticket = service->submit(asked(1, 3, 1000), first.listener());
  const int64_t endless = service->submit(asked(1, 1, 1000), second.listener());
  EXPECT_EQ(kind_of(asked(1, 1, 1)), ErrorKind::resource);
  Collector other(1);
  service->submit(asked(2, 1, 1), other.listener());
  other.ends(1);
  service->cancel(ticket);
  Collector again(1);
  for (bool taken = false; !taken;) {  // the ticket ends with the next step
    try {
      service->submit(asked(1, 1, 1), again.listener());
      taken = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource);
    }
  }
  again.ends(1);
  service->cancel(endless);
}

TEST_F(ServiceTest, WhatTheEngineRefusesFailsAlone) {
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

TEST_F(ServiceTest, DrainingTakesNothingMore) {
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

// An embedding that fails when it has been asked for so often.
std::atomic<int> left_until_fault{0};
void fail_at_last(ops::Context&, const Tensor&, const Weight&, const Tensor&) { throw std::runtime_error("a fault"); }
std::string not_yet(const ops::Context&, const Tensor&, const Weight&, const Tensor&) {
  return --left_until_fault > 0 ? "later" : "";
}

// Where the engine fails, only who has tokens cannot simply be asked for again.
TEST_F(ServiceTest, AFailingEngineTellsApartWhoHasTokens) {
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
  EXPECT_EQ(all.finishes, std::vector<Finish>(3, Finish::failed));
  EXPECT_EQ(all.ids.at(0).size(), 9U);
  EXPECT_EQ(std::count(all.kinds.begin(), all.kinds.end(), ErrorKind::internal), 1);
  EXPECT_EQ(std::count(all.kinds.begin(), all.kinds.end(), ErrorKind::unavailable), 2);
  service.reset();
}

// The first listener holds the engine's thread until the service is about to end. The queue is full meanwhile, so that
// asking whether it is changes nothing.
TEST_F(ServiceTest, TheEndTellsWhoStillWaits) {
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
  EXPECT_EQ(all.finishes, std::vector<Finish>(3, Finish::failed));
  EXPECT_EQ(all.kinds, std::vector<ErrorKind>(3, ErrorKind::unavailable));
}

// While the first listener is told of the end, the second one's ticket is cancelled: then it must not be told.
TEST_F(ServiceTest, AfterCancelNothingIsToldOfTheEndEither) {
  struct Turns {
    bool told = false;
    bool may_go_on = false;
  };
  start(100, 1);
  Guarded<Turns> turns;
  std::atomic<bool> told_late = false;
  service->submit({request(1, 240)}, [&](const Output& output) {
    if (!output.finish) return true;
    auto held = turns.lock();
    held->told = true;
    turns.notify_all();
    held.wait([](const Turns& t) { return t.may_go_on; });
    return true;
  });
  const int64_t second = service->submit({request(2, 240)}, [&](const Output&) {
    told_late = true;
    return true;
  });
  Service& ending = *service;
  std::thread end([&] { service.reset(); });
  {
    auto held = turns.lock();
    EXPECT_TRUE(held.wait_for(60, [](const Turns& t) { return t.told; }));
  }
  ending.cancel(second);
  told_late = false;
  turns.lock()->may_go_on = true;
  turns.notify_all();
  end.join();
  EXPECT_FALSE(told_late);
}

// As one without memory does. Its requests end, others do not, and the engine goes on.
TEST_F(ServiceTest, AListenerThatThrowsEndsItsOwnRequestsOnly) {
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

// Two owners, one place: the first holds the engine's thread with its first token until everybody waits.
TEST_F(ServiceTest, AnOwnersFirstRequestDoesNotWaitForAllOfAnothers) {
  start(200, 1);
  Guarded<std::vector<uint64_t>> first_tokens;  // owners, in the order in which their requests began
  Guarded<bool> all_wait{false};
  const auto listener = [&](uint64_t owner, bool hold) {
    return [&, owner, hold, begun = std::map<int64_t, bool>()](const Output& output) mutable {
      if (hold) all_wait.lock().wait([](bool there) { return there; });
      if (output.token && !std::exchange(begun[output.request], true)) first_tokens.lock()->push_back(owner);
      first_tokens.notify_all();
      return true;
    };
  };
  const auto of = [&](uint64_t owner) {
    Request out = request(owner, 4);
    out.owner = owner;
    return out;
  };
  service->submit({of(1)}, listener(1, true));
  for (int i = 0; i < 127; ++i) service->submit({of(1)}, listener(1, false));
  service->submit({of(2)}, listener(2, false));
  *all_wait.lock() = true;
  all_wait.notify_all();
  const auto done = [](const auto& owners) { return std::find(owners.begin(), owners.end(), 2U) != owners.end(); };
  {
    auto held = first_tokens.lock();
    ASSERT_TRUE(held.wait_for(60, done));
    EXPECT_LE(std::find(held->begin(), held->end(), 2U) - held->begin(), 5);
  }
  service.reset();
}

TEST_F(ServiceTest, AFaultOfTheModelsFileFailsRequestsAndNotTheService) {
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
    EXPECT_EQ(end.finish, Finish::failed);
    EXPECT_EQ(end.file, (scratch / "weights").string());
    EXPECT_NE(end.error.find("weights: it has 5 bytes now"), std::string::npos) << end.error;
  }
  EXPECT_EQ(service->failure(), "");
  EXPECT_EQ(service->file_fault()->file, scratch / "weights");
  while (!service->idle()) std::this_thread::yield();
}

}  // namespace
}  // namespace ingot::infer

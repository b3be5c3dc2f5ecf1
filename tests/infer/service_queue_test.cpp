// Which requests may wait for the engine: a full queue, shares of owners, prompt tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/error.h"
#include "tests/infer/service_fixture.h"

namespace ingot::infer {
namespace {

TEST_F(ServiceTest, AFullQueueAcceptsAllOrNone) {
  start(3, 1);
  Collector collector(4);
  try {
    service->submit({request(1, 1), request(2, 1), request(3, 1), request(4, 1)}, collector.listener());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);  // more than the queue's capacity
    EXPECT_NE(std::string(error.what()).find("at most 3"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(service->idle());
  Collector three(3);
  const int64_t ticket = service->submit({request(1, 1), request(2, 1), request(3, 1)}, three.listener());
  three.ends(3);
  service->cancel(ticket);
}

// The engine is blocked while one owner has its whole share.
TEST_F(ServiceTest, AnOwnerIsLimitedToItsShareOfTheQueue) {
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
  EXPECT_TRUE(refused(7, 3, ErrorKind::usage)) << "more than its share of an empty queue";
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

// A prompt shared by several choices counts once. It is released when the last of them has ended.
TEST_F(ServiceTest, PromptTokensInFlightAreBounded) {
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
  for (Request& each : apart) each.prompt = each.prompt.get();  // copies of the prompt
  EXPECT_EQ(kind_of(apart), ErrorKind::usage) << "15 tokens; one owner may have half of 20";
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

// Two owners, one place: the first token of the first request blocks the engine's thread until all requests wait.
TEST_F(ServiceTest, AnOwnersFirstRequestDoesNotWaitForAllOfAnotherOwner) {
  start(200, 1);
  Guarded<std::vector<uint64_t>> first_tokens;  // owners in the order in which their requests started
  Guarded<bool> all_wait{false};
  const auto listener = [&](uint64_t owner, bool hold) {
    return [&, owner, hold, has_token = std::map<int64_t, bool>()](const Output& output) mutable {
      if (hold) all_wait.lock().wait([](bool there) { return there; });
      if (output.token && !std::exchange(has_token[output.request], true)) first_tokens.lock()->push_back(owner);
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

}  // namespace
}  // namespace ingot::infer

// Shared by the service's tests: a service with the small model, and a listener that collects outputs.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "infer/service.h"
#include "tests/infer/small_model.h"

namespace ingot::infer {

// The outputs of one ticket.
struct Collected {
  std::vector<std::vector<int32_t>> ids;
  std::vector<FinishReason> finishes;
  std::vector<std::string> errors;
  std::vector<ErrorKind> kinds;  // the kinds of these errors
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

}  // namespace ingot::infer

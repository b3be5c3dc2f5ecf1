// The engine where a step's model work is queued before the tokens of the step before it are read, compared with one
// that reads them first. On a CPU whose memory the host cannot see.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/function_ref.h"
#include "ops/context.h"
#include "tensor/tolerance.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

// Which tokens it allows depends on all tokens before. Ends after nine.
class SumMask : public TokenMask {
 public:
  void fill(std::span<uint32_t> bits) override {
    std::fill(bits.begin(), bits.end(), 0U);
    for (size_t id = 0; id < bits.size() * 32; ++id) {
      if (allows(static_cast<int64_t>(id))) bits[id / 32] |= uint32_t{1} << (id % 32);
    }
  }
  void accept(int32_t id) override {
    EXPECT_TRUE(allows(id)) << id;
    sum_ += id;
    ++accepted_;
  }
  void rollback(int64_t) override { ADD_FAILURE() << "nothing was drafted"; }
  bool finished() const override { return accepted_ == 9; }

 private:
  bool allows(int64_t id) const { return (id + sum_) % 3 == 0; }
  int64_t sum_ = 0, accepted_ = 0;
};

class InsertedOps : public ops::OpObserver {
 public:
  void ran(const char* op, std::span<const Tensor>, const ops::OpWork&) override {
    count += std::string_view(op) == "insert_sampled" ? 1 : 0;
  }
  int64_t count = 0;
};

// All outputs of a request: what must be equal, and log-probabilities and states, which depend on the batch by
// rounding.
struct Outputs {
  std::ostringstream text;
  std::vector<float> numbers;
  int64_t cached = 0;

  void add(const SampledToken& token) {
    text << ' ' << token.id;
    numbers.push_back(token.logprob);
    for (const TokenLogprob& top : token.top) {
      text << '/' << top.id;
      numbers.push_back(top.logprob);
    }
  }
  void add(const Output& output) {
    cached += output.cached_tokens;
    for (const SampledToken& token : output.prompt) add(token);
    if (output.token) add(*output.token);
    if (output.ended_by) add(*output.ended_by);
    if (output.finish) text << ' ' << name(*output.finish) << output.error << ", cached " << cached;
    numbers.insert(numbers.end(), output.embedding.begin(), output.embedding.end());
  }
};

class EngineAsyncTest : public EngineTest {
 protected:
  struct Served {
    std::map<int64_t, Outputs> requests;
    EngineCounts counts;   // at the end
    int64_t inserted = 0;  // batches that took tokens from the device
    int64_t most = 0;      // tokens of one step
  };

  Engine far_engine(EngineSettings s, bool async) {
    s.async_scheduling = async;
    return Engine(far_.device, far_.registry, far_.threads, *far_.model, s);
  }

  // `per_step`: requests that are submitted before each step.
  Served served(const EngineSettings& s, bool async, FunctionRef<std::vector<Request>()> requests,
                size_t per_step = 100) {
    Engine engine = far_engine(s, async);
    InsertedOps observer;
    engine.observe(&observer);
    std::vector<Request> left = requests();
    Served all;
    for (size_t next = 0; next < left.size() || !engine.idle();) {
      for (size_t i = 0; i < per_step && next < left.size(); ++i) all.requests[engine.submit(std::move(left[next++]))];
      int64_t tokens = 0;
      for (const Output& output : engine.step()) {
        all.requests.at(output.request).add(output);
        tokens += output.token ? 1 : 0;
      }
      all.most = std::max(all.most, tokens);
    }
    all.counts = engine.counts();
    all.inserted = observer.count;
    EXPECT_EQ(all.counts.used_pages, 0);
    return all;
  }

  // Serves the requests both ways.
  std::pair<Served, Served> both(const EngineSettings& s, FunctionRef<std::vector<Request>()> requests,
                                 size_t per_step = 100) {
    std::pair<Served, Served> served_both{served(s, false, requests, per_step), served(s, true, requests, per_step)};
    const auto& [waiting, async] = served_both;
    const double bound =
        tolerance(DType::f32, 7 * small_.spec().num_layers() * std::max(small_.spec().vocab, small_.ffn()));
    EXPECT_EQ(async.requests.size(), waiting.requests.size());
    for (const auto& [id, expected] : waiting.requests) {
      const Outputs& found = async.requests.at(id);
      EXPECT_EQ(found.text.str(), expected.text.str()) << "request " << id;
      if (found.numbers.size() != expected.numbers.size()) continue;
      for (size_t i = 0; i < expected.numbers.size(); ++i) {
        EXPECT_NEAR(found.numbers[i], expected.numbers[i], bound * std::max(1.0F, std::abs(expected.numbers[i])))
            << "request " << id << ", number " << i;
      }
    }
    EXPECT_EQ(waiting.inserted, 0);
    EXPECT_GT(async.inserted, 0);
    return served_both;
  }

  // One of each kind, twice: greedy, sampled, penalties, mask, adapter, stop ids.
  std::vector<Request> mixed(bool prompts_too) {
    std::vector<Request> all;
    for (uint64_t i = 0; i < 12; ++i) {
      const auto number = static_cast<int64_t>(i);
      Request r = request(small_.prompt(200 + i, 3 + number * 5 % 14), 5 + number % 4 * 7);
      r.sampling.seed = i;
      r.sampling.temperature = i % 6 == 0 ? 0 : 0.9;
      if (i % 6 == 1) r.sampling.top_logprobs = 3;
      if (i % 6 == 2) {
        r.sampling.frequency_penalty = 0.5;
        r.sampling.repetition_penalty = 1.2;
        r.sampling.logit_bias = {{3, 2}};
      }
      if (i % 6 == 3) r.mask = std::make_shared<SumMask>();
      if (i % 6 == 4) r.adapter = shared_adapter(i < 6 ? &first_->adapter : &second_->adapter);
      for (int32_t id = 0; i % 6 == 5 && id < small_.spec().vocab; id += 9) r.stop_ids.push_back(id);
      r.prompt_logprobs = prompts_too && i % 5 == 2;
      all.push_back(std::move(r));
    }
    Request states = request(small_.prompt(300, 11), 0);
    states.embed = true;
    if (prompts_too) all.push_back(states);
    all.push_back(request(small_.prompt(301, 9), 0));
    return all;
  }

  SmallModel far_{GetParam(), StorageType::f32, false};
  std::unique_ptr<RandomAdapter> first_ = small_.adapter(3, 1), second_ = small_.adapter(8, 2);
};

// Requests of every kind together, with whole and chunked prompts, few batch slots, few pages, and one adapter slot.
TEST_P(EngineAsyncTest, OutputsAreThoseOfReadingFirst) {
  struct Case {
    int64_t sequences, batch_tokens, pages;
    bool prefix_cache;
    size_t per_step;
  };
  for (const Case& c : {Case{16, 64, 0, false, 100},
                        {4, 16, 0, true, 1},
                        {4, 3, 0, false, 100},
                        {1, 64, 0, true, 100},
                        {6, 24, 12, false, 100},
                        {6, 24, 13, true, 2}}) {
    SCOPED_TRACE(testing::Message() << c.sequences << " sequences, " << c.batch_tokens << " tokens, " << c.pages
                                    << " pages");
    EngineSettings s = settings(c.sequences, c.batch_tokens, 4, c.pages);
    s.prefix_cache = c.prefix_cache;
    s.adapter_slots = 1;
    for (const bool prompts_too : {false, true}) {
      const auto [waiting, async] = both(s, [&] { return mixed(prompts_too); }, c.per_step);
      if (c.pages > 0) EXPECT_GT(async.counts.preemptions, 0);
      if (c.sequences == 16) EXPECT_GT(async.most, 8);
    }
  }
}

// A request that waits for its place finds what those before it have left in the prefix cache.
TEST_P(EngineAsyncTest, PrefixHitsAreThoseOfReadingFirst) {
  for (const int64_t sequences : {1, 2}) {
    EngineSettings s = settings(sequences, 8, 4);
    s.prefix_cache = true;
    const auto requests = [&] {
      std::vector<Request> all;
      for (int i = 0; i < 5; ++i) {
        std::vector<int32_t> prompt = small_.prompt(9, 18);
        for (int more = 0; more < i % 3; ++more) prompt.push_back(more);
        all.push_back(request(prompt, 4 + i));
      }
      return all;
    };
    const auto [waiting, async] = both(s, requests);
    EXPECT_EQ(async.counts.prefix_hits, waiting.counts.prefix_hits);
    EXPECT_GT(async.counts.prefix_hits, 32);
  }
}

// Every step returns one batch's tokens. What is in flight for a request that ends is dropped, and its pages are free.
TEST_P(EngineAsyncTest, CancelDropsWhatIsInFlight) {
  Engine e = far_engine(settings(2, 16, 4, 24), true);
  const std::vector<int32_t> prompt = small_.prompt(1, 7), next = small_.prompt(5, 40);
  const int64_t cancelled = e.submit(request(small_.prompt(2, 9), 30));
  const int64_t other = e.submit(request(prompt, 20));
  std::map<int64_t, Answer> found;
  run(e, found, 4);
  EXPECT_EQ(found[cancelled].tokens.size(), 4U);
  EXPECT_EQ(found[other].tokens.size(), 4U);
  e.cancel(cancelled);
  run(e, found, 1);
  EXPECT_EQ(found[cancelled].finish, FinishReason::cancelled);
  EXPECT_EQ(found[cancelled].tokens.size(), 4U);
  EXPECT_EQ(found[other].tokens.size(), 5U);
  run(e, found);
  EXPECT_EQ(found[other].ids(), ids_of(small_.greedy(prompt, 20)));

  // The only request is cancelled while it is in flight. The next one uses the same pages.
  const int64_t only = e.submit(request(small_.prompt(3, 40), 8));
  run(e, found, 3);
  e.cancel(only);
  run(e, found, 1);
  EXPECT_EQ(found[only].tokens.size(), 1U) << "the prompt takes three steps";
  EXPECT_TRUE(e.idle());
  EXPECT_EQ(e.counts().used_pages, 0);
  const int64_t last = e.submit(request(next, 1000));
  run(e, found);
  EXPECT_EQ(found[last].ids(), ids_of(small_.greedy(next, context - 40)));

  e.submit(request(prompt, 20));
  e.step();  // the engine is destroyed with a batch in flight
}

// A row without a token fails its request; the batch that was queued with it does not harm others.
TEST_P(EngineAsyncTest, NaNLogitsFailOnlyTheirRequest) {
  for (nn::LoraWeights& layer : first_->adapter.layers) {
    if (layer.b) *layer.b.as<float>() = std::numeric_limits<float>::quiet_NaN();
  }
  const auto requests = [&] {
    std::vector<Request> all;
    for (int i = 0; i < 4; ++i) {
      all.push_back(request(small_.prompt(8, 9), 12, i == 1 ? &first_->adapter : nullptr));
    }
    return all;
  };
  const auto [waiting, async] = both(settings(4, 64, 4), requests);
  const std::string failed = async.requests.at(2).text.str();
  EXPECT_NE(failed.find("not finite"), std::string::npos) << failed;
}

// Draft tokens are looked up in the text so far, which must have been read.
TEST_P(EngineAsyncTest, EnginesWithDraftsReadFirst) {
  EngineSettings s = settings(2, 16, 4);
  s.draft_tokens = 3;
  const auto requests = [&] { return std::vector<Request>{request(small_.prompt(1, 7), 20)}; };
  EXPECT_EQ(served(s, true, requests).inserted, 0);
  EXPECT_FALSE(served(s, true, requests).requests.at(1).numbers.empty());
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineAsyncTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer

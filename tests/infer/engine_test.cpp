// The engine compared with a full forward pass, and with itself under other conditions.
#include "infer/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "tensor/tolerance.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

TEST_P(EngineTest, GreedyEqualsAFullForward) {
  const double bound =
      tolerance(DType::f32, 7 * small_.spec().num_layers() * std::max(small_.spec().vocab, small_.ffn()));
  std::set<std::vector<int32_t>> different;
  for (const int64_t length : {1, 5, 23}) {
    const std::vector<int32_t> prompt = small_.prompt(static_cast<uint64_t>(length), length);
    const std::vector<SampledToken> expected = small_.greedy(prompt, 20);
    const Answer found = answer(settings(1, 64, 16), request(prompt, 20));
    ASSERT_EQ(found.ids(), ids_of(expected)) << "prompt of " << length;
    EXPECT_EQ(found.finish, FinishReason::length);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found.tokens[i].logprob / expected[i].logprob, 1, bound) << "token " << i;
    }
    different.insert(found.ids());
  }
  EXPECT_EQ(different.size(), 3U) << "all prompts give the same text: nothing was tested";
}

// Tokens are the same alone and in a batch, with whole and chunked prompts, pages of any size, and so few pages that
// sequences are preempted and computed again.
TEST_P(EngineTest, TokensDoNotDependOnTheBatch) {
  std::vector<Request> requests;
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 4; ++i) {
    const std::vector<int32_t> prompt = small_.prompt(100 + i, 5 + static_cast<int64_t>(i));
    requests.push_back(request(prompt, 28));
    expected.push_back(ids_of(small_.greedy(prompt, 28)));
  }
  struct Case {
    int64_t sequences, batch_tokens, page_tokens, pages;
  };
  // The last three have too few pages: every sequence ends with at least 32 tokens, so four do not fit into 48 tokens.
  for (const Case& c : {Case{1, 64, 16, 0},
                        {4, 64, 16, 0},
                        {4, 3, 16, 0},
                        {2, 1, 4, 0},
                        {4, 7, 1, 0},
                        {4, 64, 48, 0},
                        {4, 64, 4, 12},
                        {4, 3, 4, 13},
                        {4, 9, 1, 48}}) {
    const std::vector<Answer> found = answers(settings(c.sequences, c.batch_tokens, c.page_tokens, c.pages), requests);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].ids(), expected[i])
          << "request " << i << " with " << c.sequences << " sequences, " << c.batch_tokens << " tokens a batch, "
          << c.page_tokens << " a page, " << c.pages << " pages";
    }
  }
}

// The case of too few pages is effective: all four sequences run at first, and cannot finish together.
TEST_P(EngineTest, TooFewPagesPreemptTheNewest) {
  Engine e = engine(settings(4, 64, 4, 12));
  for (uint64_t i = 0; i < 4; ++i) e.submit(request(small_.prompt(100 + i, 5), 28));
  EXPECT_EQ(e.step().size(), 4U);
  size_t fewest = 4;
  std::map<int64_t, Answer> found;
  while (!e.idle()) {
    std::vector<Output> outputs = e.step();
    fewest = std::min(fewest, outputs.size());
    for (const Output& output : outputs) found[output.request].tokens.push_back(*output.token);
  }
  EXPECT_LT(fewest, 4U);
  for (const auto& [name, answer] : found) EXPECT_EQ(answer.tokens.size(), 27U) << name;
}

TEST_P(EngineTest, SeedsDetermineTheSamples) {
  const auto drawn = [&](uint64_t seed) {
    Request r = request(small_.prompt(4, 6), 20);
    r.sampling.temperature = 1;
    r.sampling.seed = seed;
    return r;
  };
  const std::vector<Answer> together = answers(settings(3, 16, 4), {drawn(1), drawn(2), drawn(1)});
  EXPECT_EQ(together[0].ids(), together[2].ids());
  EXPECT_NE(together[0].ids(), together[1].ids());
  EXPECT_EQ(answer(settings(1, 64, 16), drawn(2)).ids(), together[1].ids());
  // 36 of 48 tokens at the end, for three requests: they alternate in the cache
  EXPECT_EQ(answers(settings(3, 16, 4, 12), {drawn(1), drawn(2), drawn(1)})[1].ids(), together[1].ids());
}

TEST_P(EngineTest, StopIdsEndTheAnswerBeforeThem) {
  const std::vector<int32_t> prompt = small_.prompt(4, 6);
  Request r = request(prompt, 20);
  r.sampling.temperature = 1;  // for varied tokens
  r.sampling.seed = 5;
  const std::vector<int32_t> whole = answer(settings(1, 64, 16), r).ids();
  const int32_t stop = whole[10];
  const auto first = std::find(whole.begin(), whole.end(), stop);
  r.stop_ids = {-7, stop};
  const Answer found = answer(settings(1, 64, 16), r);
  EXPECT_EQ(found.finish, FinishReason::stop);
  EXPECT_EQ(found.ids(), std::vector<int32_t>(whole.begin(), first));
  Engine e = engine(settings(1, 64, 16));
  e.submit(r);
  std::optional<SampledToken> last;
  while (!e.idle()) {
    for (const Output& output : e.step()) last = output.ended_by;
  }
  ASSERT_TRUE(last);
  EXPECT_EQ(last->id, stop);
  EXPECT_LT(last->logprob, 0);
}

TEST_P(EngineTest, LengthEndsAtMaxTokensOrTheContext) {
  const std::vector<int32_t> prompt = small_.prompt(4, 40);
  const Answer asked = answer(settings(1, 64, 16), request(prompt, 3));
  EXPECT_EQ(asked.tokens.size(), 3U);
  EXPECT_EQ(asked.finish, FinishReason::length);
  const Answer full = answer(settings(1, 64, 16), request(prompt, 1000));
  EXPECT_EQ(full.tokens.size(), static_cast<size_t>(context - 40));
  EXPECT_EQ(full.finish, FinishReason::length);
  EXPECT_EQ(full.ids(), ids_of(small_.greedy(prompt, context - 40)));
  EXPECT_EQ(answer(settings(1, 64, 16), request(small_.prompt(4, context - 1), 9)).tokens.size(), 1U);
}

TEST_P(EngineTest, CancelEndsOneAndLeavesTheOthers) {
  Engine e = engine(settings(2, 16, 4, 24));
  const std::vector<int32_t> prompt = small_.prompt(1, 7);
  const int64_t running = e.submit(request(small_.prompt(2, 9), 30));
  const int64_t other = e.submit(request(prompt, 20));
  const int64_t waiting = e.submit(request(small_.prompt(3, 9), 30));
  std::map<int64_t, Answer> found;
  run(e, found, 4);
  e.cancel(running);
  e.cancel(waiting);
  e.cancel(12345);  // an unknown id
  run(e, found);
  EXPECT_EQ(found[running].finish, FinishReason::cancelled);
  EXPECT_LT(found[running].tokens.size(), 30U);
  EXPECT_EQ(found[waiting].finish, FinishReason::cancelled);
  EXPECT_TRUE(found[waiting].tokens.empty());
  EXPECT_EQ(found[other].finish, FinishReason::length);
  EXPECT_EQ(found[other].ids(), ids_of(small_.greedy(prompt, 20)));
  EXPECT_TRUE(e.idle());
  EXPECT_TRUE(e.step().empty());
  // Their pages are free: two whole contexts fit.
  std::map<int64_t, Answer> more;
  e.submit(request(small_.prompt(5, 40), 1000));
  e.submit(request(small_.prompt(6, 40), 1000));
  run(e, more);
  EXPECT_EQ(more.size(), 2U);
}

TEST_P(EngineTest, DeadlinesEndRequests) {
  const auto now = std::chrono::steady_clock::now();
  Request late = request(small_.prompt(1, 5), 10), soon = late;
  late.deadline = now - std::chrono::hours(1);
  soon.deadline = now + std::chrono::hours(1);
  const std::vector<Answer> found = answers(settings(2, 64, 4), {late, soon});
  EXPECT_EQ(found[0].finish, FinishReason::deadline);
  EXPECT_TRUE(found[0].tokens.empty());
  EXPECT_EQ(found[1].finish, FinishReason::length);
  EXPECT_EQ(found[1].tokens.size(), 10U);
}

// A request of higher priority takes the only place; the preempted one continues later with the same text.
TEST_P(EngineTest, HigherPriorityPreempts) {
  Engine e = engine(settings(1, 64, 4));
  const std::vector<int32_t> prompt = small_.prompt(1, 5), other = small_.prompt(2, 6);
  const int64_t plain = e.submit(request(prompt, 12));
  std::map<int64_t, Answer> found;
  run(e, found, 4);
  Request urgent = request(other, 6);
  urgent.priority = 1;
  const int64_t name = e.submit(urgent);
  run(e, found, 1);
  EXPECT_EQ(found[name].tokens.size(), 1U);
  EXPECT_EQ(e.counts().running, 1);
  EXPECT_EQ(e.counts().waiting, 1);
  EXPECT_EQ(e.counts().preemptions, 1);
  while (!found[name].finish) run(e, found, 1);
  EXPECT_EQ(found[plain].tokens.size(), 4U);
  run(e, found);
  EXPECT_EQ(found[plain].ids(), ids_of(small_.greedy(prompt, 12)));
  EXPECT_EQ(found[name].ids(), ids_of(small_.greedy(other, 6)));
  EXPECT_EQ(e.counts().used_pages, 0);
}

// The mean of the final norm's output, for any chunking of the prompt and any batch.
TEST_P(EngineTest, EmbeddingsAreMeansOfFinalHiddenStates) {
  const std::vector<int32_t> prompt = small_.prompt(12, 23);
  const std::vector<double> expected = small_.mean_state(prompt);
  const double bound = tolerance(DType::f32, 7 * small_.spec().num_layers() * small_.ffn());
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (const int64_t batch_tokens : {64, 5}) {
    Engine e = engine(settings(2, batch_tokens, 4));
    e.submit(request(small_.prompt(13, 9), 8));
    Request r = request(prompt, 0);
    r.embed = true;
    const int64_t name = e.submit(r);
    std::vector<float> found;
    while (!e.idle()) {
      for (const Output& output : e.step()) {
        if (output.request != name) continue;
        EXPECT_FALSE(output.token);
        EXPECT_EQ(output.finish, FinishReason::stop);
        found = output.embedding;
      }
    }
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], bound * largest) << i;
  }
}

TEST_P(EngineTest, InvalidRequestsAreRefusedWithoutEffectOnOthers) {
  Engine e = engine(settings(1, 16, 4));
  const auto wide = small_.adapter(9, 1);
  const auto refused = [&](Request r, const char* word) {
    try {
      e.submit(std::move(r));
      ADD_FAILURE() << "accepted; expected an error with '" << word << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.message();
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    }
  };
  refused(request({}, 1), "no tokens");
  refused(request({1}, -1), "max_tokens");
  Request both = request({1}, 0);
  both.embed = both.prompt_logprobs = true;
  refused(both, "log-probabilities");
  refused(request({1, -1}, 1), "token id -1");
  refused(request({static_cast<int32_t>(small_.spec().vocab)}, 1), "vocabulary");
  refused(request(small_.prompt(1, context), 1), "48");
  refused(request({1}, 1, &wide->adapter), "rank");
  Request hot = request({1}, 1);
  hot.sampling.temperature = -1;
  refused(hot, "temperature");
  Request biased = request({1}, 1);
  biased.sampling.logit_bias = {{static_cast<int32_t>(small_.spec().vocab), 1}};
  refused(biased, "logit_bias");
  EXPECT_TRUE(e.idle());
  e.submit(request({1}, 2));
  std::map<int64_t, Answer> found;
  run(e, found);
  EXPECT_EQ(found.begin()->second.tokens.size(), 2U);
}

TEST_P(EngineTest, ContradictorySettingsAreRefused) {
  EngineSettings s = settings(1, 16, 4);
  s.context = small_.spec().context + 1;
  EXPECT_THROW(engine(s), Error);
  s = settings(1, 16, 4, 11);  // 44 tokens for a context of 48
  EXPECT_THROW(engine(s), Error);
  for (int64_t EngineSettings::* field :
       {&EngineSettings::batch_tokens, &EngineSettings::sequences, &EngineSettings::page_tokens}) {
    s = settings(1, 16, 4);
    s.*field = 0;
    EXPECT_THROW(engine(s), Error);
  }
}

// A prompt whose cached pages are evicted while it waits for more pages is computed completely, and reported so.
TEST_P(EngineTest, CachedTokensAreThoseOfTheFirstBatch) {
  EngineSettings s = settings(2, 64, 4, 12);
  s.prefix_cache = true;
  Engine e = engine(s);
  std::vector<int32_t> shared = small_.prompt(9, 11);
  e.submit(request(shared, 1));
  std::map<int64_t, Answer> answers;
  run(e, answers);
  e.submit(request(small_.prompt(12, 37), 11));  // takes all 12 pages in the end
  run(e, answers, 2);
  const std::vector<int32_t> more = small_.prompt(13, 9);
  shared.insert(shared.end(), more.begin(), more.end());
  const int64_t waiting = e.submit(request(shared, 1));  // 5 pages, of which 2 are cached at its arrival
  std::optional<int64_t> cached;
  while (!e.idle()) {
    for (const Output& output : e.step()) {
      if (output.request == waiting) cached = output.cached_tokens;
    }
  }
  EXPECT_EQ(cached, 0);
  EXPECT_EQ(e.counts().prefix_hits, 0);
}

// Weights in int8 blocks.
class EngineInt8Test : public EngineTest {
 protected:
  EngineInt8Test() : EngineTest(StorageType::q8_0) {}
};

// With int8 weights the engine gives what a full forward with them gives, with and without adapters, the second time
// with a cached prefix. The result differs from that of unquantized weights.
TEST_P(EngineInt8Test, GreedyAndEmbeddingsEqualAFullForward) {
  const auto adapter = small_.adapter(4, 1);
  const std::vector<int32_t> prompt = small_.prompt(9, 11);
  EngineSettings s = settings(3, 64, 4);
  s.decoded = true;
  s.prefix_cache = true;
  Engine e = engine(s);
  Request states = request(prompt, 0);
  states.embed = true;
  const auto plain = request(prompt, 16), tuned = request(prompt, 16, &adapter->adapter);
  const std::vector<SampledToken> expected = small_.greedy(prompt, 16);
  for (int time = 0; time < 2; ++time) {
    const int64_t base = e.submit(plain), with = e.submit(tuned), embedded = e.submit(states);
    std::map<int64_t, Answer> found;
    std::vector<float> embedding;
    while (!e.idle()) {
      for (const Output& output : e.step()) {
        if (output.token) found[output.request].tokens.push_back(*output.token);
        if (output.request == embedded) embedding = output.embedding;
      }
    }
    EXPECT_EQ(found[base].ids(), ids_of(expected));
    EXPECT_EQ(found[with].ids(), ids_of(small_.greedy(prompt, 16, &adapter->adapter)));
    EXPECT_NE(found[with].ids(), found[base].ids());
    const std::vector<double> mean = small_.mean_state(prompt);
    ASSERT_EQ(embedding.size(), mean.size());
    double largest = 0;
    for (const double x : mean) largest = std::max(largest, std::abs(x));
    const double bound = tolerance(DType::f32, 7 * small_.spec().num_layers() * small_.ffn()) * largest;
    for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(embedding[i], mean[i], bound) << i;
  }
  EXPECT_EQ(e.counts().prefix_hits, 2 * 8);
  SmallModel stored(GetParam());
  EXPECT_NE(stored.greedy(prompt, 1).front().logprob, expected.front().logprob);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });
// The shape whose row sizes are multiples of 32.
INSTANTIATE_TEST_SUITE_P(Shapes, EngineInt8Test, testing::Values("a"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer

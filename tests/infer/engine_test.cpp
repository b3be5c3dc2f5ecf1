// The engine against a forward pass over everything, and against itself under other conditions.
#include "infer/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "tensor/tolerance.h"
#include "tests/infer/small_model.h"

namespace ingot::infer {
namespace {

struct Answer {
  std::vector<Choice> tokens;
  std::optional<Finish> finish;
  std::vector<int32_t> ids() const { return ids_of(tokens); }
};

// Runs until nothing is left, or `steps` steps.
void run(Engine& engine, std::map<int64_t, Answer>& answers, int64_t steps = 1 << 20) {
  for (int64_t step = 0; step < steps && !engine.idle(); ++step) {
    for (const Output& output : engine.step()) {
      Answer& answer = answers[output.request];
      EXPECT_FALSE(answer.finish) << "an output after the last";
      if (output.token) answer.tokens.push_back(*output.token);
      answer.finish = output.finish;
    }
  }
}

class EngineTest : public testing::TestWithParam<std::string> {
 protected:
  SmallModel small_{GetParam()};

  static EngineSettings settings(int64_t sequences, int64_t batch_tokens, int64_t page_tokens, int64_t pages = 0) {
    EngineSettings s;
    s.activation = DType::f32;
    s.context = context;
    s.sequences = sequences;
    s.batch_tokens = batch_tokens;
    s.page_tokens = page_tokens;
    s.pages = pages;
    s.adapter_rank = 8;
    return s;
  }
  Engine engine(const EngineSettings& s) {
    return Engine(small_.device, small_.registry, small_.threads, *small_.model, s);
  }
  static Request request(std::vector<int32_t> prompt, int64_t max_tokens, const nn::Adapter* adapter = nullptr) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.adapter = shared_adapter(adapter);
    return r;
  }
  // All at once in one engine; answers in the order of `requests`.
  std::vector<Answer> answers(const EngineSettings& s, const std::vector<Request>& requests) {
    Engine e = engine(s);
    std::vector<int64_t> names;
    for (const Request& r : requests) names.push_back(e.submit(r));
    std::map<int64_t, Answer> by_name;
    run(e, by_name);
    std::vector<Answer> all;
    for (int64_t name : names) all.push_back(by_name[name]);
    return all;
  }
  Answer answer(const EngineSettings& s, const Request& r) { return answers(s, {r}).front(); }

  static constexpr int64_t context = 48;
};

TEST_P(EngineTest, GreedyIsTheFullForward) {
  const double bound =
      tolerance(DType::f32, 7 * small_.spec().layers * std::max(small_.spec().vocab, small_.spec().ffn));
  std::set<std::vector<int32_t>> different;
  for (const int64_t length : {1, 5, 23}) {
    const std::vector<int32_t> prompt = small_.prompt(static_cast<uint64_t>(length), length);
    const std::vector<Choice> expected = small_.greedy(prompt, 20);
    const Answer found = answer(settings(1, 64, 16), request(prompt, 20));
    ASSERT_EQ(found.ids(), ids_of(expected)) << "prompt of " << length;
    EXPECT_EQ(found.finish, Finish::length);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found.tokens[i].logprob / expected[i].logprob, 1, bound) << "token " << i;
    }
    different.insert(found.ids());
  }
  EXPECT_EQ(different.size(), 3U) << "the prompts make no difference: nothing was tested";
}

// Alone or among others, the prompt whole or in pieces, pages of any size, pages so few that sequences are thrown out
// and filled anew: the same tokens.
TEST_P(EngineTest, TokensDoNotDependOnCompany) {
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
  // The last three: every sequence ends with 32 tokens or more, so four do not fit into one's 48 tokens of pages.
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

// The case of too few pages does what it is there for: all four run at first, and cannot go on together.
TEST_P(EngineTest, FewPagesThrowTheLastComerOut) {
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

TEST_P(EngineTest, AdaptersAndBaseMixInABatch) {
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

TEST_P(EngineTest, SeedsDecideWhatIsDrawn) {
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
  // 36 tokens of 48 at the end, three times over: they take turns in the cache.
  EXPECT_EQ(answers(settings(3, 16, 4, 12), {drawn(1), drawn(2), drawn(1)})[1].ids(), together[1].ids());
}

TEST_P(EngineTest, StopIdsEndTheAnswerBeforeThem) {
  const std::vector<int32_t> prompt = small_.prompt(4, 6);
  Request r = request(prompt, 20);
  r.sampling.temperature = 1;  // variety
  r.sampling.seed = 5;
  const std::vector<int32_t> whole = answer(settings(1, 64, 16), r).ids();
  const int32_t stop = whole[10];
  const auto first = std::find(whole.begin(), whole.end(), stop);
  r.stop_ids = {-7, stop};
  const Answer found = answer(settings(1, 64, 16), r);
  EXPECT_EQ(found.finish, Finish::stop);
  EXPECT_EQ(found.ids(), std::vector<int32_t>(whole.begin(), first));
}

TEST_P(EngineTest, LengthEndsAtMaxTokensOrTheContext) {
  const std::vector<int32_t> prompt = small_.prompt(4, 40);
  const Answer asked = answer(settings(1, 64, 16), request(prompt, 3));
  EXPECT_EQ(asked.tokens.size(), 3U);
  EXPECT_EQ(asked.finish, Finish::length);
  const Answer full = answer(settings(1, 64, 16), request(prompt, 1000));
  EXPECT_EQ(full.tokens.size(), static_cast<size_t>(context - 40));
  EXPECT_EQ(full.finish, Finish::length);
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
  e.cancel(12345);  // nobody's
  run(e, found);
  EXPECT_EQ(found[running].finish, Finish::cancelled);
  EXPECT_LT(found[running].tokens.size(), 30U);
  EXPECT_EQ(found[waiting].finish, Finish::cancelled);
  EXPECT_TRUE(found[waiting].tokens.empty());
  EXPECT_EQ(found[other].finish, Finish::length);
  EXPECT_EQ(found[other].ids(), ids_of(small_.greedy(prompt, 20)));
  EXPECT_TRUE(e.idle());
  EXPECT_TRUE(e.step().empty());
  // Their pages are free again: two whole contexts fit.
  std::map<int64_t, Answer> more;
  e.submit(request(small_.prompt(5, 40), 1000));
  e.submit(request(small_.prompt(6, 40), 1000));
  run(e, more);
  EXPECT_EQ(more.size(), 2U);
}

// Allows the given tokens one after another, each with a decoy, then ends.
class Script : public TokenMask {
 public:
  Script(std::vector<int32_t> ids, int32_t decoy) : ids_(std::move(ids)), decoy_(decoy) {}
  void fill(std::span<uint32_t> bits) override {
    std::fill(bits.begin(), bits.end(), 0U);
    for (const int32_t id : {ids_.at(place_), decoy_}) {
      bits[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
    }
  }
  void accept(int32_t id) override {
    EXPECT_TRUE(id == ids_.at(place_) || id == decoy_) << id;
    ++place_;
  }
  void rollback(int64_t tokens) override { place_ -= static_cast<size_t>(tokens); }
  bool finished() const override { return place_ == ids_.size(); }

 private:
  std::vector<int32_t> ids_;
  int32_t decoy_;
  size_t place_ = 0;
};

TEST_P(EngineTest, AMaskDecidesWhatMayComeAndWhenItEnds) {
  const std::vector<int32_t> prompt = small_.prompt(6, 7);
  const std::vector<int32_t> only = {5, 9, 5, 11, 2};
  Request forced = request(prompt, 30);
  forced.mask = std::make_shared<Script>(only, 5);
  forced.sampling.logit_bias = {{9, 100}, {11, 100}, {2, 100}};
  Request open = request(prompt, 30);
  const std::vector<Answer> found = answers(settings(2, 64, 4), {forced, open});
  EXPECT_EQ(found[0].ids(), only);
  EXPECT_EQ(found[0].finish, Finish::stop);
  EXPECT_EQ(found[1].ids(), ids_of(small_.greedy(prompt, 30)));
}

// A stop id that the mask allows ends the answer before it.
TEST_P(EngineTest, AStopIdEndsAMaskedAnswer) {
  Request r = request(small_.prompt(6, 7), 30);
  r.mask = std::make_shared<Script>(std::vector<int32_t>{5, 9, 3}, 5);
  r.sampling.logit_bias = {{9, 100}};
  r.stop_ids = {9};
  const Answer found = answer(settings(1, 64, 4), r);
  EXPECT_EQ(found.ids(), std::vector<int32_t>{5});
  EXPECT_EQ(found.finish, Finish::stop);
}

TEST_P(EngineTest, LogitsThatAreNotNumbersFailTheirRequestAlone) {
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
  EXPECT_EQ(found[bad].finish, Finish::failed);
  EXPECT_TRUE(found[bad].tokens.empty());
  EXPECT_NE(errors[bad].find("not a number"), std::string::npos) << errors[bad];
  EXPECT_EQ(found[embedded].finish, Finish::failed);
  EXPECT_EQ(errors.size(), 2U);
  EXPECT_EQ(found[good].finish, Finish::length);
  EXPECT_EQ(found[good].ids(), ids_of(small_.greedy(prompt, 12)));
}

TEST_P(EngineTest, DeadlinesEndRequests) {
  const auto now = std::chrono::steady_clock::now();
  Request late = request(small_.prompt(1, 5), 10), soon = late;
  late.deadline = now - std::chrono::hours(1);
  soon.deadline = now + std::chrono::hours(1);
  const std::vector<Answer> found = answers(settings(2, 64, 4), {late, soon});
  EXPECT_EQ(found[0].finish, Finish::deadline);
  EXPECT_TRUE(found[0].tokens.empty());
  EXPECT_EQ(found[1].finish, Finish::length);
  EXPECT_EQ(found[1].tokens.size(), 10U);
}

// An urgent request takes the only place; the one thrown out goes on later and says the same.
TEST_P(EngineTest, PriorityTakesThePlaceOfALowerOne) {
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

// The mean of the final norm's output, whatever pieces the prompt is filled in and whoever else is in the batch.
TEST_P(EngineTest, EmbeddingsAreMeansOfTheFinalStates) {
  const std::vector<int32_t> prompt = small_.prompt(12, 23);
  const std::vector<double> expected = small_.mean_state(prompt);
  const double bound = tolerance(DType::f32, 7 * small_.spec().layers * small_.spec().ffn);
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
        EXPECT_EQ(output.finish, Finish::stop);
        found = output.embedding;
      }
    }
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], bound * largest) << i;
  }
}

// A conversation's next turn finds the turns before it, and says what it says without; others' prompts, other salts and
// other adapters find nothing.
TEST_P(EngineTest, PrefixesAreFoundAndChangeNothing) {
  const auto weights = small_.adapter(4, 1);
  const auto own = shared_adapter(&weights->adapter);
  EngineSettings s = settings(2, 16, 4);
  s.prefix_cache = true;
  Engine e = engine(s);
  const std::vector<int32_t> prompt = small_.prompt(31, 18);
  const auto ask = [&](std::vector<int32_t> ids, int64_t cached, uint64_t salt = 0,
                       const std::shared_ptr<const HostAdapter>& with = nullptr) {
    Request r = request(ids, 6);
    r.cache_salt = salt;
    r.adapter = with;
    const int64_t name = e.submit(r);
    std::vector<Choice> tokens;
    bool first = true;
    while (!e.idle()) {
      for (const Output& output : e.step()) {
        EXPECT_EQ(output.request, name);
        if (first) EXPECT_EQ(output.cached_tokens, cached);
        first = false;
        if (output.token) tokens.push_back(*output.token);
      }
    }
    const std::vector<int32_t> expected = ids_of(small_.greedy(ids, 6, with ? &with->weights : nullptr));
    EXPECT_EQ(ids_of(tokens), expected);
    ids.insert(ids.end(), expected.begin(), expected.end());
    return ids;
  };
  std::vector<int32_t> text = ask(prompt, 0);
  ask(prompt, 16);
  text.push_back(1);
  ask(text, 20);  // 18 + 6 tokens, the last of which was not computed: five full pages
  ask(prompt, 0, 7);
  ask(prompt, 0, 0, own);
  ask(prompt, 16, 0, own);
  ask(small_.prompt(32, 18), 0);
  EXPECT_EQ(e.counts().prefix_hits, 16 + 20 + 16);
  EXPECT_EQ(e.counts().used_pages, 0);
  // What is kept gives way to what is needed.
  for (uint64_t i = 0; i < 6; ++i) ask(small_.prompt(40 + i, 40), 0);
  ask(prompt, 0);
}

// Sampled text that repeats itself, with and without guesses, alone and among others, under a mask, with penalties.
TEST_P(EngineTest, GuessesChangeNothing) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 4; ++i) {
    std::vector<int32_t> prompt;
    for (int n = 0; n < 3; ++n) {
      for (const int32_t id : small_.prompt(60 + i, 4)) prompt.push_back(id);
    }
    Request r = request(prompt, 30);
    r.sampling.temperature = i % 2 == 0 ? 0 : 0.3;
    r.sampling.seed = i;
    if (i == 2) r.sampling.logit_bias = {{prompt[0], 50}, {prompt[1], 49.5}};
    if (i == 2) r.sampling.frequency_penalty = 0.25;
    requests.push_back(r);
  }
  const auto masked = [&] {
    Request r = requests[0];
    std::vector<int32_t> script;
    for (int n = 0; n < 9; ++n) script.insert(script.end(), {5, 9, 11});
    r.mask = std::make_shared<Script>(script, 5);
    r.sampling.logit_bias = {{9, 100}, {11, 100}};
    return r;
  };
  const auto all = [&] {
    std::vector<Request> with_mask = requests;
    with_mask.push_back(masked());
    return with_mask;
  };
  const std::vector<Answer> plain = answers(settings(5, 64, 4), all());
  for (const int64_t batch_tokens : {64, 7}) {
    EngineSettings s = settings(5, batch_tokens, 4, 40);
    s.guesses = 5;
    s.prefix_cache = true;
    Engine e = engine(s);
    std::vector<int64_t> names;
    for (const Request& r : all()) names.push_back(e.submit(r));
    std::map<int64_t, Answer> found;
    run(e, found);
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(found[names[i]].ids(), plain[i].ids()) << i;
      EXPECT_EQ(found[names[i]].finish, plain[i].finish) << i;
    }
    if (batch_tokens == 64) EXPECT_GT(e.counts().guessed_right, 20);
    EXPECT_GT(e.counts().guessed, e.counts().guessed_right);
    EXPECT_EQ(e.counts().used_pages, 0);
  }
}

// One slot for three adapters: they take turns, and nobody gets another's weights.
TEST_P(EngineTest, AdaptersTakeTurnsInSlots) {
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

// One slot, and requests for one adapter without end: who asked for another comes to its turn.
TEST_P(EngineTest, ASlotIsNotKeptByAStreamOfRequests) {
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

// In bf16, where sums of another order are other numbers: the bits of log-probabilities alone, among 64 others, filled
// in pieces, after being thrown out, behind a found prefix, and with guesses.
TEST_P(EngineTest, LogitsHaveTheSameBitsInAnyCompany) {
  SmallModel model(GetParam(), DType::bf16);
  const auto weights = model.adapter(4, 1, DType::bf16);
  const std::vector<int32_t> prompt = model.prompt(3, 21);
  const auto own = shared_adapter(&weights->adapter);
  const auto logprobs = [&](EngineSettings s, int64_t others, int64_t times,
                            const std::shared_ptr<const HostAdapter>& with) {
    s.activation = DType::bf16;
    Engine e(model.device, model.registry, model.threads, *model.model, s);
    std::vector<float> last;
    for (int64_t time = 0; time < times; ++time) {
      int64_t name = 0;
      for (int64_t i = 0; i <= others; ++i) {
        Request r = request(i == others ? prompt : model.prompt(static_cast<uint64_t>(100 + i), 1 + i % 30), 16);
        if (i == others || i % 3 == 0) r.adapter = with;
        const int64_t given = e.submit(r);
        if (i == others) name = given;
      }
      std::map<int64_t, Answer> found;
      run(e, found);
      last.clear();
      for (const Choice& choice : found[name].tokens) {
        last.push_back(static_cast<float>(choice.id));
        last.push_back(choice.logprob);
      }
    }
    return last;
  };
  for (const auto& with : {std::shared_ptr<const HostAdapter>(), own}) {
    const std::vector<float> alone = logprobs(settings(1, 64, 4), 0, 1, with);
    ASSERT_EQ(alone.size(), 32U);
    EXPECT_EQ(logprobs(settings(65, 128, 4), 64, 1, with), alone);
    EXPECT_EQ(logprobs(settings(1, 5, 4), 0, 1, with), alone);
    EXPECT_EQ(logprobs(settings(3, 64, 4, 13), 2, 1, with), alone);
    EngineSettings found = settings(2, 64, 4);
    found.prefix_cache = true;
    EXPECT_EQ(logprobs(found, 1, 2, with), alone);
    found.guesses = 4;
    EXPECT_EQ(logprobs(found, 1, 2, with), alone);
  }
}

TEST_P(EngineTest, WrongRequestsAreRefusedAndHarmNobody) {
  Engine e = engine(settings(1, 16, 4));
  const auto wide = small_.adapter(9, 1);
  const auto refused = [&](Request r, const char* word) {
    try {
      e.submit(std::move(r));
      ADD_FAILURE() << "taken, where '" << word << "' was expected";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.message();
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    }
  };
  refused(request({}, 1), "no tokens");
  refused(request({1}, 0), "max_tokens");
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

TEST_P(EngineTest, SettingsThatContradictAreRefused) {
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

// What engine_bytes says is what is taken, nothing is taken later, and it is enough at the limits: batches full of one
// prompt, full of decoding sequences, adapters of the largest rank, weights that are decoded as they are used.
TEST_P(EngineTest, MemoryIsWhatEngineBytesSays) {
  for (const auto& [weights, activation] : {std::pair{DType::f32, DType::f32},
                                            {DType::bf16, DType::bf16},
                                            {DType::bf16, DType::f32},
                                            {DType::f16, DType::f16}}) {
    SmallModel model(GetParam(), weights);
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
        e.submit(request(model.prompt(i, 40), 1000, i % 2 ? &adapter->adapter : nullptr));
      }
      std::map<int64_t, Answer> found;
      run(e, found);
      for (const auto& [name, answer] : found) EXPECT_EQ(answer.tokens.size(), 8U) << name;
      EXPECT_EQ(model.device.allocated() - before, bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
    }
  }
}

// A device whose memory the host does not see keeps adapters' weights in its slots.
TEST_P(EngineTest, SlotsOfADeviceThatTheHostDoesNotSeeAreCounted) {
  CountingDevice hidden(false);
  const EngineSettings s = settings(3, 8, 16);
  const Engine e(hidden, small_.registry, small_.threads, *small_.model, s);
  const EngineBytes bytes = engine_bytes(small_.spec(), s, small_.threads.threads(), false);
  EXPECT_EQ(hidden.allocated(), bytes.kv + bytes.scratch + bytes.batch + bytes.adapters);
  EXPECT_GT(bytes.adapters, engine_bytes(small_.spec(), s, small_.threads.threads(), true).adapters);
}

TEST_P(EngineTest, WithoutAContextTheModelsIsCounted) {
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

INSTANTIATE_TEST_SUITE_P(Shapes, EngineTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer

// The engine with token masks and with speculative drafts, which masks may forbid.
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <stdexcept>

#include "infer/engine.h"
#include "tests/infer/engine_fixture.h"

namespace ingot::infer {
namespace {

class EngineMaskTest : public EngineTest {};

// Allows the given tokens one after another, each beside another token, then ends.
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

TEST_P(EngineMaskTest, AMaskRestrictsTokensAndEndsTheAnswer) {
  const std::vector<int32_t> prompt = small_.prompt(6, 7);
  const std::vector<int32_t> only = {5, 9, 5, 11, 2};
  Request forced = request(prompt, 30);
  forced.mask = std::make_shared<Script>(only, 5);
  forced.sampling.logit_bias = {{9, 100}, {11, 100}, {2, 100}};
  Request open = request(prompt, 30);
  const std::vector<Answer> found = answers(settings(2, 64, 4), {forced, open});
  EXPECT_EQ(found[0].ids(), only);
  EXPECT_EQ(found[0].finish, FinishReason::stop);
  EXPECT_EQ(found[1].ids(), ids_of(small_.greedy(prompt, 30)));
}

// A stop id that the mask allows ends the answer first.
TEST_P(EngineMaskTest, AStopIdEndsAMaskedAnswer) {
  Request r = request(small_.prompt(6, 7), 30);
  r.mask = std::make_shared<Script>(std::vector<int32_t>{5, 9, 3}, 5);
  r.sampling.logit_bias = {{9, 100}};
  r.stop_ids = {9};
  const Answer found = answer(settings(1, 64, 4), r);
  EXPECT_EQ(found.ids(), std::vector<int32_t>{5});
  EXPECT_EQ(found.finish, FinishReason::stop);
}

// Allows every token until it throws.
class Broken : public TokenMask {
 public:
  enum class Where { fill, accept };
  Broken(Where where, std::function<void()> fail) : where_(where), fail_(std::move(fail)) {}
  void fill(std::span<uint32_t> bits) override {
    if (where_ == Where::fill) fail_();
    std::fill(bits.begin(), bits.end(), ~uint32_t{0});
  }
  void accept(int32_t) override {
    if (where_ == Where::accept) fail_();
  }
  void rollback(int64_t) override {}
  bool finished() const override { return false; }

 private:
  Where where_;
  std::function<void()> fail_;
};

// An exception of a mask ends its own request only. A grammar beyond its limits is the request's fault; a lack of
// memory is temporary.
TEST_P(EngineMaskTest, AFailureOfAMaskKeepsItsErrorKind) {
  const std::pair<std::function<void()>, ErrorKind> failures[] = {
      {[] { throw Error(ErrorKind::unsupported, "no such grammar"); }, ErrorKind::internal},
      {[] { throw Error(ErrorKind::resource, "too many steps"); }, ErrorKind::usage},
      {[] { throw std::bad_alloc(); }, ErrorKind::unavailable},
      {[] { throw std::runtime_error("something else"); }, ErrorKind::internal}};
  const std::vector<int32_t> prompt = small_.prompt(6, 7);
  for (const auto& [fail, kind] : failures) {
    for (const Broken::Where where : {Broken::Where::fill, Broken::Where::accept}) {
      Request broken = request(prompt, 5);
      broken.mask = std::make_shared<Broken>(where, fail);
      const std::vector<Answer> found = answers(settings(2, 64, 4), {broken, request(prompt, 5)});
      EXPECT_EQ(found[0].finish, FinishReason::failed);
      EXPECT_EQ(found[0].kind, kind) << found[0].error;
      EXPECT_FALSE(found[0].error.empty());
      EXPECT_EQ(found[1].ids(), ids_of(small_.greedy(prompt, 5)));
    }
  }
}

// Repetitive sampled text with and without speculative drafts, alone and in a batch, with a mask, and with penalties.
TEST_P(EngineMaskTest, DraftsChangeNothing) {
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
    if (i == 3) r.sampling.repetition_penalty = 1.1;
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
    s.draft_tokens = 5;
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
    if (batch_tokens == 64) EXPECT_GT(e.counts().accepted_tokens, 20);
    EXPECT_GT(e.counts().drafted_tokens, e.counts().accepted_tokens);
    EXPECT_EQ(e.counts().used_pages, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineMaskTest, testing::Values("a", "b", "c"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::infer

// Every family with the paged KV cache: chunked prefill and then decoding token by token, compared with one full
// forward pass; on one device and on tensor-parallel ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tensor/tolerance.h"
#include "tests/train/small_run.h"
#include "train/initialise.h"

namespace ingot::models {
namespace {

constexpr int64_t page = 4;

// A random model for inference, or this rank's part of it, and the pages of one sequence.
class Server {
 public:
  explicit Server(const spec::ModelSpec& whole, const comm::Group& tp = {}) : tp_{tp} {
    cpu::register_ops(registry_);
    const spec::ModelShard part{.tp = tp.size(), .tp_rank = tp.rank()};
    weights_ = train::random_weights(device_, whole, DType::f32, 11, spec::held_parameters(whole, part));
    model_ = make_model(whole, weights_, device_, part);
    spec_ = model_->spec();
    const spec::ModelSpec& spec = spec_;
    PassShape shape;
    shape.tp = tp.size();
    shape.tokens = shape.longest = shape.logit_rows = spec.context;
    shape.threads = threads_.threads();
    scratch_ = Arena(device_, pass_bytes(spec, shape).forward, "scratch");
    const int64_t pages = (spec.context + page - 1) / page;
    for (int64_t p = pages; p-- > 0;) table_.push_back(static_cast<int32_t>(p));  // in reverse order
    pages_ = Arena(device_, spec::kv_bytes(spec, pages, page, 4), "pages");
    for (const spec::LayerSpec& layer : spec.layers) {
      const spec::CacheEntry entry = layer.attention.cache_entry();
      const Tensor k = pages_.allocate(DType::f32, Shape{pages, page, entry.keys});
      cache_.layers.push_back({k, pages_.allocate(DType::f32, Shape{pages, page, entry.values})});
    }
  }

  // Logits [n, V] of ids[begin .. end). With `cached`, the first `begin` ids are already in the cache.
  std::vector<float> logits(const std::vector<int32_t>& ids, int64_t begin, int64_t end, bool cached) {
    const std::vector<int32_t> own(ids.begin() + begin, ids.begin() + end);
    const int64_t tokens = end - begin;
    std::vector<int32_t> positions(own.size());
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
    const std::vector<int32_t> offsets = {0, static_cast<int32_t>(tokens)};
    const std::vector<int32_t> lengths = {static_cast<int32_t>(end)};
    std::vector<int32_t> slots;
    for (const int32_t p : positions) {
      slots.push_back(table_[static_cast<size_t>(p / page)] * static_cast<int32_t>(page) +
                      p % static_cast<int32_t>(page));
    }
    const nn::TokenBatch batch{view_of(own, device_), view_of(positions, device_), view_of(offsets, device_)};
    ops::Context context{device_, registry_, scratch_, &threads_};
    nn::Pass pass{context, batch, DType::f32, {}};
    pass.tp = tp_;
    if (cached) {
      cache_.slots = view_of(slots, device_);
      cache_.layout = {batch.offsets, view_of(lengths, device_),
                       view_of(table_, device_).reshape(Shape{1, static_cast<int64_t>(table_.size())})};
      pass.cache = &cache_;
    }
    const Buffer normed(device_, static_cast<size_t>(tokens * spec_.hidden) * 4);
    const Buffer scores(device_, static_cast<size_t>(tokens * spec_.vocab) * 4);
    const Tensor hidden = normed.view(DType::f32, Shape{tokens, spec_.hidden});
    const Tensor out = scores.view(DType::f32, Shape{tokens, spec_.vocab});
    model_->forward(pass, hidden);
    model_->logits(pass, out, hidden);
    return train::floats(out);
  }

 private:
  nn::TensorParallel tp_;
  spec::ModelSpec spec_;
  CountingDevice device_;
  ops::Registry registry_;
  ThreadPool threads_{2};
  WeightSet weights_;
  std::unique_ptr<Model> model_;
  Arena scratch_;
  Arena pages_;
  nn::KvCache cache_;
  std::vector<int32_t> table_;
};

class Serve : public testing::TestWithParam<FamilyCase> {};

std::vector<int32_t> ids_for(const spec::ModelSpec& spec) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 21; ++i) ids.push_back((i * i * 5 + 3 * i + 7) % static_cast<int32_t>(spec.vocab));
  return ids;
}

// A prefill in chunks, then token by token.
void expect_decoding(Server& server, const spec::ModelSpec& spec, const std::vector<float>& expected) {
  const std::vector<int32_t> ids = ids_for(spec);
  const int64_t length = std::ssize(ids);
  std::vector<float> found;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 7}, {7, 9}, {9, 15}}) {
    const std::vector<float> piece = server.logits(ids, begin, end, true);
    found.insert(found.end(), piece.begin(), piece.end());
  }
  for (int64_t t = 15; t < length; ++t) {
    const std::vector<float> one = server.logits(ids, t, t + 1, true);
    found.insert(found.end(), one.begin(), one.end());
  }
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  const int64_t terms = spec::longest_row(spec) * 7 * spec.num_layers();
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance(DType::f32, terms) * largest) << "token " << i / 40;
  }
}

TEST_P(Serve, DecodingEqualsAFullForward) {
  const spec::ModelSpec& spec = GetParam().spec;
  Server server(spec);
  const std::vector<int32_t> ids = ids_for(spec);
  expect_decoding(server, spec, server.logits(ids, 0, std::ssize(ids), false));
}

TEST_P(Serve, TensorParallelRanksDecodeAsOneDevice) {
  const spec::ModelSpec& spec = GetParam().spec;
  if (!can_be_cut(spec, {.tp = 2})) {
    EXPECT_THROW(spec::check(spec, {.tp = 2}), Error);
    return;
  }
  const std::vector<int32_t> ids = ids_for(spec);
  const std::vector<float> expected = Server(spec).logits(ids, 0, std::ssize(ids), false);
  for (const int ranks : {2, 4}) {
    if (!can_be_cut(spec, {.tp = ranks})) continue;
    comm::run_in_process({.ranks = ranks, .timeout_s = 60}, [&](const comm::Group& tp) {
      Server server(spec, tp);
      expect_decoding(server, spec, expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Serve, testing::ValuesIn(family_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::models

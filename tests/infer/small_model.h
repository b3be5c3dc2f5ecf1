// Shared by the engine's tests: a golden llama on a device that counts bytes, random adapters for it, and greedy
// decoding by full forward passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/load.h"
#include "infer/engine.h"
#include "models/divided_model.h"
#include "ops/registry.h"
#include "tests/counting_device.h"

namespace ingot::infer {

// A random adapter of every linear layer and of an untied head. It owns its weights.
struct RandomAdapter {
  Arena arena;
  nn::Adapter adapter;
};

// tests/golden/llama/SHAPE with matrices stored as `matrices`. `visible`: whether the host can access the
// CountingDevice's memory; `greedy` and `mean_state` need that. `ranks`: that have the model together.
struct SmallModel {
  CountingDevice device;
  ops::Registry registry;
  ThreadPool threads{2};
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::InferenceModel> model;

  explicit SmallModel(const std::string& shape, StorageType matrices = StorageType::f32, bool visible = true,
                      const models::ModelRanks& ranks = {});

  const spec::ModelSpec& spec() const { return loaded.spec; }
  // The MLP's hidden size.
  int64_t ffn() const { return spec::dense_of(spec().layers.front().mlp).features; }
  // `length` ids that depend on `seed`.
  std::vector<int32_t> prompt(uint64_t seed, int64_t length) const;
  std::unique_ptr<RandomAdapter> adapter(int64_t rank, uint64_t seed, DType type = DType::f32);

  // The most likely tokens, each computed by a forward pass over all tokens before it: without cache and batching.
  std::vector<SampledToken> greedy(std::vector<int32_t> ids, int64_t count, const nn::Adapter* adapter = nullptr);
  // Log-probabilities of ids[1], ids[2], ... given the tokens before them, each with the `top` most likely tokens, from
  // one forward pass.
  std::vector<SampledToken> known(const std::vector<int32_t>& ids, int64_t top, const nn::Adapter* adapter = nullptr);
  // The mean over all tokens of the final norm's output, [hidden].
  std::vector<double> mean_state(const std::vector<int32_t>& ids);

 private:
  struct Run;  // one forward pass over whole sequences
};

std::vector<int32_t> ids_of(const std::vector<SampledToken>& choices);

}  // namespace ingot::infer

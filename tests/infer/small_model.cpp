#include "tests/infer/small_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "backend/cpu/cpu_device.h"
#include "base/half.h"
#include "base/philox.h"
#include "checkpoint/row_codec.h"
#include "spec/lora.h"
#include "tests/locations.h"

namespace ingot::infer {

SmallModel::SmallModel(const std::string& shape, StorageType matrices, bool visible, const models::ModelRanks& ranks)
    : device(visible) {
  cpu::register_ops(registry);
  const std::filesystem::path folder = std::filesystem::path(test_data) / "llama" / shape;
  checkpoint::LoadOptions options{device};
  options.storage.matrices = matrices;
  const spec::ModelShard shard{.tp = ranks.tp.group.size(),
                               .tp_rank = ranks.tp.group.rank(),
                               .pp = ranks.stages.size(),
                               .stage = ranks.stages.rank()};
  options.shards = {shard};
  loaded = checkpoint::load_model(checkpoint::open_model(folder.string()), options);
  model = models::make_model(loaded.spec, loaded.weights, device, shard);
  if (ranks.all.size() > 1) model = std::make_unique<models::DividedModel>(std::move(model), ranks);
}

std::vector<int32_t> SmallModel::prompt(uint64_t seed, int64_t length) const {
  RandomStream random(seed, 77);
  std::vector<int32_t> ids(static_cast<size_t>(length));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(spec().vocab)));
  return ids;
}

std::unique_ptr<RandomAdapter> SmallModel::adapter(int64_t rank, uint64_t seed, DType type) {
  const std::vector<spec::LoraParam> layers = spec::lora_parameters(
      spec(), {.rank = rank, .alpha = static_cast<double>(rank), .targets = spec::lora_targets(spec())});
  size_t bytes = 0;
  for (const spec::LoraParam& p : layers) {
    bytes += Arena::footprint(type, Shape{p.rank, p.in}) + Arena::footprint(type, Shape{p.out, p.rank});
  }
  auto made = std::make_unique<RandomAdapter>();
  made->arena = Arena(device, bytes, "adapter");
  made->adapter.layers.resize(loaded.weights.parameters.size());
  RandomStream random(seed, rank);
  const auto fill = [&](Shape shape) {
    const Tensor tensor = made->arena.allocate(type, shape);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const float value = static_cast<float>(random.normal()) * 0.3F;
      if (type == DType::f32) {
        tensor.as<float>()[i] = value;
      } else {
        tensor.as<uint16_t>()[i] = type == DType::bf16 ? float_to_bf16(value) : float_to_f16(value);
      }
    }
    return tensor;
  };
  for (const spec::LoraParam& p : layers) {
    nn::LoraWeights& layer = made->adapter.layers[p.base];
    layer.a = fill(Shape{p.rank, p.in});
    layer.b = fill(Shape{p.out, p.rank});
  }
  return made;
}

struct SmallModel::Run {
  Buffer normed, scores;
  Tensor hidden, logits;

  Run(SmallModel& small, const std::vector<int32_t>& ids, const nn::Adapter* adapter) {
    const int64_t tokens = static_cast<int64_t>(ids.size());
    models::PassShape shape;
    shape.tokens = tokens;
    shape.longest = tokens;
    shape.logit_rows = tokens;
    shape.adapter_rank = 64;
    shape.decoded = true;
    shape.threads = small.threads.threads();
    Arena scratch(small.device, models::pass_bytes(small.spec(), shape).forward, "scratch");
    ops::Context context{small.device, small.registry, scratch, &small.threads};
    std::vector<int32_t> places(ids.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
    const std::vector<int32_t> offsets = {0, static_cast<int32_t>(tokens)};
    const nn::TokenBatch batch{view_of(ids, small.device), view_of(places, small.device),
                               view_of(offsets, small.device)};
    nn::Pass pass{context, batch, DType::f32, {}};
    if (adapter) pass.adapters.push_back({0, tokens, adapter});
    normed = Buffer(small.device, static_cast<size_t>(tokens * small.spec().hidden) * 4);
    scores = Buffer(small.device, static_cast<size_t>(tokens * small.spec().vocab) * 4);
    hidden = normed.view(DType::f32, Shape{tokens, small.spec().hidden});
    logits = scores.view(DType::f32, Shape{tokens, small.spec().vocab});
    small.model->forward(pass, hidden);
    small.model->logits(pass, logits, hidden);
  }
};

std::vector<SampledToken> SmallModel::greedy(std::vector<int32_t> ids, int64_t count, const nn::Adapter* adapter) {
  std::vector<SampledToken> choices;
  for (int64_t n = 0; n < count; ++n) {
    const Run run(*this, ids, adapter);
    const float* last = run.logits.as<float>() + (std::ssize(ids) - 1) * spec().vocab;
    const float* highest = std::max_element(last, last + spec().vocab);
    double sum = 0;
    for (const float* l = last; l != last + spec().vocab; ++l) sum += std::exp(static_cast<double>(*l));
    const int32_t id = static_cast<int32_t>(highest - last);
    choices.push_back({id, static_cast<float>(static_cast<double>(*highest) - std::log(sum)), {}});
    ids.push_back(id);
  }
  return choices;
}

std::vector<SampledToken> SmallModel::known(const std::vector<int32_t>& ids, int64_t top, const nn::Adapter* adapter) {
  const Run run(*this, ids, adapter);
  std::vector<SampledToken> choices;
  for (size_t t = 1; t < ids.size(); ++t) {
    const float* row = run.logits.as<float>() + (static_cast<int64_t>(t) - 1) * spec().vocab;
    double sum = 0;
    for (const float* l = row; l != row + spec().vocab; ++l) sum += std::exp(static_cast<double>(*l));
    std::vector<TokenLogprob> all;
    for (int32_t id = 0; id < spec().vocab; ++id) {
      all.push_back({id, static_cast<float>(static_cast<double>(row[id]) - std::log(sum))});
    }
    SampledToken& choice = choices.emplace_back();
    choice.id = ids[t];
    choice.logprob = all[static_cast<size_t>(ids[t])].logprob;
    std::sort(all.begin(), all.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
      return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
    });
    choice.top.assign(all.begin(), all.begin() + top);
  }
  return choices;
}

std::vector<double> SmallModel::mean_state(const std::vector<int32_t>& ids) {
  const Run run(*this, ids, nullptr);
  std::vector<double> mean(static_cast<size_t>(spec().hidden));
  for (int64_t i = 0; i < run.hidden.elements(); ++i) {
    mean[static_cast<size_t>(i % spec().hidden)] +=
        static_cast<double>(run.hidden.as<float>()[i]) / static_cast<double>(std::ssize(ids));
  }
  return mean;
}

std::vector<int32_t> ids_of(const std::vector<SampledToken>& choices) {
  std::vector<int32_t> ids;
  for (const SampledToken& choice : choices) ids.push_back(choice.id);
  return ids;
}

}  // namespace ingot::infer

#include "data/streaming_order.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/json.h"

namespace ingot::data {

namespace {

constexpr const char* initial_key = "initial_physical_nodes";

int64_t whole_number(const nlohmann::ordered_json& state, const char* key, const std::string& source) {
  const auto found = state.find(key);
  if (found == state.end()) throw_error(ErrorKind::corrupt, "{}: the state has no \"{}\"", source, key);
  if (!found->is_number_unsigned() || !std::in_range<int64_t>(found->get<uint64_t>())) {
    throw_error(ErrorKind::corrupt, "{}: the state's \"{}\" is not a whole number", source, key);
  }
  return found->get<int64_t>();
}

}  // namespace

std::string streaming_state_json(const StreamingState& state) {
  nlohmann::json json = {{"epoch", state.epoch},
                         {"sample_in_epoch", state.sample_in_epoch},
                         {"num_canonical_nodes", state.canonical_nodes},
                         {"shuffle_seed", state.seed}};
  if (state.initial_nodes) json[initial_key] = *state.initial_nodes;
  return json.dump();
}

StreamingState parse_streaming_state(std::string_view text, const std::string& source) {
  nlohmann::ordered_json json;
  try {
    json = parse_json_object(text);
  } catch (const Error& error) {
    throw_error(error.kind(), "{}: {}", source, error.message());
  }
  StreamingState state;
  state.epoch = whole_number(json, "epoch", source);
  state.sample_in_epoch = whole_number(json, "sample_in_epoch", source);
  state.canonical_nodes = whole_number(json, "num_canonical_nodes", source);
  state.seed = static_cast<uint64_t>(whole_number(json, "shuffle_seed", source));
  const auto initial = json.find(initial_key);
  if (initial != json.end() && !initial->is_null()) state.initial_nodes = whole_number(json, initial_key, source);
  return state;
}

StreamingOrder::StreamingOrder(std::vector<StreamingStream> streams, const StreamingSettings& settings)
    : streams_(std::move(streams)),
      settings_(settings),
      choices_(streaming_choices(streams_, settings.epoch_size, settings.seed)),
      epoch_size_(std::accumulate(choices_.begin(), choices_.end(), int64_t{0})) {}

int64_t StreamingOrder::num_samples() const {
  int64_t number = 0;
  for (const StreamingStream& stream : streams_) number += stream.num_samples();
  return number;
}

int64_t StreamingOrder::canonical_nodes(int64_t nodes) const {
  if (settings_.canonical_nodes) return *settings_.canonical_nodes;
  const bool many = settings_.algorithm == StreamingShuffle::py1s || settings_.algorithm == StreamingShuffle::py2s;
  return many ? 64 * nodes : nodes;
}

StreamingState StreamingOrder::begin(const StreamingWorld& world) const {
  return {0, 0, canonical_nodes(world.nodes), settings_.seed, world.nodes};
}

WorkerSamples StreamingOrder::work(const StreamingWorld& world, int64_t batch, const StreamingState& state) const {
  const bool reseed = settings_.shuffle && settings_.sampling == StreamingSampling::balanced;
  const StreamingSamples chosen =
      streaming_samples(streams_, choices_, settings_.sampling, reseed, settings_.granularity, state.seed, state.epoch);
  WorkerSamples work = streaming_partition(settings_.partition, epoch_size_, state.canonical_nodes, world, batch,
                                           state.sample_in_epoch, state.initial_nodes);
  std::vector<int64_t> order;
  if (settings_.shuffle) {
    const int64_t block =
        settings_.block_size.value_or(std::max<int64_t>(4'000'000 / state.canonical_nodes, int64_t{1} << 18));
    order = streaming_shuffle(settings_.algorithm, chosen.units, state.canonical_nodes, state.seed, state.epoch, block);
  }
  for (int64_t& id : work.ids) {
    if (id < 0) continue;
    if (settings_.shuffle) id = order[static_cast<size_t>(id)];
    id = chosen.samples[static_cast<size_t>(id)];
  }
  return work;
}

}  // namespace ingot::data

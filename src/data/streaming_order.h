// The order of StreamingDataset (MosaicML Streaming 0.13) with its batching method `random`: the samples of an epoch
// that each worker of each rank reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/streaming_partition.h"
#include "data/streaming_shuffle.h"
#include "data/streaming_streams.h"

namespace ingot::data {

// StreamingDataset's arguments, with its defaults.
struct StreamingSettings {
  bool shuffle = false;
  StreamingShuffle algorithm = StreamingShuffle::py1e;
  uint64_t seed = 9176;
  std::optional<int64_t> block_size;  // default: max(4000000 / C, 2^18)
  StreamingPartition partition = StreamingPartition::relaxed;
  StreamingSampling sampling = StreamingSampling::balanced;
  int64_t granularity = 1;
  std::optional<int64_t> canonical_nodes;  // C; default: the first run's P, or 64 P for py1s and py2s
  std::optional<int64_t> epoch_size;
};

// Progress of a run, as in StreamingDataset.state_dict.
struct StreamingState {
  int64_t epoch = 0;
  int64_t sample_in_epoch = 0;
  int64_t canonical_nodes = 0;
  uint64_t seed = 0;
  std::optional<int64_t> initial_nodes;  // absent in states of older releases
};
// {"epoch": .., "initial_physical_nodes": .., "num_canonical_nodes": .., "sample_in_epoch": .., "shuffle_seed": ..}
std::string streaming_state_json(const StreamingState& state);
// Errors: corrupt, naming `source` and the key.
StreamingState parse_streaming_state(std::string_view json, const std::string& source);

class StreamingOrder {
 public:
  // Errors: those of streaming_choices.
  StreamingOrder(std::vector<StreamingStream> streams, const StreamingSettings& settings);

  const StreamingSettings& settings() const { return settings_; }
  int64_t epoch_size() const { return epoch_size_; }  // samples per epoch
  int64_t num_samples() const;                        // in all streams, each counted once
  // The number of canonical nodes of a run that starts on `nodes` physical nodes.
  int64_t canonical_nodes(int64_t nodes) const;
  StreamingState begin(const StreamingWorld& world) const;

  // The remaining samples of the state's epoch for `world`, with `batch` samples per rank and batch, as sample indices
  // over all shards of all streams. Nodes and seed come from the state, not from the settings. Errors: those of
  // streaming_partition, streaming_shuffle and streaming_samples.
  WorkerSamples work(const StreamingWorld& world, int64_t batch, const StreamingState& state) const;

 private:
  std::vector<StreamingStream> streams_;
  StreamingSettings settings_;
  std::vector<int64_t> choices_;  // by stream
  int64_t epoch_size_ = 0;
};

}  // namespace ingot::data

// How StreamingDataset (MosaicML Streaming 0.13) mixes streams: how many samples of each an epoch has, and which.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ingot::data {

// One source of shards, and how much of it an epoch has: at most one of the three, and `proportion` for all or none.
struct StreamingStream {
  std::vector<int64_t> shards;  // samples of each
  std::optional<double> proportion;
  std::optional<double> repeat;   // times its samples
  std::optional<int64_t> choose;  // samples

  int64_t num_samples() const;
};

enum class StreamingSampling {
  balanced,  // another choice in every epoch
  fixed,     // the same in every epoch
};
const char* name(StreamingSampling method);
// Errors: usage, listing the words.
StreamingSampling parse_streaming_sampling(std::string_view word);

// Samples of each stream in an epoch; their sum is the epoch's size. `epoch_size`: where weights are relative, or there
// are none. Errors: usage for no stream, a stream without samples, weights that contradict or are no positive numbers,
// and an epoch size beside absolute weights.
std::vector<int64_t> streaming_choices(std::span<const StreamingStream> streams, std::optional<int64_t> epoch_size,
                                       uint64_t seed);

struct StreamingSamples {
  std::vector<int64_t> units;    // shuffle units: runs of samples of one shard
  std::vector<int64_t> samples;  // [epoch's size] over all shards of all streams, in order
};

// Which samples the epoch has, of `choices` of each stream. `granularity`: how many are taken from a shard at a time
// when not all are. `reseed`: another choice of how many of each shard in every epoch (StreamingDataset does so when it
// shuffles and the sampling is balanced). Errors: usage for a granularity below 1 or an empty shard.
StreamingSamples streaming_samples(std::span<const StreamingStream> streams, std::span<const int64_t> choices,
                                   StreamingSampling method, bool reseed, int64_t granularity, uint64_t seed,
                                   int64_t epoch);

}  // namespace ingot::data

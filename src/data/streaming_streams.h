// How StreamingDataset (MosaicML Streaming 0.13) mixes streams: the number of samples of each in an epoch, and which
// ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ingot::data {

// One source of shards and its weight: at most one of the three, and `proportion` either for all streams or for none.
struct StreamingStream {
  std::vector<int64_t> shards;  // samples in each shard
  std::optional<double> proportion;
  std::optional<double> repeat;   // repetitions of its samples
  std::optional<int64_t> choose;  // samples

  int64_t num_samples() const;
};

enum class StreamingSampling {
  balanced,  // different samples in every epoch
  fixed,     // the same samples in every epoch
};
const char* name(StreamingSampling method);
// Errors: usage, listing the words.
StreamingSampling parse_streaming_sampling(std::string_view word);

// The number of samples of each stream in an epoch; their sum is the epoch's size. `epoch_size`: only with proportions
// or without weights. Errors: usage without a stream, for a stream without samples, for weights that contradict each
// other or are not positive numbers, and for an epoch size together with repeat or choose.
std::vector<int64_t> streaming_choices(std::span<const StreamingStream> streams, std::optional<int64_t> epoch_size,
                                       uint64_t seed);

struct StreamingSamples {
  std::vector<int64_t> units;    // shuffle units: sizes of runs of samples in one shard
  std::vector<int64_t> samples;  // [epoch's size]: indices over all shards of all streams, in order
};

// Selects the epoch's samples, `choices` of each stream. `granularity`: number of consecutive samples taken from a
// shard at a time when not all are used. `reseed`: the number of samples per shard changes in every epoch (as in
// StreamingDataset when it shuffles with balanced sampling). Errors: usage for a granularity below 1 or an empty shard.
StreamingSamples streaming_samples(std::span<const StreamingStream> streams, std::span<const int64_t> choices,
                                   StreamingSampling method, bool reseed, int64_t granularity, uint64_t seed,
                                   int64_t epoch);

}  // namespace ingot::data

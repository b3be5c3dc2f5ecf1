#include "data/streaming_streams.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/numpy_random.h"
#include "base/numpy_sum.h"

namespace ingot::data {

namespace {

constexpr double max_stream_samples = 4294967296.0;  // per epoch

void check(std::span<const StreamingStream> streams) {
  if (streams.empty()) throw_error(ErrorKind::usage, "no stream is given");
  const bool relative = streams.front().proportion.has_value();
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamingStream& stream = streams[i];
    if (stream.num_samples() < 1) throw_error(ErrorKind::usage, "stream {} has no samples", i);
    if ((stream.proportion ? 1 : 0) + (stream.repeat ? 1 : 0) + (stream.choose ? 1 : 0) > 1) {
      throw_error(ErrorKind::usage, "stream {} has more than one of proportion, repeat and choose", i);
    }
    if (stream.proportion.has_value() != relative) {
      throw_hint(ErrorKind::usage, "give a proportion to all streams or to none",
                 "stream {}: proportion cannot be combined with repeat, choose or streams without a weight", i);
    }
    const double weight = stream.proportion ? *stream.proportion : stream.repeat.value_or(1);
    if (!std::isfinite(weight) || weight <= 0 || stream.choose.value_or(1) < 1) {
      throw_error(ErrorKind::usage, "stream {}: its proportion, repeat or choose must be more than 0", i);
    }
  }
}

// Divides `epoch_size` by shares that sum to about 1.
std::vector<int64_t> by_shares(std::span<const double> shares, int64_t epoch_size, uint64_t seed) {
  std::vector<int64_t> choices;
  for (const double share : shares) choices.push_back(static_cast<int64_t>(static_cast<double>(epoch_size) * share));
  const int64_t missing = epoch_size - std::accumulate(choices.begin(), choices.end(), int64_t{0});
  if (missing < 0 || missing > std::ssize(choices)) {
    throw_error(ErrorKind::usage, "an epoch of {} samples cannot be divided by the streams' weights", epoch_size);
  }
  for (const int64_t i : NumpyGenerator(seed).choice(std::ssize(choices), missing)) ++choices[static_cast<size_t>(i)];
  return choices;
}

// The number of samples to take from each shard, `choose` in total.
std::vector<int64_t> choose_of_shards(std::span<const int64_t> shards, int64_t choose, int64_t granularity,
                                      uint64_t seed) {
  const int64_t total = std::accumulate(shards.begin(), shards.end(), int64_t{0});
  std::vector<int64_t> chosen;
  for (const int64_t size : shards) chosen.push_back(size * (choose / total));
  int64_t left = choose % total;
  if (left == 0) return chosen;
  struct Pick {
    size_t shard;
    int64_t size;
  };
  std::vector<Pick> picks;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    for (int64_t begin = 0; begin < shards[shard]; begin += granularity) {
      picks.push_back({shard, std::min(granularity, shards[shard] - begin)});
    }
  }
  NumpyGenerator(seed).shuffle(std::span(picks));
  for (const Pick& pick : picks) {
    const int64_t taken = std::min(left, pick.size);
    chosen[pick.shard] += taken;
    left -= taken;
    if (left == 0) break;
  }
  return chosen;
}

}  // namespace

int64_t StreamingStream::num_samples() const { return std::accumulate(shards.begin(), shards.end(), int64_t{0}); }

const char* name(StreamingSampling method) { return method == StreamingSampling::fixed ? "fixed" : "balanced"; }

StreamingSampling parse_streaming_sampling(std::string_view word) {
  if (word == "balanced") return StreamingSampling::balanced;
  if (word == "fixed") return StreamingSampling::fixed;
  throw_hint(ErrorKind::usage, "use balanced or fixed", "the sampling method '{}' is not known", word);
}

std::vector<int64_t> streaming_choices(std::span<const StreamingStream> streams, std::optional<int64_t> epoch_size,
                                       uint64_t seed) {
  check(streams);
  if (epoch_size && *epoch_size < 1)
    throw_error(ErrorKind::usage, "the epoch's size is {}; it must be at least 1", *epoch_size);
  const bool relative = streams.front().proportion.has_value();
  const bool weighted = std::any_of(streams.begin(), streams.end(),
                                    [](const StreamingStream& s) { return s.proportion || s.repeat || s.choose; });
  std::vector<int64_t> choices;
  if (!relative && (weighted || !epoch_size)) {
    if (epoch_size) {
      throw_hint(ErrorKind::usage, "leave it out, or weight the streams by proportion",
                 "an epoch's size cannot be combined with repeat or choose");
    }
    for (const StreamingStream& stream : streams) {
      const auto size = static_cast<double>(stream.num_samples());
      if (stream.repeat.value_or(1) * size > max_stream_samples) {
        throw_error(ErrorKind::usage, "a stream repeated {} times is too large for an epoch", *stream.repeat);
      }
      choices.push_back(stream.repeat ? static_cast<int64_t>(*stream.repeat * size)
                                      : stream.choose.value_or(stream.num_samples()));
    }
    return choices;
  }
  std::vector<double> shares;
  int64_t total = 0;
  for (const StreamingStream& stream : streams) {
    shares.push_back(relative ? *stream.proportion : static_cast<double>(stream.num_samples()));
    total += stream.num_samples();
  }
  const double sum = numpy_sum(shares);
  for (double& share : shares) share /= sum;
  return by_shares(shares, epoch_size.value_or(total), seed);
}

StreamingSamples streaming_samples(std::span<const StreamingStream> streams, std::span<const int64_t> choices,
                                   StreamingSampling method, bool reseed, int64_t granularity, uint64_t seed,
                                   int64_t epoch) {
  if (granularity < 1)
    throw_error(ErrorKind::usage, "the sampling granularity is {}; it must be at least 1", granularity);
  if (streams.size() != choices.size()) throw_error(ErrorKind::internal, "not every stream has a choice");
  const uint64_t epoch_seed = seed + static_cast<uint64_t>(epoch);
  NumpyGenerator random(method == StreamingSampling::fixed ? seed : epoch_seed);
  StreamingSamples result;
  int64_t first = 0;  // index of the shard's first sample
  for (size_t s = 0; s < streams.size(); ++s) {
    const std::vector<int64_t>& shards = streams[s].shards;
    const std::vector<int64_t> chosen = choose_of_shards(shards, choices[s], granularity, reseed ? epoch_seed : seed);
    for (size_t i = 0; i < shards.size(); ++i) {
      const int64_t size = shards[i];
      if (size < 1) throw_error(ErrorKind::usage, "shard {} of stream {} has no samples", i, s);
      for (int64_t repeat = 0; repeat < chosen[i] / size; ++repeat) {
        result.units.push_back(size);
        for (int64_t k = 0; k < size; ++k) result.samples.push_back(first + k);
      }
      if (const int64_t rest = chosen[i] % size; rest > 0) {
        result.units.push_back(rest);
        std::vector<int64_t> some = random.choice(size, rest);
        std::sort(some.begin(), some.end());
        for (const int64_t k : some) result.samples.push_back(first + k);
      }
      first += size;
    }
  }
  return result;
}

}  // namespace ingot::data

#include "data/streaming_partition.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::data {

namespace {

constexpr int64_t max_samples = int64_t{1} << 32;  // per epoch: 32 GiB of memory

bool one_divides(int64_t a, int64_t b) { return a % b == 0 || b % a == 0; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The epoch's samples in the order of consumption: the first one of each canonical node, then the second one of each,
// ...
class Rows {
 public:
  Rows(int64_t num_samples, int64_t canonical, int64_t nodes)
      : n_(num_samples), canonical_(canonical), length_(ceil_div(num_samples, canonical)) {
    if (canonical < nodes) {
      ratio_ = nodes / canonical;
      padding_ = (ratio_ - length_ % ratio_) % ratio_;
    }
    // Fewer samples than nodes: they are repeated cyclically.
    repeats_ = n_ < canonical || (n_ == canonical && canonical < nodes);
    // The padding copies the source columns, source_ and those after it; a single one is copied into all of it.
    if (!repeats_ && padding_ > 0) {
      const int64_t end = length_ + padding_ - padding_ - ratio_ + 1;
      const int64_t begin = std::max<int64_t>(end - padding_, 0);
      source_ = begin;
      source_size_ = std::max<int64_t>(end, 0) - begin;
      if (source_size_ != padding_ && source_size_ != 1) {
        throw_hint(ErrorKind::usage, "use fewer physical nodes, or as many as canonical nodes",
                   "{} samples cannot be distributed over {} canonical and {} physical nodes", n_, canonical_, nodes);
      }
    }
  }

  int64_t total() const { return canonical_ * (length_ + padding_); }

  int64_t at(int64_t position) const {
    const int64_t row = position % canonical_;
    int64_t column = position / canonical_;
    if (repeats_) return (row * (length_ + padding_) + column) % n_;
    if (column >= length_) column = source_ + (source_size_ == 1 ? 0 : column - length_);
    const int64_t begin = row * n_ / canonical_;
    const int64_t end = (row + 1) * n_ / canonical_;
    return begin + column - (column == length_ - 1 && end - begin < length_ ? 1 : 0);
  }

 private:
  int64_t n_, canonical_, length_;
  int64_t ratio_ = 1, padding_ = 0;  // columns after the length_ real ones
  int64_t source_ = 0, source_size_ = 0;
  bool repeats_ = false;
};

WorkerSamples partition_orig(int64_t num_samples, int64_t canonical, const StreamingWorld& world, int64_t batch,
                             int64_t drop) {
  if (!one_divides(canonical, world.nodes)) {
    throw_hint(ErrorKind::usage, "one must divide the other; only a resumed run with the partition 'relaxed' is exempt",
               "samples of {} canonical nodes cannot be distributed over {} physical nodes", canonical, world.nodes);
  }
  const Rows rows(num_samples, canonical, world.nodes);
  drop -= drop % world.nodes;
  const int64_t samples_per_node = std::max<int64_t>(rows.total() - drop, 0) / world.nodes;
  const int64_t samples_per_rank = ceil_div(samples_per_node, world.ranks);
  const int64_t repeated =
      samples_per_rank * world.ranks - samples_per_node;  // samples of a node that are repeated at its end
  const int64_t repeat_begin =
      samples_per_node >= world.ranks + repeated - 1 ? samples_per_node - world.ranks - repeated + 1 : 0;

  WorkerSamples samples{world, batch, 0, {}};
  samples.num_batches = ceil_div(samples_per_rank, world.workers * batch);
  samples.ids.assign(static_cast<size_t>(world.num_ranks() * world.workers * samples.num_batches * batch), -1);
  auto id = samples.ids.begin();
  for (int64_t rank = 0; rank < world.num_ranks(); ++rank) {
    for (int64_t worker = 0; worker < world.workers; ++worker) {
      for (int64_t k = 0; k < samples.num_batches; ++k) {
        for (int64_t b = 0; b < batch; ++b, ++id) {
          const int64_t position_in_rank = (k * world.workers + worker) * batch + b;
          if (position_in_rank >= samples_per_rank) continue;
          int64_t position = position_in_rank * world.ranks + rank % world.ranks;
          if (position >= samples_per_node)
            position = (repeat_begin + (position - samples_per_node)) % samples_per_node;
          *id = rows.at(drop + position * world.nodes + rank / world.ranks);
        }
      }
    }
  }
  return samples;
}

// The samples of `first` redistributed to other ranks, with the same global batches.
WorkerSamples reshape(const WorkerSamples& first, const StreamingWorld& world, int64_t batch) {
  WorkerSamples samples{world, batch, first.num_batches, std::vector<int64_t>(first.ids.size())};
  const int64_t global = world.num_ranks() * batch;
  auto id = samples.ids.begin();
  for (int64_t rank = 0; rank < world.num_ranks(); ++rank) {
    for (int64_t worker = 0; worker < world.workers; ++worker) {
      for (int64_t k = 0; k < samples.num_batches; ++k) {
        for (int64_t b = 0; b < batch; ++b, ++id) {
          const int64_t position = (rank * batch + b) % global;
          *id = first.at(position / first.batch, k * world.workers + worker, position % first.batch);
        }
      }
    }
  }
  return samples;
}

}  // namespace

const char* name(StreamingPartition algorithm) { return algorithm == StreamingPartition::orig ? "orig" : "relaxed"; }

StreamingPartition parse_streaming_partition(std::string_view word) {
  if (word == "orig") return StreamingPartition::orig;
  if (word == "relaxed") return StreamingPartition::relaxed;
  throw_hint(ErrorKind::usage, "use orig or relaxed", "the partition algorithm '{}' is not known", word);
}

int64_t WorkerSamples::num_full_batches() const {
  // All ranks have the same number of samples, with gaps only at the end.
  int64_t full = world.workers * num_batches;
  while (full > 0 && at(0, full - 1, batch - 1) < 0) --full;
  return full;
}

WorkerSamples streaming_partition(StreamingPartition algorithm, int64_t num_samples, int64_t canonical_nodes,
                                  const StreamingWorld& world, int64_t batch, int64_t drop,
                                  std::optional<int64_t> initial_nodes) {
  const int64_t first_nodes = initial_nodes.value_or(world.nodes);
  for (const int64_t count : {canonical_nodes, world.nodes, world.ranks, world.workers, batch, first_nodes}) {
    if (count < 1 || count > 1'000'000) {
      throw_error(ErrorKind::usage,
                  "nodes, ranks, workers and samples of a batch must be from 1 to 1000000 each, not {}", count);
    }
  }
  if (num_samples < 1 || num_samples > max_samples) {
    throw_error(ErrorKind::usage, "an epoch of {} samples is not supported; expected 1 to {}", num_samples,
                max_samples);
  }
  const int64_t ranks = world.num_ranks();
  if (drop < 0 || drop > num_samples + ranks - num_samples % ranks) {
    throw_error(ErrorKind::usage, "the run is at sample {}, outside of an epoch of {}", drop, num_samples);
  }
  if (algorithm == StreamingPartition::orig || !initial_nodes || one_divides(canonical_nodes, world.nodes)) {
    return partition_orig(num_samples, canonical_nodes, world, batch, drop);
  }
  const int64_t global = ranks * batch, first_ranks = first_nodes * world.ranks;
  if (global % first_ranks != 0) {
    throw_hint(ErrorKind::usage, "keep the global batch when resuming a run",
               "a global batch of {} is not a multiple of the first run's {} ranks", global, first_ranks);
  }
  StreamingWorld first = world;
  first.nodes = first_nodes;
  return reshape(partition_orig(num_samples, canonical_nodes, first, global / first_ranks, drop), world, batch);
}

}  // namespace ingot::data

// How StreamingDataset (MosaicML Streaming 0.13) partitions an epoch over a cluster.
// Letters: N samples in the epoch, C canonical nodes, P physical nodes, R ranks per node, W workers per rank, K batches
// per worker, B samples per rank and batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ingot::data {

enum class StreamingPartition {
  orig,     // C must divide P, or P divide C
  relaxed,  // a resumed run may use any P that its global batch allows
};
const char* name(StreamingPartition algorithm);
// Errors: usage, listing the words.
StreamingPartition parse_streaming_partition(std::string_view word);

struct StreamingWorld {
  int64_t nodes = 1;    // P
  int64_t ranks = 1;    // R, per node
  int64_t workers = 1;  // W, per rank

  int64_t num_ranks() const { return nodes * ranks; }
};

// The samples that each worker reads. Batch q of a rank comes from its worker q mod W.
struct WorkerSamples {
  StreamingWorld world;
  int64_t batch = 0;         // B
  int64_t num_batches = 0;   // K
  std::vector<int64_t> ids;  // [P, R, W, K, B]; -1: no sample, to be skipped

  // Complete batches of a rank: those that a DataLoader with drop_last returns.
  int64_t num_full_batches() const;

  // Sample b of batch q (0 .. W K - 1) of rank p R + r. REQUIRES all arguments in range.
  int64_t at(int64_t rank, int64_t q, int64_t b) const {
    const int64_t worker = rank * world.workers + q % world.workers;
    return ids[static_cast<size_t>((worker * num_batches + q / world.workers) * batch + b)];
  }
};

// Partitions samples 0 .. N - 1, without the first `drop` of them in the order of consumption (rounded down to a
// multiple of P). Some samples are repeated so that all ranks have the same number. `initial_nodes`: P of the first
// run, if this run resumes one (relaxed). Errors: usage for a count below 1, for C and P of which neither divides the
// other (where that matters), for a global batch that cannot be divided among the first run's ranks, for a `drop`
// beyond the epoch, and for N, C and P on which StreamingDataset fails as well.
WorkerSamples streaming_partition(StreamingPartition algorithm, int64_t num_samples, int64_t canonical_nodes,
                                  const StreamingWorld& world, int64_t batch, int64_t drop = 0,
                                  std::optional<int64_t> initial_nodes = {});

}  // namespace ingot::data

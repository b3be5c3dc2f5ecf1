// How StreamingDataset (MosaicML Streaming 0.13) shuffles an epoch. The epoch's samples are numbered 0 .. n - 1. A
// shuffle unit is a run of samples in one shard. Each canonical node has an equal share of the samples, which are
// shuffled only within the node.
// Letters: n samples in the epoch, C canonical nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::data {

enum class StreamingShuffle {
  naive,  // all samples together
  py1b,   // blocks of fixed size (up to release 0.9)
  py1br,  // blocks of random size, staggered over the nodes
  py1e,   // each sample moves within a range of random size around its position
  py1s,   // samples within each unit, and the units within a node
  py2s,   // as py1s, twice
};
const char* name(StreamingShuffle algorithm);
// Errors: usage, listing the words.
StreamingShuffle parse_streaming_shuffle(std::string_view word);

// Returns a permutation [n]: element i is the sample at position i; n is the sum of `units`. `nodes` is C; `block_size`
// is for py1b, py1br and py1e. Errors: usage for a negative unit, C < 1, a block size below 4, and (py1e) a node
// without samples, which StreamingDataset rejects as well.
std::vector<int64_t> streaming_shuffle(StreamingShuffle algorithm, std::span<const int64_t> units, int64_t nodes,
                                       uint64_t seed, int64_t epoch, int64_t block_size);

}  // namespace ingot::data

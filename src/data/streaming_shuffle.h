// How StreamingDataset (MosaicML Streaming 0.13) shuffles an epoch. Its samples are numbered 0 .. n - 1; a shuffle unit
// is a run of them that lie in one shard, and canonical nodes have equal shares of them, which stay where they are.
// Letters: n samples of the epoch, C canonical nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::data {

enum class StreamingShuffle {
  naive,  // all samples at once
  py1b,   // blocks of fixed size (up to release 0.9)
  py1br,  // blocks of random size, staggered over the nodes
  py1e,   // each sample near its place, within a range of random size
  py1s,   // each unit in itself, the units of a node
  py2s,   // the same, twice
};
const char* name(StreamingShuffle algorithm);
// Errors: usage, listing the words.
StreamingShuffle parse_streaming_shuffle(std::string_view word);

// [n] which sample stands where; n is the sum of `units`. `block_size`: of py1b, py1br and py1e. Errors: usage for a
// negative unit, C < 1, a block size that leaves nothing to draw from, and (py1e) a node without samples, which
// StreamingDataset refuses as well.
std::vector<int64_t> streaming_shuffle(StreamingShuffle algorithm, std::span<const int64_t> units, int64_t nodes,
                                       uint64_t seed, int64_t epoch, int64_t block_size);

}  // namespace ingot::data

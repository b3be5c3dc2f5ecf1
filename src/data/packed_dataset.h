// Sequences that were packed beforehand (ingot data pack), in a folder of MDS shards, here or in an object store.
// Letters: S sequence length, D documents in a sequence, padding being one more.
//
// Columns of a sample, a sequence each:
//   tokens     ndarray:int32 [S]
//   counted    ndarray:uint8 [S]: 1 where predicting the token behind this one counts
//   offsets    ndarray:int32 [D + 1]: where each document begins, and S
//   documents  ndarray:int64 [D]: its number among those that were packed; -1 for padding
// Beside index.json lies packing.json: what was packed, and how.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sequence_set.h"
#include "formats/mds.h"

namespace ingot::data {

// Writes all sequences in their order. `vocabulary`: of the tokenizer; `go_on` is told how many are written, and stops
// the writing when it says no (unavailable). Errors: those of MdsWriter.
void write_packed(const Dataset& dataset, int64_t vocabulary, const std::filesystem::path& folder,
                  const formats::MdsWriterSettings& settings, const std::function<bool(int64_t)>& go_on);

// Whether `path` is such a folder; also of a remote address. Errors: as input_exists.
bool is_packed(const std::filesystem::path& path);

// Shards are opened when a sequence of theirs is asked for, and the last few are kept open. A sequence of the set
// packed from some documents is that of data::Dataset built from them.
class PackedDataset : public SequenceSet {
 public:
  // Of several folders the sequences come one behind the other; a weight is how often. Errors: usage for a weight that
  // is no whole number, and for sequences of another length than `sequence_length`; corrupt for a packing.json that is
  // none or does not belong to its index, and for tokens outside `vocabulary`; those of MdsFolder.
  PackedDataset(std::span<const Source> sources, int64_t sequence_length, int64_t vocabulary);
  ~PackedDataset() override;

  int64_t num_sequences() const override { return statistics_.num_sequences; }
  int64_t sequence_length() const override { return sequence_length_; }
  // Errors: also corrupt, naming shard and sample, for one that is no packed sequence; those of MdsFolder::open.
  PackedSequence get(int64_t index) const override;
  // Begins to fetch the remote shards that hold them.
  void expect(std::span<const int64_t> indices) const override;
  const DatasetStatistics& statistics() const override { return statistics_; }
  const std::string& content_hash() const override { return content_hash_; }

 private:
  struct Shards;  // opened and on their way
  struct Place {
    size_t folder = 0, shard = 0;
    int64_t sample = 0;
  };
  Place place(int64_t index) const;

  int64_t sequence_length_, vocabulary_;
  std::vector<formats::MdsFolder> folders_;
  std::vector<int64_t> repeats_;              // of each folder
  std::vector<std::vector<int64_t>> firsts_;  // of each folder, the first sample of each shard
  DatasetStatistics statistics_;
  std::string content_hash_;
  std::unique_ptr<Shards> open_;
};

}  // namespace ingot::data

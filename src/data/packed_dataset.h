// Data sets packed beforehand (`ingot data pack`): folders of MDS shards, local or in an object store.
// Letters: S sequence length, D documents in a sequence; padding counts as one document.
//
// Columns of an MDS sample, which is one sequence:
//   tokens     ndarray:int32 [S]
//   counted    ndarray:uint8 [S]: 1 where the prediction of the next token is in the loss
//   offsets    ndarray:int32 [D + 1]: the start of each document, and S
//   documents  ndarray:int64 [D]: the document's index in the packed data set; -1 for padding
// packing.json, next to index.json, records what was packed and how.
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

// Writes all sequences in order. `vocabulary`: the tokenizer's size. `go_on` is called with the number of sequences
// written so far; returning false stops the writing (unavailable). Errors: those of MdsWriter.
void write_packed(const Dataset& dataset, int64_t vocabulary, const std::filesystem::path& folder,
                  const formats::MdsWriterSettings& settings, const std::function<bool(int64_t)>& go_on);

// Whether `path`, which may be remote, is a folder written by write_packed. Errors: as input_exists.
bool is_packed(const std::filesystem::path& path);

// Opens a shard when one of its sequences is requested, and keeps the most recently used ones open. Its sequences are
// the same as those of the data::Dataset that it was packed from.
class PackedDataset : public SequenceSet {
 public:
  // The sequences of several folders are concatenated; a source's weight is the number of repetitions of its sequences.
  // Errors: usage for a weight that is not a whole number and for sequences of a length other than `sequence_length`;
  // corrupt for an invalid packing.json or one that does not match its index, and for a vocabulary larger than
  // `vocabulary`; unsupported for a newer version of packing.json; those of MdsFolder.
  PackedDataset(std::span<const Source> sources, int64_t sequence_length, int64_t vocabulary);
  ~PackedDataset() override;

  int64_t num_sequences() const override { return statistics_.num_sequences; }
  int64_t sequence_length() const override { return sequence_length_; }
  // Errors: also corrupt, naming shard and sample, for an invalid packed sequence; those of MdsFolder::open.
  PackedSequence get(int64_t index) const override;
  // Starts fetching the remote shards that contain these sequences.
  void expect(std::span<const int64_t> indices) const override;
  const DatasetStatistics& statistics() const override { return statistics_; }
  const std::string& content_hash() const override { return content_hash_; }

 private:
  struct Shards;  // open and pending shards
  struct Location {
    size_t folder = 0, shard = 0;
    int64_t sample = 0;
  };
  Location locate(int64_t index) const;

  int64_t sequence_length_, vocabulary_;
  std::vector<formats::MdsFolder> folders_;
  std::vector<int64_t> repeats_;              // by folder
  std::vector<std::vector<int64_t>> firsts_;  // by folder: the first sample of each shard
  DatasetStatistics statistics_;
  std::string content_hash_;
  std::unique_ptr<Shards> open_;
};

}  // namespace ingot::data

// Sequences to train on, by index: documents that we packed, or another program's data set.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/packing.h"

namespace ingot::data {

// Counts are of one epoch, unless said otherwise.
struct DatasetStatistics {
  int64_t num_files = 0;
  int64_t num_documents = 0;       // usable ones in the files
  int64_t num_bad_lines = 0;       // left out (on_error skip)
  std::string first_bad_line;      // why the first of them was; empty without
  int64_t num_entries = 0;         // documents in an epoch, after the weights
  int64_t num_truncated = 0;       // entries cut at the sequence length
  int64_t num_too_long = 0;        // entries left out for being longer than it
  int64_t num_without_target = 0;  // pieces of entries left out because no token in them counts
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;         // without padding
  int64_t num_counted = 0;        // of them, those that count in the loss
  int64_t longest = 0;            // tokens of the longest sub-sequence (padding is not one)
  double packing_efficiency = 0;  // num_tokens / (num_sequences S)
  double squared_lengths = 0;     // sum over sub-sequences, padding too, of the square of their tokens
};

// Its members may be called from several threads.
class SequenceSet {
 public:
  SequenceSet() = default;
  SequenceSet(const SequenceSet&) = delete;
  SequenceSet& operator=(const SequenceSet&) = delete;
  virtual ~SequenceSet() = default;

  virtual int64_t num_sequences() const = 0;
  virtual int64_t sequence_length() const = 0;
  // REQUIRES nothing; errors: usage for an index outside [0, num_sequences()), and those of what is read.
  virtual PackedSequence get(int64_t index) const = 0;
  // These will be asked for soon: what lies far away may be fetched meanwhile. REQUIRES indices in range.
  virtual void expect(std::span<const int64_t> /*indices*/) const {}
  virtual const DatasetStatistics& statistics() const = 0;
  // Lower-case hex SHA-256 that tells sets apart: a run is continued with the one it began with.
  virtual const std::string& content_hash() const = 0;

 protected:
  SequenceSet(SequenceSet&&) = default;
  SequenceSet& operator=(SequenceSet&&) = default;
};

}  // namespace ingot::data

// A data set of training sequences accessed by index: packed documents, or another program's data set.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/packing.h"

namespace ingot::data {

// Counts are per epoch unless stated otherwise.
struct DatasetStatistics {
  int64_t num_files = 0;
  int64_t num_documents = 0;            // usable documents in the files
  int64_t num_bad_lines = 0;            // skipped lines (on_error skip)
  std::string first_bad_line;           // why the first one was skipped; empty when there is none
  int64_t num_entries = 0;              // documents in an epoch, after weighting
  int64_t num_truncated = 0;            // entries cut at the sequence length
  int64_t num_too_long = 0;             // entries left out for exceeding the sequence length
  int64_t num_without_loss_tokens = 0;  // sub-sequences left out because they have no loss tokens
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;         // without padding
  int64_t num_loss_tokens = 0;    // tokens whose prediction is in the loss
  int64_t longest = 0;            // tokens of the longest sub-sequence (padding is not one)
  double packing_efficiency = 0;  // num_tokens / (num_sequences S)
  double squared_lengths = 0;     // sum over sub-sequences, including padding, of their squared length
};

// All members are thread-safe.
class SequenceSet {
 public:
  SequenceSet() = default;
  SequenceSet(const SequenceSet&) = delete;
  SequenceSet& operator=(const SequenceSet&) = delete;
  virtual ~SequenceSet() = default;

  virtual int64_t num_sequences() const = 0;
  virtual int64_t sequence_length() const = 0;
  // REQUIRES nothing. Errors: usage for an index outside [0, num_sequences()); those of reading the data.
  virtual PackedSequence get(int64_t index) const = 0;
  // Announces indices that will be requested soon, so that remote data can be prefetched. REQUIRES indices in range.
  virtual void expect(std::span<const int64_t> /*indices*/) const {}
  virtual const DatasetStatistics& statistics() const = 0;
  // Lower-case hex SHA-256 that identifies the data set: a run can only be resumed with the same one.
  virtual const std::string& content_hash() const = 0;

 protected:
  SequenceSet(SequenceSet&&) = default;
  SequenceSet& operator=(SequenceSet&&) = default;
};

}  // namespace ingot::data

// A data set of tokenized and packed documents from one or several files, with sequences accessed by index.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "data/corpus.h"
#include "data/packing.h"
#include "data/sequence_set.h"
#include "data/source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::data {

struct DatasetSettings {
  Format format = Format::automatic;
  OnError on_error = OnError::stop;
  PackingSettings packing;
  uint64_t seed = 0;  // selects the documents that a fractional source weight repeats
};

// Immutable after construction.
class Dataset : public SequenceSet {
 public:
  // Reads, tokenizes (in parallel; the result does not depend on the number of threads) and packs. An epoch has each
  // document of a source floor(weight) times, and a fraction weight - floor(weight) of its documents, selected by the
  // seed, once more. `chat_template` may be null; tokenized.h says what it changes. Errors: usage without a source, for
  // a weight that is not a finite number above 0, and for an epoch of more than 2^28 documents; else as DocumentReader,
  // tokenize and plan_packing.
  static Dataset build(std::span<const Source> sources, const text::Tokenizer& tokenizer,
                       const text::ChatTemplate* chat_template, const DatasetSettings& settings, ThreadPool& pool);

  int64_t num_sequences() const override { return plan_.num_sequences(); }
  int64_t sequence_length() const override { return sequence_length_; }
  PackedSequence get(int64_t index) const override;
  const DatasetStatistics& statistics() const override { return statistics_; }
  // Lower-case hex SHA-256 over the contents of every sequence. Equal hashes imply equal sequences at every index.
  const std::string& content_hash() const override { return content_hash_; }
  // Whether sequence i consists of exactly the whole document i of the sources.
  bool one_document_a_sequence() const;
  // Whether some of its documents are rendered with the chat template.
  bool is_chat() const { return is_chat_; }

 private:
  Dataset() = default;
  void count();
  void hash();

  Corpus corpus_;
  PackingPlan plan_;
  int64_t sequence_length_ = 0;
  int32_t pad_id_ = 0;
  DatasetStatistics statistics_;
  std::string content_hash_;
  bool is_chat_ = false;
};

}  // namespace ingot::data

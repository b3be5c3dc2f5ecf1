// Packing: documents are concatenated into sequences of one fixed length. The plan is computed from document lengths
// alone; sequences are assembled from it on request.
// Letters: S sequence length, n tokens of a document.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/corpus.h"

namespace ingot::data {

// What happens to a document of more than S tokens that must not be split.
enum class TooLong {
  truncate,  // its first S tokens are kept
  skip,      // it is left out
  stop,      // it is an error
};
// truncate, skip or stop. Errors: usage, listing the words.
TooLong parse_too_long(std::string_view word);

constexpr int64_t max_sequence_length = int64_t{1} << 22;  // offsets within a sequence are int32

struct PackingSettings {
  int64_t sequence_length = 0;  // S, 2 .. max_sequence_length
  bool packing = true;          // false: one subsequence per sequence, followed by padding
  TooLong too_long = TooLong::truncate;
};

// Tokens begin .. begin + length of a document, which become one sub-sequence.
struct Subsequence {
  int64_t document = 0;
  int64_t begin = 0;
  int64_t length = 0;
};

struct PackingPlan {
  std::vector<Subsequence> subsequences;  // in the order of the sequences
  std::vector<int64_t> first_subsequence{
      0};                     // sequence s has subsequences first_subsequence[s] .. first_subsequence[s + 1]
  int64_t num_truncated = 0;  // documents cut at S
  int64_t num_skipped = 0;    // documents left out for being longer than S
  int64_t num_without_loss_tokens =
      0;                   // subsequences left out because they have no loss tokens (after truncation, for example)
  int64_t num_tokens = 0;  // total in all subsequences

  int64_t num_sequences() const { return static_cast<int64_t>(first_subsequence.size()) - 1; }
};

// Best fit decreasing: takes subsequences from longest to shortest (equal ones in order) and puts each into the fullest
// bin that has room for it (of equal ones the oldest), or into a new bin. Returns each subsequence's bin; bins are
// numbered in the order they are opened. O(n log n) and deterministic on every machine. Errors: internal for a length
// outside [1, capacity].
std::vector<int64_t> best_fit_decreasing(std::span<const int64_t> lengths, int64_t capacity);

// Packs the documents in `entries` (indices into the corpus, possibly repeated). A splittable document of more than S
// tokens becomes subsequences of S tokens and a remainder. Sub-sequences of a sequence are in the order of `entries`.
// Errors: usage for S < 2; corrupt for a document that is too long (too_long stop) and when no subsequence is left.
PackingPlan plan_packing(const Corpus& corpus, std::span<const int64_t> entries, const PackingSettings& settings);

// A packed sequence. Sub-sequence j has tokens offsets[j] .. offsets[j + 1]; attention is restricted to it and
// positions restart at 0. Unused space at the end is one more sub-sequence, of padding.
struct PackedSequence {
  std::vector<int32_t> ids;      // [S]
  std::vector<int32_t> targets;  // [S]: the next token, or -1 where it is not in the loss: where it is masked, at the
                                 // last token of a sub-sequence and in padding
  std::vector<int32_t> offsets;  // [sub-sequences + 1], from 0 to S
  std::vector<int64_t> sample_ids;  // [sub-sequences]: the document in the corpus; -1 for padding
  int64_t loss_tokens = 0;          // targets that are not -1
};

// Assembles sequence `index` of the plan. `pad_id` fills the padding and is never a target. Errors: usage for an index
// outside the plan.
PackedSequence assemble(const Corpus& corpus, const PackingPlan& plan, int64_t index, int64_t sequence_length,
                        int32_t pad_id);

// Number of its tokens, without padding.
int64_t num_tokens(const PackedSequence& sequence);

// [S]: each token's position in its sub-sequence.
std::vector<int32_t> positions(const PackedSequence& sequence);

}  // namespace ingot::data

// The order in which Megatron-LM's GPTDataset and BlendedDataset draw samples, index for index.
// Source: gpt_dataset.py, blended_dataset.py, blended_megatron_dataset_builder.py and helpers.cpp in
// megatron/core/datasets of NVIDIA/Megatron-LM, release 0.16.
// Letters: L sequence length; a sample is L + 1 tokens, of which the last is the first of the sample behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/megatron.h"

namespace ingot::data {

// Sequences first .. last of a file.
struct SequenceRange {
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
};

// Part `part` (0 training, 1 validation, 2 test) of `num_sequences` under a split such as "969,30,1". Errors: usage for
// what is no list of one to three numbers, of which one is above 0.
SequenceRange split_range(const std::string& split, int part, int64_t num_sequences);

// What Megatron calls the document, sample and shuffle index.
struct MegatronIndex {
  int64_t num_epochs = 1;
  bool separate_final_epoch = false;  // it is shuffled apart, being wanted in part only
  std::vector<int32_t> documents;     // sequences of the file, in the order of reading
  std::vector<int64_t> positions;     // [N + 1]: sample j begins in documents[positions[j]] ...
  std::vector<int32_t> offsets;       // [N + 1]: ... at this token
  std::vector<uint32_t> shuffle;      // [N]: the samples in the order of training

  int64_t num_samples() const { return static_cast<int64_t>(shuffle.size()); }  // N
};

// Samples of so many tokens. `drop_last_partial`: what is left behind the last whole one is none.
int64_t samples_of(int64_t tokens, int64_t sequence_length, bool drop_last_partial);

// `num_samples`: as many at least; none: those of one epoch. `drop_last_partial` as above: Megatron's
// drop_last_partial_validation_sequence. (It counts samples with a partial one in fp32, which beyond 2^24 tokens may be
// too many or too few; here they are exact.) Errors: corrupt when the range has no tokens, or no sample where one epoch
// is wanted; resource for more samples or documents than 32 bits count.
MegatronIndex build_megatron_index(const formats::MegatronFile& file, SequenceRange range, int64_t sequence_length,
                                   std::optional<int64_t> num_samples, uint32_t seed, bool drop_last_partial = true);

// Tokens 0 .. L of sample j (before the shuffle); fewer of a partial one. Errors: as MegatronFile::read.
std::vector<int32_t> read_sample(const formats::MegatronFile& file, const MegatronIndex& index, int64_t sample,
                                 int64_t sequence_length);

// Weights that sum to 1, as numpy.sum sums them.
std::vector<double> normalise(std::span<const double> weights);

// Which source gives sample n, and which of its samples that is.
struct Blend {
  std::vector<int16_t> source;
  std::vector<int64_t> sample;
};

// `size` samples, so that at each place every source has had its share. REQUIRES weights that sum to 1.
Blend blend_by_weight(std::span<const double> weights, int64_t size);
// All samples of all sources, in proportion to their number.
Blend blend_all(std::span<const int64_t> sizes);

}  // namespace ingot::data

// The order in which Megatron-LM's GPTDataset and BlendedDataset draw samples, reproduced index for index.
// Source: gpt_dataset.py, blended_dataset.py, blended_megatron_dataset_builder.py and helpers.cpp in
// megatron/core/datasets of NVIDIA/Megatron-LM, release 0.16.
// Letters: L sequence length; a sample is L + 1 tokens, the last of which is also the first of the next sample.
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

// Part `part` (0 training, 1 validation, 2 test) of `num_sequences` under a split such as "969,30,1". Errors: usage
// unless the split is a list of one to three numbers, at least one of them above 0.
SequenceRange split_range(const std::string& split, int part, int64_t num_sequences);

// Megatron's document, sample and shuffle indices.
struct MegatronIndex {
  int64_t num_epochs = 1;
  bool separate_final_epoch = false;  // the final epoch is shuffled separately, as only part of it is used
  std::vector<int32_t> documents;     // sequences of the file, in reading order
  std::vector<int64_t> positions;     // [N + 1]: sample j begins in documents[positions[j]] ...
  std::vector<int32_t> offsets;       // [N + 1]: ... at this token
  std::vector<uint32_t> shuffle;      // [N]: the samples in training order

  int64_t num_samples() const { return static_cast<int64_t>(shuffle.size()); }  // N
};

// Number of samples in `tokens` tokens. `drop_last_partial`: whether an incomplete last sample is left out.
int64_t samples_of(int64_t tokens, int64_t sequence_length, bool drop_last_partial);

// Builds the index for at least `num_samples` samples; if absent, for those of one epoch. `drop_last_partial` as above:
// Megatron's drop_last_partial_validation_sequence. (With partial samples Megatron computes their number in fp32, which
// beyond 2^24 tokens may be too high or too low; here it is exact.) Errors: corrupt when the range has no tokens, or
// not one sample in one epoch; resource for more samples or documents than 32 bits can count; unsupported for a range
// beyond sequence 2^31 - 1.
MegatronIndex build_megatron_index(const formats::MegatronFile& file, SequenceRange range, int64_t sequence_length,
                                   std::optional<int64_t> num_samples, uint32_t seed, bool drop_last_partial = true);

// Tokens 0 .. L of sample j (before the shuffle); fewer if it is partial. Errors: as MegatronFile::read.
std::vector<int32_t> read_sample(const formats::MegatronFile& file, const MegatronIndex& index, int64_t sample,
                                 int64_t sequence_length);

// Weights divided by their sum, which is computed as by numpy.sum.
std::vector<double> normalise(std::span<const double> weights);

// For every sample n of a blend, its source and its index in that source.
struct Blend {
  std::vector<int16_t> source;
  std::vector<int64_t> sample;
};

// A blend of `size` samples, in which every source has its share at every point. REQUIRES weights that sum to 1.
Blend blend_by_weight(std::span<const double> weights, int64_t size);
// A blend of all samples of all sources, interleaved in proportion to the sources' sizes.
Blend blend_all(std::span<const int64_t> sizes);

}  // namespace ingot::data

// Megatron-LM data sets as sequence sets: index n is the n-th sample that Megatron-LM trains on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/megatron_order.h"
#include "data/sequence_set.h"
#include "formats/megatron.h"

namespace ingot::data {

struct MegatronSource {
  std::filesystem::path path;    // as in formats::megatron_prefix
  std::optional<double> weight;  // relative share of the samples; all sources have one, or none
};

enum class SplitPart { train, valid };

struct MegatronSettings {
  int64_t sequence_length = 0;
  uint32_t seed = 0;
  std::string split;  // as in split_range; empty: every sequence
  SplitPart part = SplitPart::train;
  std::optional<int64_t> num_samples;  // of the whole run; absent: one epoch of every source
  bool drop_last_partial = true;       // as in build_megatron_index
  int64_t vocabulary = 0;              // tokens must be below
  std::optional<int32_t> pad_id;       // targets that are this token are masked; inputs that are this token become 0
};

// A single source is not blended, whatever its weight. Several sources with weights are blended by weight into
// num_samples samples; without weights, each source is used once, in proportion to its size. Attention and positions
// cross document boundaries. Immutable.
class MegatronDataset : public SequenceSet {
 public:
  struct Member {
    formats::MegatronFile file;
    SequenceRange range;
    MegatronIndex index;
  };

  // Errors: usage without a source, for weights on only some sources, for a weight that is not a number above 0, for
  // weights without num_samples, and when sources without weights have fewer than num_samples samples; unsupported for
  // files of floating-point values; resource when a blend needs more samples of a source than were built for it; else
  // as MegatronFile, split_range and build_megatron_index.
  static MegatronDataset build(std::span<const MegatronSource> sources, const MegatronSettings& settings);

  // Samples in one epoch of all sources, for run lengths given in epochs. Ignores num_samples. Errors: as build.
  static int64_t epoch_samples(std::span<const MegatronSource> sources, const MegatronSettings& settings);

  int64_t num_sequences() const override { return statistics_.num_sequences; }
  int64_t sequence_length() const override { return settings_.sequence_length; }
  // Errors: also corrupt for a token outside the vocabulary, naming its sample.
  PackedSequence get(int64_t index) const override;
  const DatasetStatistics& statistics() const override { return statistics_; }
  // Hash of every .idx, the size and 64 blocks of every .bin, and the parameters of the order; not of all tokens.
  const std::string& content_hash() const override { return content_hash_; }

  struct SourceSample {
    int64_t source = 0;
    int64_t sample = 0;  // in members()[source].index, before its shuffle
  };
  SourceSample locate(int64_t index) const;  // REQUIRES an index in range
  const std::vector<Member>& members() const { return members_; }
  const Blend& blend() const { return blend_; }  // empty for one source

 private:
  MegatronDataset() = default;
  void mix(std::span<const MegatronSource> sources);
  void count();
  void hash(std::span<const MegatronSource> sources);

  MegatronSettings settings_;
  std::vector<Member> members_;
  Blend blend_;
  DatasetStatistics statistics_;
  std::string content_hash_;
};

}  // namespace ingot::data

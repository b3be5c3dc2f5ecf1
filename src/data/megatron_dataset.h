// Megatron-LM's data sets as sequences: index n is the n-th sample that Megatron trains on.
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
  std::filesystem::path path;    // as formats::megatron_prefix takes it
  std::optional<double> weight;  // its share of the samples, relative to the others'; all have one, or none
};

enum class SplitPart { train, valid };

struct MegatronSettings {
  int64_t sequence_length = 0;
  uint32_t seed = 0;
  std::string split;  // as split_range takes it; empty: every sequence
  SplitPart part = SplitPart::train;
  std::optional<int64_t> num_samples;  // of the whole run; none: one epoch of every source
  bool drop_last_partial = true;       // as build_megatron_index takes it
  int64_t vocabulary = 0;              // tokens from here on are refused
  std::optional<int32_t> pad_id;       // where the label is this token nothing counts, and 0 stands in its place
};

// One source is not blended, whatever its weight. Several with weights are mixed by them, for num_samples; without
// weights each comes once, all in proportion. Attention and positions run across the borders of documents. Immutable.
class MegatronDataset : public SequenceSet {
 public:
  struct Member {
    formats::MegatronFile file;
    SequenceRange range;
    MegatronIndex index;
  };

  // Errors: usage for no source, weights for some only, a weight that is no number above 0, weights without
  // num_samples, and more samples than sources without weights have; unsupported for files of real numbers; resource
  // when a blend asks for more of a source than was made for it; else as MegatronFile, split_range and
  // build_megatron_index.
  static MegatronDataset build(std::span<const MegatronSource> sources, const MegatronSettings& settings);

  // Samples of one epoch of every source: what a length in epochs is counted in. num_samples plays no part. Errors: as
  // build.
  static int64_t epoch_samples(std::span<const MegatronSource> sources, const MegatronSettings& settings);

  int64_t num_sequences() const override { return statistics_.num_sequences; }
  int64_t sequence_length() const override { return settings_.sequence_length; }
  // Errors: also corrupt for a token beyond the vocabulary, naming its sample.
  PackedSequence get(int64_t index) const override;
  const DatasetStatistics& statistics() const override { return statistics_; }
  // Over every .idx, the size of every .bin with 64 blocks of it, and what decides the order: not over all tokens.
  const std::string& content_hash() const override { return content_hash_; }

  struct Place {
    int64_t source = 0;
    int64_t sample = 0;  // of members()[source].index, before its shuffle
  };
  Place place(int64_t index) const;  // REQUIRES an index in range
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

#include "data/megatron_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "storage/uri.h"

namespace ingot::data {

namespace {

constexpr double surplus = 0.005;  // extra fraction of samples that is built for a weighted source, as in Megatron
constexpr size_t max_sources = std::numeric_limits<int16_t>::max() - 1;

// Validates the sources; returns whether they have weights.
bool check_sources(std::span<const MegatronSource> sources) {
  if (sources.empty()) throw_error(ErrorKind::usage, "no data file is given");
  if (sources.size() > max_sources) {
    throw_error(ErrorKind::usage, "{} sources; a blend supports at most {}", sources.size(), max_sources);
  }
  const bool weighted = sources[0].weight.has_value();
  for (const MegatronSource& source : sources) {
    if (source.weight.has_value() != weighted) {
      throw_hint(ErrorKind::usage, "give a weight to all sources or to none",
                 "{} has {} weight, other sources of the blend have {}", shown(source.path.string()),
                 weighted ? "no" : "a", weighted ? "one" : "none");
    }
    if (weighted && (!std::isfinite(*source.weight) || *source.weight <= 0)) {
      throw_error(ErrorKind::usage, "{}: its weight is {}; it must be a number above 0", shown(source.path.string()),
                  *source.weight);
    }
  }
  return weighted;
}

// The sources' normalised weights, from which Megatron computes how many samples of each to build.
std::vector<double> shares_of(std::span<const MegatronSource> sources) {
  std::vector<double> weights;
  for (const MegatronSource& source : sources) weights.push_back(*source.weight);
  return normalise(weights);
}

double planned(double share, int64_t num_samples) { return std::ceil(static_cast<double>(num_samples) * share); }

MegatronDataset::Member open(const MegatronSource& source, const MegatronSettings& settings) {
  MegatronDataset::Member member{formats::MegatronFile(source.path), {}, {}};
  if (!formats::holds_tokens(member.file.dtype())) {
    throw_error(ErrorKind::unsupported, "{}.bin: holds {} values, which are not token ids", member.file.source(),
                formats::name(member.file.dtype()));
  }
  member.range = {0, member.file.num_sequences()};
  if (!settings.split.empty()) {
    member.range = split_range(settings.split, settings.part == SplitPart::train ? 0 : 1, member.range.last);
  }
  return member;
}

}  // namespace

MegatronDataset MegatronDataset::build(std::span<const MegatronSource> sources, const MegatronSettings& settings) {
  const bool weighted = check_sources(sources) && sources.size() > 1;
  if (weighted && !settings.num_samples) {
    throw_hint(ErrorKind::usage, "remove the weights: each source is then used once",
               "sources with weights are repeated without end, so they need a number of samples");
  }
  MegatronDataset dataset;
  dataset.settings_ = settings;
  const std::vector<double> shares = weighted ? shares_of(sources) : std::vector<double>{};
  for (size_t k = 0; k < sources.size(); ++k) {
    Member member = open(sources[k], settings);
    std::optional<int64_t> number = sources.size() == 1 ? settings.num_samples : std::nullopt;
    if (weighted) {
      number = static_cast<int64_t>(std::ceil(planned(shares[k], *settings.num_samples) * (1 + surplus)));
    }
    member.index = build_megatron_index(member.file, member.range, settings.sequence_length, number, settings.seed,
                                        settings.drop_last_partial);
    dataset.members_.push_back(std::move(member));
  }
  if (sources.size() > 1) dataset.mix(sources);
  dataset.count();
  dataset.hash(sources);
  return dataset;
}

void MegatronDataset::mix(std::span<const MegatronSource> sources) {
  std::vector<int64_t> sizes;
  for (const Member& member : members_) sizes.push_back(member.index.num_samples());
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (sources[0].weight) {
    const std::vector<double> shares = shares_of(sources);
    int64_t size = 0;
    for (const double share : shares) size += static_cast<int64_t>(planned(share, *settings_.num_samples));
    blend_ = blend_by_weight(normalise(shares), size);  // normalised a second time, as in Megatron
  } else if (!settings_.num_samples) {
    blend_ = blend_all(sizes);
  } else {
    if (*settings_.num_samples > total) {
      throw_hint(ErrorKind::usage, "give the sources weights, so that they are repeated, or shorten the run",
                 "the run needs {} samples, but its sources without weights have only {}", *settings_.num_samples,
                 total);
    }
    const std::vector<double> weights(sizes.begin(), sizes.end());
    blend_ = blend_by_weight(normalise(weights), *settings_.num_samples);
  }
  std::vector<int64_t> counts(members_.size());
  for (const int16_t source : blend_.source) ++counts[static_cast<size_t>(source)];
  for (size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] <= sizes[k]) continue;
    throw_hint(ErrorKind::resource, "change the weights or the length of the run slightly",
               "the blend needs {} samples of {}, for which Megatron builds only {}", counts[k],
               members_[k].file.source(), sizes[k]);
  }
}

int64_t MegatronDataset::epoch_samples(std::span<const MegatronSource> sources, const MegatronSettings& settings) {
  check_sources(sources);
  int64_t samples = 0;
  for (const MegatronSource& source : sources) {
    const Member member = open(source, settings);
    int64_t tokens = 0;
    for (int64_t id = member.range.first; id < member.range.last; ++id) tokens += member.file.length(id);
    samples += samples_of(tokens, settings.sequence_length, settings.drop_last_partial);
  }
  return samples;
}

MegatronDataset::SourceSample MegatronDataset::locate(int64_t index) const {
  const size_t n = static_cast<size_t>(index);
  if (members_.size() == 1) return {0, members_[0].index.shuffle[n]};
  const int64_t source = blend_.source[n];
  const MegatronIndex& order = members_[static_cast<size_t>(source)].index;
  return {source, order.shuffle[static_cast<size_t>(blend_.sample[n])]};
}

PackedSequence MegatronDataset::get(int64_t index) const {
  if (index < 0 || index >= num_sequences()) {
    throw_error(ErrorKind::usage, "sequence {} is out of range; there are {}", index, num_sequences());
  }
  const SourceSample where = locate(index);
  const Member& member = members_[static_cast<size_t>(where.source)];
  std::vector<int32_t> tokens = read_sample(member.file, member.index, where.sample, settings_.sequence_length);
  const auto largest = std::max_element(tokens.begin(), tokens.end());
  if (*largest >= settings_.vocabulary) {
    throw_hint(ErrorKind::corrupt, "tokenize the data with the model's tokenizer",
               "{}.bin: sample {} has token {}, which is not in the vocabulary of {}", member.file.source(),
               where.sample, *largest, settings_.vocabulary);
  }
  PackedSequence sequence;
  const auto length = static_cast<size_t>(settings_.sequence_length), real = std::min(tokens.size(), length);
  sequence.targets.assign(tokens.begin() + 1, tokens.end());
  sequence.targets.resize(length, -1);
  tokens.resize(length, 0);
  sequence.ids = std::move(tokens);
  if (settings_.pad_id) {
    std::replace(sequence.ids.begin(), sequence.ids.end(), *settings_.pad_id, 0);
    std::replace(sequence.targets.begin(), sequence.targets.end(), *settings_.pad_id, -1);
  }
  sequence.offsets = {0, static_cast<int32_t>(real)};
  sequence.sample_ids = {where.sample};
  if (real < length) {
    sequence.offsets.push_back(static_cast<int32_t>(length));
    sequence.sample_ids.push_back(-1);
  }
  sequence.loss_tokens =
      std::count_if(sequence.targets.begin(), sequence.targets.end(), [](int32_t t) { return t >= 0; });
  return sequence;
}

void MegatronDataset::count() {
  statistics_.num_files = std::ssize(members_);
  for (const Member& member : members_) {
    statistics_.num_documents += member.range.size();
    statistics_.num_entries += std::ssize(member.index.documents);
  }
  statistics_.num_sequences = members_.size() == 1 ? members_[0].index.num_samples() : std::ssize(blend_.source);
  const int64_t length = settings_.sequence_length, positions = statistics_.num_sequences * length;
  statistics_.num_tokens = statistics_.num_loss_tokens = positions;
  statistics_.squared_lengths = static_cast<double>(positions) * static_cast<double>(length);
  if (!settings_.drop_last_partial) {
    for (const Member& member : members_) {
      int64_t last = -(member.index.num_samples() - 1) * length;  // tokens in the last sample
      for (const int32_t document : member.index.documents) last += member.file.length(document);
      const int64_t real = std::min(last, length), padding = length - real;
      statistics_.longest = std::max(statistics_.longest, member.index.num_samples() > 1 ? length : real);
      statistics_.num_tokens -= padding;
      statistics_.num_loss_tokens -= length - std::min(last - 1, length);
      statistics_.squared_lengths -= 2 * static_cast<double>(real) * static_cast<double>(padding);
    }
  } else {
    statistics_.longest = length;
  }
  statistics_.packing_efficiency = static_cast<double>(statistics_.num_tokens) / static_cast<double>(positions);
}

void MegatronDataset::hash(std::span<const MegatronSource> sources) {
  constexpr size_t blocks = 64, block = 4096;
  Sha256 digest;
  const auto add = [&digest](std::span<const int64_t> values) { digest.update(std::as_bytes(values)); };
  add(std::array<int64_t, 4>{1, settings_.sequence_length, settings_.seed, settings_.pad_id.value_or(-1)});
  if (!settings_.drop_last_partial) add(std::array<int64_t, 1>{2});
  for (const Member& member : members_) {
    const std::span<const std::byte> index = member.file.index_bytes(), tokens = member.file.token_bytes();
    const MegatronIndex& order = member.index;
    add(std::array<int64_t, 6>{std::ssize(index), std::ssize(tokens), member.range.first, member.range.last,
                               order.num_epochs, order.separate_final_epoch ? 1 : 0});
    digest.update(index);
    for (size_t i = 0; i < blocks; ++i) {
      const size_t begin = tokens.size() / blocks * i;
      digest.update(tokens.subspan(begin, std::min(block, tokens.size() - begin)));
    }
  }
  for (const MegatronSource& source : sources) {  // the blend's weights, independent of the run's length
    const double weight = sources.size() > 1 ? source.weight.value_or(0) : 0;
    digest.update(std::as_bytes(std::span(&weight, 1)));
  }
  content_hash_ = digest.hex();
}

}  // namespace ingot::data

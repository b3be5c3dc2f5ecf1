#include "data/megatron_order.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/numpy_random.h"
#include "base/numpy_sum.h"

namespace ingot::data {

namespace {

constexpr int64_t extra = 1;               // token that consecutive samples share
constexpr double last_epoch_share = 0.80;  // a last epoch that is used to less than this is shuffled separately
constexpr int64_t max_count = std::numeric_limits<uint32_t>::max() - 2;

// Appends the range once per epoch and shuffles all of it together.
void add_epochs(std::vector<int32_t>& documents, SequenceRange range, int64_t epochs, NumpyRandomState& random) {
  const size_t begin = documents.size();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t id = range.first; id < range.last; ++id) documents.push_back(static_cast<int32_t>(id));
  }
  random.shuffle(std::span(documents).subspan(begin));
}

// Cuts the documents into `num_samples` samples of L tokens plus the shared one; the last may be shorter.
void cut_samples(MegatronIndex& index, const formats::MegatronFile& file, int64_t sequence_length,
                 int64_t num_samples) {
  index.positions.reserve(static_cast<size_t>(num_samples) + 1);
  index.offsets.reserve(static_cast<size_t>(num_samples) + 1);
  int64_t position = 0, offset = 0;
  for (int64_t sample = 0; sample <= num_samples; ++sample) {
    index.positions.push_back(position);
    index.offsets.push_back(static_cast<int32_t>(offset));
    if (sample == num_samples) break;
    // The next sample starts at this one's last token, which both share, so a start is never past the last token.
    int64_t wanted = sequence_length + extra;
    for (;;) {
      const int64_t left = file.length(index.documents[static_cast<size_t>(position)]) - offset;
      if (wanted <= left || position + 1 == std::ssize(index.documents)) {
        offset += std::min(wanted, left) - extra;
        break;
      }
      wanted -= left;
      ++position;
      offset = 0;
    }
  }
}

}  // namespace

SequenceRange split_range(const std::string& split, int part, int64_t num_sequences) {
  const auto refuse = [&] {
    throw_hint(ErrorKind::usage, "give the shares of training, validation and test, such as 969,30,1",
               "data.split '{}' is not a list of one to three numbers", split);
  };
  std::vector<double> shares;
  const char* text = split.c_str();
  for (;;) {
    char* end = nullptr;
    const double share = std::strtod(text, &end);
    if (end == text || !std::isfinite(share) || share < 0) refuse();
    shares.push_back(share);
    while (*end == ' ') ++end;
    if (*end == '\0') break;
    if (*end != ',') refuse();
    text = end + 1;
  }
  if (shares.size() > 3 || std::all_of(shares.begin(), shares.end(), [](double share) { return share == 0; })) refuse();
  shares.resize(3);
  shares = normalise(shares);
  double border = 0;
  for (int i = 0; i < part; ++i) border += shares[static_cast<size_t>(i)];
  const double count = static_cast<double>(num_sequences);
  const auto border_of = [&](double share) {
    return std::min(static_cast<int64_t>(std::nearbyint(share * count)), num_sequences);
  };
  return {border_of(border), border_of(border + shares[static_cast<size_t>(part)])};
}

int64_t samples_of(int64_t tokens, int64_t sequence_length, bool drop_last_partial) {
  const int64_t whole = std::max<int64_t>(tokens - extra, 0) / sequence_length;
  return drop_last_partial || whole * sequence_length + extra >= tokens ? whole : whole + 1;
}

MegatronIndex build_megatron_index(const formats::MegatronFile& file, SequenceRange range, int64_t sequence_length,
                                   std::optional<int64_t> num_samples, uint32_t seed, bool drop_last_partial) {
  if (!std::in_range<int32_t>(range.last)) {
    throw_error(ErrorKind::unsupported, "{}: {} sequences; Megatron's order supports at most 2^31 - 1", file.source(),
                range.last);
  }
  int64_t tokens = 0;
  for (int64_t id = range.first; id < range.last; ++id) tokens += file.length(id);
  const int64_t per_epoch = (tokens - extra) / sequence_length;
  if (tokens == 0 || (!num_samples && samples_of(tokens, sequence_length, drop_last_partial) == 0)) {
    throw_hint(ErrorKind::corrupt, "use a shorter sequence_length, or more data",
               "{}: the {} sequences in use have {} tokens, fewer than one sample of {} and one more", file.source(),
               range.size(), tokens, sequence_length);
  }
  MegatronIndex index;
  if (num_samples) {
    const double wanted = static_cast<double>(*num_samples) * static_cast<double>(sequence_length);
    const double entries = wanted / static_cast<double>(tokens) * static_cast<double>(range.size());
    if (*num_samples > max_count || entries > static_cast<double>(max_count)) {
      throw_hint(ErrorKind::resource, "lower the number of steps", "{}: {} samples of {} tokens are too many",
                 file.source(), *num_samples, sequence_length);
    }
    index.num_epochs = std::max<int64_t>(1, (*num_samples * sequence_length + extra + tokens - 1) / tokens);
  }
  const int64_t before_last = ((index.num_epochs - 1) * tokens - extra) / sequence_length;
  if (index.num_epochs > 1) {
    const int64_t from_last = *num_samples - before_last;
    index.separate_final_epoch = from_last < static_cast<int64_t>(last_epoch_share * static_cast<double>(per_epoch));
  }
  const int64_t total = samples_of(index.num_epochs * tokens, sequence_length, drop_last_partial);
  if (total > max_count) {
    throw_hint(ErrorKind::resource, "use a longer sequence_length, or a split", "{}: {} samples exceed the limit of {}",
               file.source(), total, max_count);
  }
  NumpyRandomState random(seed);
  index.documents.reserve(static_cast<size_t>(index.num_epochs * range.size()));
  const int64_t apart = index.separate_final_epoch ? 1 : 0;
  add_epochs(index.documents, range, index.num_epochs - apart, random);
  if (index.separate_final_epoch) add_epochs(index.documents, range, 1, random);
  cut_samples(index, file, sequence_length, total);
  index.shuffle.resize(static_cast<size_t>(total));
  std::iota(index.shuffle.begin(), index.shuffle.end(), 0U);
  const size_t first = index.separate_final_epoch ? static_cast<size_t>(before_last) : index.shuffle.size();
  random.shuffle(std::span(index.shuffle).first(first));
  random.shuffle(std::span(index.shuffle).subspan(first));
  return index;
}

std::vector<int32_t> read_sample(const formats::MegatronFile& file, const MegatronIndex& index, int64_t sample,
                                 int64_t sequence_length) {
  std::vector<int32_t> tokens(static_cast<size_t>(sequence_length + extra));
  std::span<int32_t> left(tokens);
  int64_t offset = index.offsets[static_cast<size_t>(sample)];
  for (size_t position = static_cast<size_t>(index.positions[static_cast<size_t>(sample)]);
       !left.empty() && position < index.documents.size(); ++position) {
    const int32_t document = index.documents[position];
    const size_t here = std::min(left.size(), static_cast<size_t>(file.length(document) - offset));
    file.read(document, offset, left.first(here));
    left = left.subspan(here);
    offset = 0;
  }
  tokens.resize(tokens.size() - left.size());
  return tokens;
}

std::vector<double> normalise(std::span<const double> weights) {
  const double sum = numpy_sum(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

namespace {

// Assigns each of `size` samples to the source that is furthest behind its share, of equal ones the first. A source
// that has reached its entry in `limits` is skipped.
Blend blend(std::span<const double> weights, std::span<const int64_t> limits, int64_t size) {
  Blend order;
  order.source.reserve(static_cast<size_t>(size));
  order.sample.reserve(static_cast<size_t>(size));
  std::vector<int64_t> counts(weights.size());
  for (int64_t n = 0; n < size; ++n) {
    const double position = std::max(static_cast<double>(n), 1.0);
    double largest = std::numeric_limits<double>::lowest();
    size_t chosen = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      if (!limits.empty() && counts[k] == limits[k]) continue;
      const double lag = weights[k] * position - static_cast<double>(counts[k]);
      if (lag <= largest) continue;
      largest = lag;
      chosen = k;
    }
    order.source.push_back(static_cast<int16_t>(chosen));
    order.sample.push_back(counts[chosen]++);
  }
  return order;
}

}  // namespace

Blend blend_by_weight(std::span<const double> weights, int64_t size) { return blend(weights, {}, size); }

Blend blend_all(std::span<const int64_t> sizes) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<double> weights;
  for (const int64_t size : sizes) weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  return blend(weights, sizes, total);
}

}  // namespace ingot::data

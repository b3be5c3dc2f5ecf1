#include "data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace ingot::data {

namespace {

bool has_target(const Corpus::View& document, int64_t begin, int64_t length) {
  const auto targets = document.loss_mask.subspan(static_cast<size_t>(begin), static_cast<size_t>(length)).subspan(1);
  return std::any_of(targets.begin(), targets.end(), [](uint8_t counted) { return counted != 0; });
}

void keep(PackingPlan& plan, const Corpus::View& document, Subsequence subsequence) {
  if (subsequence.length < 1 || !has_target(document, subsequence.begin, subsequence.length)) {
    ++plan.num_without_loss_tokens;
    return;
  }
  plan.subsequences.push_back(subsequence);
  plan.num_tokens += subsequence.length;
}

// Cuts the entries into subsequences of at most S tokens, in order.
void cut(PackingPlan& plan, const Corpus& corpus, std::span<const int64_t> entries, const PackingSettings& settings) {
  const int64_t limit = settings.sequence_length;
  for (const int64_t entry : entries) {
    const Corpus::View document = corpus.document(entry);
    const int64_t length = static_cast<int64_t>(document.ids.size());
    if (length <= limit) {
      keep(plan, document, {entry, 0, length});
    } else if (document.splittable) {
      for (int64_t begin = 0; begin < length; begin += limit) {
        keep(plan, document, {entry, begin, std::min(limit, length - begin)});
      }
    } else if (settings.too_long == TooLong::truncate) {
      ++plan.num_truncated;
      keep(plan, document, {entry, 0, limit});
    } else if (settings.too_long == TooLong::skip) {
      ++plan.num_skipped;
    } else {
      throw_hint(ErrorKind::corrupt, "use a longer sequence_length, or too_long: truncate or skip",
                 "document {} has {} tokens, more than the sequence length {}", entry, length, limit);
    }
  }
}

}  // namespace

TooLong parse_too_long(std::string_view word) {
  if (word == "truncate") return TooLong::truncate;
  if (word == "skip") return TooLong::skip;
  if (word == "stop") return TooLong::stop;
  throw_error(ErrorKind::usage, "too_long '{}' is not known; it may be truncate, skip or stop", word);
}

std::vector<int64_t> best_fit_decreasing(std::span<const int64_t> lengths, int64_t capacity) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const int64_t left = lengths[static_cast<size_t>(a)], right = lengths[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  });
  std::vector<int64_t> bins(lengths.size());
  std::set<std::pair<int64_t, int64_t>> open;  // (free tokens, bin), for bins that are not full
  int64_t num_bins = 0;
  for (const int64_t subsequence : order) {
    const int64_t length = lengths[static_cast<size_t>(subsequence)];
    if (length < 1 || length > capacity) {
      throw_error(ErrorKind::internal, "cannot pack a sub-sequence of {} tokens into sequences of {}", length,
                  capacity);
    }
    int64_t room = capacity;
    int64_t bin = num_bins;
    if (const auto found = open.lower_bound({length, 0}); found != open.end()) {
      std::tie(room, bin) = *found;
      open.erase(found);
    } else {
      ++num_bins;
    }
    bins[static_cast<size_t>(subsequence)] = bin;
    if (room > length) open.emplace(room - length, bin);
  }
  return bins;
}

PackingPlan plan_packing(const Corpus& corpus, std::span<const int64_t> entries, const PackingSettings& settings) {
  if (settings.sequence_length < 2) {
    throw_hint(ErrorKind::usage, "use at least 2: each token is predicted from those before it",
               "sequence_length is {}, which is too short", settings.sequence_length);
  }
  if (settings.sequence_length > max_sequence_length) {
    throw_error(ErrorKind::usage, "sequence_length is {}; at most {}", settings.sequence_length, max_sequence_length);
  }
  PackingPlan plan;
  cut(plan, corpus, entries, settings);
  if (plan.subsequences.empty()) {
    throw_hint(ErrorKind::corrupt,
               "use a longer sequence_length: the answers come after it, or the documents are longer and skipped",
               "none of the {} documents has a token to train on in sequences of {} tokens", entries.size(),
               settings.sequence_length);
  }
  if (!settings.packing) {
    plan.first_subsequence.resize(plan.subsequences.size() + 1);
    std::iota(plan.first_subsequence.begin(), plan.first_subsequence.end(), 0);
    return plan;
  }
  std::vector<int64_t> lengths;
  lengths.reserve(plan.subsequences.size());
  for (const Subsequence& subsequence : plan.subsequences) lengths.push_back(subsequence.length);
  const std::vector<int64_t> bins = best_fit_decreasing(lengths, settings.sequence_length);

  // Counting sort by bin: within a bin, subsequences stay in the order of the entries.
  const int64_t num_bins = *std::max_element(bins.begin(), bins.end()) + 1;
  plan.first_subsequence.assign(static_cast<size_t>(num_bins) + 1, 0);
  for (const int64_t bin : bins) ++plan.first_subsequence[static_cast<size_t>(bin) + 1];
  std::partial_sum(plan.first_subsequence.begin(), plan.first_subsequence.end(), plan.first_subsequence.begin());
  std::vector<int64_t> next(plan.first_subsequence.begin(), plan.first_subsequence.end() - 1);
  std::vector<Subsequence> sorted(plan.subsequences.size());
  for (size_t i = 0; i < bins.size(); ++i) {
    sorted[static_cast<size_t>(next[static_cast<size_t>(bins[i])]++)] = plan.subsequences[i];
  }
  plan.subsequences = std::move(sorted);
  return plan;
}

PackedSequence assemble(const Corpus& corpus, const PackingPlan& plan, int64_t index, int64_t sequence_length,
                        int32_t pad_id) {
  if (index < 0 || index >= plan.num_sequences()) {
    throw_error(ErrorKind::usage, "sequence {} is out of range; there are {}", index, plan.num_sequences());
  }
  const size_t length = static_cast<size_t>(sequence_length);
  PackedSequence sequence;
  sequence.ids.reserve(length);
  sequence.targets.reserve(length);
  sequence.offsets.push_back(0);
  const size_t last = static_cast<size_t>(plan.first_subsequence[static_cast<size_t>(index) + 1]);
  for (size_t p = static_cast<size_t>(plan.first_subsequence[static_cast<size_t>(index)]); p < last; ++p) {
    const Subsequence& subsequence = plan.subsequences[p];
    const Corpus::View document = corpus.document(subsequence.document);
    const size_t begin = static_cast<size_t>(subsequence.begin);
    const size_t end = begin + static_cast<size_t>(subsequence.length);
    for (size_t i = begin; i < end; ++i) {
      const bool counts = i + 1 < end && document.loss_mask[i + 1] != 0;
      sequence.ids.push_back(document.ids[i]);
      sequence.targets.push_back(counts ? document.ids[i + 1] : -1);
      if (counts) ++sequence.loss_tokens;
    }
    sequence.offsets.push_back(static_cast<int32_t>(sequence.ids.size()));
    sequence.sample_ids.push_back(subsequence.document);
  }
  if (sequence.ids.size() < length) {
    sequence.ids.resize(length, pad_id);
    sequence.targets.resize(length, -1);
    sequence.offsets.push_back(static_cast<int32_t>(length));
    sequence.sample_ids.push_back(-1);
  }
  return sequence;
}

int64_t num_tokens(const PackedSequence& sequence) {
  int64_t tokens = std::ssize(sequence.ids);
  for (size_t j = 0; j < sequence.sample_ids.size(); ++j) {
    if (sequence.sample_ids[j] < 0) tokens -= sequence.offsets[j + 1] - sequence.offsets[j];
  }
  return tokens;
}

std::vector<int32_t> positions(const PackedSequence& sequence) {
  std::vector<int32_t> places(sequence.ids.size());
  for (size_t j = 0; j + 1 < sequence.offsets.size(); ++j) {
    std::iota(places.begin() + sequence.offsets[j], places.begin() + sequence.offsets[j + 1], 0);
  }
  return places;
}

}  // namespace ingot::data

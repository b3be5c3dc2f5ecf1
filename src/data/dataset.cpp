#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "data/sampler.h"
#include "data/tokenized.h"
#include "storage/uri.h"

namespace ingot::data {

namespace {

// Maximum documents in an epoch, after weighting: 2 GiB of memory.
constexpr int64_t max_entries = int64_t{1} << 28;

// Adds documents first .. first + number of a source, in order and as often as the source's weight says.
void add_entries(std::vector<int64_t>& entries, int64_t first, int64_t number, const Source& source, uint64_t seed,
                 uint64_t stream) {
  const double wanted = static_cast<double>(entries.size()) + source.weight * static_cast<double>(number);
  if (wanted > max_entries) {
    throw_hint(ErrorKind::usage, "lower the weight", "{}: with a weight of {}, an epoch has more than {} documents",
               shown(source.path.string()), source.weight, max_entries);
  }
  const double whole = std::floor(source.weight);
  for (double repeat = 0; repeat < whole; ++repeat) {
    for (int64_t i = 0; i < number; ++i) entries.push_back(first + i);
  }
  const int64_t more = std::llround((source.weight - whole) * static_cast<double>(number));
  const Permutation order(number, seed, stream);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < more; ++i) chosen.push_back(first + order(i));
  std::sort(chosen.begin(), chosen.end());
  entries.insert(entries.end(), chosen.begin(), chosen.end());
}

template <class T>
void update(Sha256& digest, std::span<const T> values) {
  const int64_t number = static_cast<int64_t>(values.size());
  digest.update(std::as_bytes(std::span(&number, 1)));
  digest.update(std::as_bytes(values));
}

}  // namespace

Dataset Dataset::build(std::span<const Source> sources, const text::Tokenizer& tokenizer,
                       const text::ChatTemplate* chat_template, const DatasetSettings& settings, ThreadPool& pool) {
  if (sources.empty()) throw_error(ErrorKind::usage, "no data file is given");
  Dataset dataset;
  DatasetStatistics& statistics = dataset.statistics_;
  std::vector<int64_t> entries;
  for (size_t s = 0; s < sources.size(); ++s) {
    const Source& source = sources[s];
    if (!std::isfinite(source.weight) || source.weight <= 0) {
      throw_error(ErrorKind::usage, "{}: its weight is {}; it must be a number above 0", shown(source.path.string()),
                  source.weight);
    }
    DocumentReader reader(source.path, settings.format, settings.on_error);
    const int64_t first = dataset.corpus_.num_documents();
    const TokenizeReport report =
        tokenize_all(dataset.corpus_, reader, tokenizer, chat_template, settings.on_error, pool);
    const Format format = reader.format();
    dataset.is_chat_ = dataset.is_chat_ || is_rendered_as_chat(format, chat_template != nullptr);
    add_entries(entries, first, dataset.corpus_.num_documents() - first, source, settings.seed, s);
    statistics.num_bad_lines += report.num_skipped;
    if (statistics.first_bad_line.empty()) statistics.first_bad_line = report.first_skipped;
  }
  dataset.plan_ = plan_packing(dataset.corpus_, entries, settings.packing);
  dataset.sequence_length_ = settings.packing.sequence_length;
  dataset.pad_id_ = tokenizer.pad_id().value_or(tokenizer.eos_id().value_or(0));
  statistics.num_files = static_cast<int64_t>(sources.size());
  statistics.num_entries = static_cast<int64_t>(entries.size());
  dataset.count();
  dataset.hash();
  return dataset;
}

PackedSequence Dataset::get(int64_t index) const { return assemble(corpus_, plan_, index, sequence_length_, pad_id_); }

bool Dataset::one_document_a_sequence() const {
  const int64_t documents = corpus_.num_documents();
  if (plan_.num_sequences() != documents || std::ssize(plan_.subsequences) != documents) return false;
  for (int64_t i = 0; i < documents; ++i) {
    const Subsequence& subsequence = plan_.subsequences[static_cast<size_t>(i)];
    if (plan_.first_subsequence[static_cast<size_t>(i)] != i || subsequence.document != i ||
        subsequence.length != std::ssize(corpus_.document(i).ids)) {
      return false;
    }
  }
  return true;
}

void Dataset::count() {
  statistics_.num_documents = corpus_.num_documents();
  statistics_.num_truncated = plan_.num_truncated;
  statistics_.num_too_long = plan_.num_skipped;
  statistics_.num_without_loss_tokens = plan_.num_without_loss_tokens;
  statistics_.num_sequences = plan_.num_sequences();
  statistics_.num_tokens = plan_.num_tokens;
  for (const Subsequence& subsequence : plan_.subsequences) {
    const auto loss_mask =
        corpus_.document(subsequence.document)
            .loss_mask.subspan(static_cast<size_t>(subsequence.begin), static_cast<size_t>(subsequence.length));
    statistics_.num_loss_tokens += std::count(loss_mask.begin() + 1, loss_mask.end(), 1);
    statistics_.longest = std::max(statistics_.longest, subsequence.length);
  }
  for (int64_t i = 0; i < plan_.num_sequences(); ++i) {
    int64_t padding = sequence_length_;
    for (int64_t p = plan_.first_subsequence[static_cast<size_t>(i)];
         p < plan_.first_subsequence[static_cast<size_t>(i) + 1]; ++p) {
      const int64_t length = plan_.subsequences[static_cast<size_t>(p)].length;
      statistics_.squared_lengths += static_cast<double>(length * length);
      padding -= length;
    }
    statistics_.squared_lengths += static_cast<double>(padding * padding);
  }
  statistics_.packing_efficiency =
      static_cast<double>(plan_.num_tokens) / static_cast<double>(plan_.num_sequences() * sequence_length_);
}

void Dataset::hash() {
  Sha256 digest;
  const std::array<int64_t, 3> shape = {1, sequence_length_, pad_id_};  // 1: version of the hashed data
  update(digest, std::span<const int64_t>(shape));
  update(digest, std::span<const int64_t>(plan_.first_subsequence));
  for (const Subsequence& subsequence : plan_.subsequences) {
    const Corpus::View document = corpus_.document(subsequence.document);
    const size_t begin = static_cast<size_t>(subsequence.begin), length = static_cast<size_t>(subsequence.length);
    update(digest, document.ids.subspan(begin, length));
    update(digest, document.loss_mask.subspan(begin, length));
  }
  content_hash_ = digest.hex();
}

}  // namespace ingot::data

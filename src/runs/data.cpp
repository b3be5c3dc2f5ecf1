#include "runs/data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "data/dataset.h"
#include "data/packed_dataset.h"
#include "data/sampler.h"
#include "data/streaming_sampler.h"
#include "runs/plan.h"
#include "storage/uri.h"

namespace ingot::runs {

namespace {

using Sources = OneOrMany<train::SourceRecipe>;

void report(const Log& log, const char* what, const data::SequenceSet& set) {
  const data::DatasetStatistics& s = set.statistics();
  const int64_t length = set.sequence_length();
  log.info("{}: {} documents, {} tokens ({} count in the loss) in {} sequences of {}, {:.1f} % full", what,
           s.num_entries, s.num_tokens, s.num_loss_tokens, s.num_sequences, length, 100 * s.packing_efficiency);
  if (s.num_bad_lines)
    log.warning("{}: {} malformed lines skipped; the first: {}", what, s.num_bad_lines, s.first_bad_line);
  if (s.num_truncated) log.warning("{}: {} documents truncated to {} tokens", what, s.num_truncated, length);
  if (s.num_too_long) {
    log.warning("{}: {} documents longer than {} tokens skipped", what, s.num_too_long, length);
  }
}

// Whether the held-out data are Megatron data sets. Errors: usage where only some of them are.
bool held_out_by_megatron(const Sources& list) {
  const auto is_megatron = [](const train::SourceRecipe& source) { return data::is_megatron(source.path); };
  const int64_t number = std::count_if(list.values.begin(), list.values.end(), is_megatron);
  if (number == 0 || number == std::ssize(list.values)) return number > 0;
  const auto found = std::find_if(list.values.begin(), list.values.end(), is_megatron);
  throw_hint(ErrorKind::usage, "use only Megatron data sets in data.eval, or none",
             "{}: is a Megatron data set, but data.eval also has files of other formats", shown(found->path));
}

data::Dataset read_documents(const train::Recipe& r, const Sources& list, bool weighted,
                             const checkpoint::TextAssets& text, ThreadPool& threads) {
  if (!text.tokenizer) {
    throw_hint(ErrorKind::not_found, "add tokenizer.json to the model's folder", "model {} has no tokenizer", r.model);
  }
  std::optional<text::ChatTemplate> chat;
  if (text.chat_template) chat.emplace(*text.chat_template, r.model);
  std::vector<data::Source> sources;
  for (const train::SourceRecipe& source : list.values) {
    if (data::is_megatron(source.path)) {
      throw_hint(ErrorKind::unsupported, "set data.order: megatron",
                 "{}: is a Megatron data set, which is only supported with data.order: megatron", shown(source.path));
    }
    sources.push_back({source.path, weighted ? source.weight.value_or(1) : 1});
  }
  data::DatasetSettings settings;
  settings.format = r.data.format;
  settings.on_error = r.data.on_error;
  settings.packing = {r.data.sequence_length, r.data.packing, r.data.too_long};
  settings.seed = static_cast<uint64_t>(r.data.seed);
  return data::Dataset::build(sources, *text.tokenizer, chat ? &*chat : nullptr, settings, threads);
}

// Whether the sources are packed data. Errors: usage where only some are.
bool were_packed(const Sources& list) {
  const auto is_packed = [](const train::SourceRecipe& source) { return data::is_packed(source.path); };
  const int64_t number = std::count_if(list.values.begin(), list.values.end(), is_packed);
  if (number == 0 || number == std::ssize(list.values)) return number > 0;
  const auto found = std::find_if(list.values.begin(), list.values.end(), is_packed);
  throw_hint(ErrorKind::usage, "use only packed data in this list, or none",
             "{}: is packed, but other data in the same list is not", shown(found->path));
}

std::unique_ptr<data::PackedDataset> read_packed(const train::Recipe& r, const Sources& list, bool weighted,
                                                 int64_t vocabulary) {
  std::vector<data::Source> sources;
  for (const train::SourceRecipe& source : list.values) {
    sources.push_back({source.path, weighted ? source.weight.value_or(1) : 1});
  }
  return std::make_unique<data::PackedDataset>(sources, r.data.sequence_length, vocabulary);
}

std::vector<data::MegatronSource> megatron_sources(const Sources& list) {
  std::vector<data::MegatronSource> sources;
  for (const train::SourceRecipe& source : list.values) {
    if (!data::is_megatron(source.path)) {
      throw_hint(ErrorKind::usage, "give the path of a .idx and .bin pair without the suffix",
                 "{}: is not a Megatron data set, as data.order: megatron requires", shown(source.path));
    }
    sources.push_back({source.path, source.weight});
  }
  return sources;
}

data::MegatronSettings megatron_settings(const train::Recipe& r, int64_t vocabulary, std::optional<int32_t> pad_id) {
  data::MegatronSettings settings;
  settings.sequence_length = r.data.sequence_length;
  settings.seed = static_cast<uint32_t>(r.data.seed);  // not used for held-out data
  settings.split = r.data.split;
  settings.vocabulary = vocabulary;
  settings.pad_id = pad_id;
  return settings;
}

// The settings for held-out data sets.
data::MegatronSettings held_out_settings(const train::Recipe& r, int64_t vocabulary, std::optional<int32_t> pad_id) {
  data::MegatronSettings settings = megatron_settings(r, vocabulary, pad_id);
  settings.drop_last_partial = r.data.drop_last_partial;
  return settings;
}

// The padding id, which Megatron masks out of the loss; absent for a padding token that has another use too.
std::optional<int32_t> padding_of(const text::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return std::nullopt;
  const std::optional<int32_t> pad = tokenizer->pad_id();
  const bool shared = pad == tokenizer->eos_id() || pad == tokenizer->bos_id() || pad == tokenizer->unk_id();
  return shared ? std::nullopt : pad;
}

}  // namespace

std::unique_ptr<data::MegatronDataset> read_megatron_split(const train::Recipe& r, int64_t vocabulary,
                                                           std::optional<int32_t> pad_id, const Log& log) {
  data::MegatronSettings settings = held_out_settings(r, vocabulary, pad_id);
  settings.part = data::SplitPart::valid;
  if (data::split_range(r.data.split, 1, std::numeric_limits<int32_t>::max()).size() == 0) return nullptr;  // not set
  std::vector<data::MegatronSource> sources;
  for (data::MegatronSource& source : megatron_sources(r.data.train)) {
    source.weight.reset();
    if (data::MegatronDataset::epoch_samples(std::span(&source, 1), settings) > 0) {
      sources.push_back(std::move(source));
      continue;
    }
    log.warning(
        "{}: the share that data.split {} holds out is shorter than a sequence of {} and one more token; it is not "
        "used",
        shown(source.path.string()), r.data.split, r.data.sequence_length);
  }
  if (sources.empty()) {
    log.warning("no held-out data: the run will not be evaluated");
    return nullptr;
  }
  return std::make_unique<data::MegatronDataset>(data::MegatronDataset::build(sources, settings));
}

data::MegatronDataset read_megatron(train::Recipe& r, int64_t vocabulary, std::optional<int32_t> pad_id) {
  const std::vector<data::MegatronSource> sources = megatron_sources(r.data.train);
  data::MegatronSettings settings = megatron_settings(r, vocabulary, pad_id);
  r.steps = steps_of(r, r.epochs ? data::MegatronDataset::epoch_samples(sources, settings) : 0);
  r.epochs.reset();
  r.tokens.reset();
  settings.num_samples = *r.steps * r.batch.global;
  return data::MegatronDataset::build(sources, settings);
}

data::StreamingOrder read_streaming_order(const train::Recipe& r) {
  std::vector<data::StreamingStream> streams;
  for (const train::SourceRecipe& source : r.data.train.values) {
    if (!data::is_mds_folder(source.path)) {
      throw_hint(ErrorKind::usage, "give a folder with an index.json, or set data.order: ingot",
                 "{}: is not a folder of MDS shards, as data.order: streaming requires", shown(source.path));
    }
    data::StreamingStream& stream = streams.emplace_back();
    const formats::MdsFolder folder(source.path);
    for (const formats::MdsShardInfo& shard : folder.shards()) stream.shards.push_back(shard.samples);
    if (!source.weight) continue;
    switch (r.data.streaming.value_or(train::StreamingRecipe{}).weights) {
      case train::StreamingWeights::repeat: stream.repeat = source.weight; break;
      case train::StreamingWeights::proportion: stream.proportion = source.weight; break;
      case train::StreamingWeights::choose: stream.choose = static_cast<int64_t>(*source.weight); break;
    }
  }
  return {std::move(streams), r.data.streaming.value_or(train::StreamingRecipe{}).settings()};
}

namespace {

// Converts the run's length to steps.
std::unique_ptr<data::Order> streaming_order(train::Recipe& r, const data::SequenceSet& set, bool whole_samples) {
  data::StreamingOrder order = read_streaming_order(r);
  if (order.num_samples() != set.num_sequences() || !whole_samples) {
    throw_hint(ErrorKind::usage,
               "set data.packing: false, data.sequence_length to the longest sample, and data.on_error: stop",
               "data.order: streaming needs one sequence per sample, but {} samples, the longest of {} tokens or more, "
               "give {} sequences",
               order.num_samples(), set.statistics().longest, set.num_sequences());
  }
  auto sampler = std::make_unique<data::StreamingSampler>(std::move(order),
                                                          r.data.streaming.value_or(train::StreamingRecipe{}).cluster(),
                                                          set.num_sequences(), r.batch.global);
  if (r.epochs) {
    r.steps =
        std::max<int64_t>(1, std::llround(std::ceil(*r.epochs * static_cast<double>(sampler->steps_per_epoch()))));
    r.epochs.reset();
  }
  return sampler;
}

struct Sequences {
  std::unique_ptr<data::SequenceSet> set;
  bool is_chat = false;       // rendered by the chat template; for packed data the recipe's format determines it
  bool whole_samples = true;  // each sequence is one sample of the files
};

// Not for Megatron data sets. `weighted`: sources are repeated according to their weights; else once each.
Sequences read_sequences(const train::Recipe& r, const Sources& list, bool weighted, const checkpoint::TextAssets& text,
                         int64_t vocabulary, ThreadPool& threads) {
  if (were_packed(list)) {
    return {read_packed(r, list, weighted, vocabulary),
            data::is_rendered_as_chat(r.data.format, text.chat_template.has_value())};
  }
  auto set = std::make_unique<data::Dataset>(read_documents(r, list, weighted, text, threads));
  const bool is_chat = set->is_chat(), whole_samples = set->one_document_a_sequence();
  return {std::move(set), is_chat, whole_samples};
}

}  // namespace

RunData read_run_data(train::Recipe& r, const checkpoint::TextAssets& text, int64_t vocabulary, ThreadPool& threads,
                      const Log& log) {
  RunData data;
  const bool has_eval = !r.data.eval.values.empty(), megatron_eval = has_eval && held_out_by_megatron(r.data.eval);
  if (!r.data.drop_last_partial && !megatron_eval && r.data.split.empty()) {
    throw_hint(ErrorKind::usage, "remove it, or hold out data by data.split or a Megatron data set in data.eval",
               "data.drop_last_partial: false needs held-out Megatron data, but there is none");
  }
  if (r.data.order == train::Order::megatron) {
    const std::optional<int32_t> pad_id = padding_of(text.tokenizer.get());
    data.train = std::make_unique<data::MegatronDataset>(read_megatron(r, vocabulary, pad_id));
    data.order = std::make_unique<data::SequentialOrder>(data.train->num_sequences(), r.batch.global);
    if (!r.data.split.empty()) data.eval = read_megatron_split(r, vocabulary, pad_id, log);
  } else {
    const bool streaming = r.data.order == train::Order::streaming;  // StreamingDataset repeats samples itself
    Sequences read = read_sequences(r, r.data.train, !streaming, text, vocabulary, threads);
    data.train = std::move(read.set);
    data.is_chat = read.is_chat;
    if (streaming) {
      data.order = streaming_order(r, *data.train, read.whole_samples);
    } else {
      data.order = std::make_unique<data::Sampler>(data.train->num_sequences(), static_cast<uint64_t>(r.data.seed),
                                                   r.batch.global);
    }
  }
  report(log, "training data", *data.train);
  if (megatron_eval) {
    data.eval = std::make_unique<data::MegatronDataset>(data::MegatronDataset::build(
        megatron_sources(r.data.eval), held_out_settings(r, vocabulary, padding_of(text.tokenizer.get()))));
  } else if (has_eval) {
    data.eval = read_sequences(r, r.data.eval, true, text, vocabulary, threads).set;
  }
  if (data.eval) report(log, "held-out data", *data.eval);
  return data;
}

}  // namespace ingot::runs

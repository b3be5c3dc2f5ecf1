#include "app/run_data.h"

#include <algorithm>
#include <cmath>

#include "app/run_plan.h"
#include "base/error.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "data/streaming_sampler.h"

namespace ingot::app {

namespace {

using Sources = OneOrMany<train::SourceRecipe>;

void tell(const Log& log, const char* what, const data::SequenceSet& set) {
  const data::DatasetStatistics& s = set.statistics();
  const int64_t length = set.sequence_length();
  log.info("{}: {} documents, {} tokens ({} count in the loss) in {} sequences of {}, {:.1f} % full", what,
           s.num_entries, s.num_tokens, s.num_counted, s.num_sequences, length, 100 * s.packing_efficiency);
  if (s.num_bad_lines) log.warning("{}: {} bad lines left out; the first: {}", what, s.num_bad_lines, s.first_bad_line);
  if (s.num_truncated) log.warning("{}: {} documents cut at {} tokens", what, s.num_truncated, length);
  if (s.num_too_long) {
    log.warning("{}: {} documents left out for being longer than {} tokens", what, s.num_too_long, length);
  }
}

data::Dataset read_documents(const train::Recipe& r, const Sources& list, const checkpoint::TextAssets& text,
                             ThreadPool& threads) {
  if (!text.tokenizer) {
    throw_hint(ErrorKind::not_found, "add tokenizer.json to the model's folder", "model {} has no tokenizer", r.model);
  }
  std::optional<text::ChatTemplate> chat;
  if (text.chat_template) chat.emplace(*text.chat_template, r.model);
  std::vector<data::Source> sources;
  for (const train::SourceRecipe& source : list.values) {
    if (formats::is_megatron(source.path)) {
      throw_hint(ErrorKind::unsupported, "set data.order: megatron",
                 "{}: is a Megatron data set, which is read in Megatron's order only", source.path);
    }
    // StreamingDataset repeats samples itself.
    const bool streaming = r.data.order == train::Order::streaming;
    sources.push_back({source.path, streaming ? 1 : source.weight.value_or(1)});
  }
  data::DatasetSettings settings;
  settings.format = r.data.format;
  settings.on_error = r.data.on_error;
  settings.packing = {r.data.sequence_length, r.data.packing, r.data.too_long};
  settings.seed = static_cast<uint64_t>(r.data.seed);
  return data::Dataset::build(sources, *text.tokenizer, chat ? &*chat : nullptr, settings, threads);
}

std::vector<data::MegatronSource> megatron_sources(const Sources& list) {
  std::vector<data::MegatronSource> sources;
  for (const train::SourceRecipe& source : list.values) {
    if (!formats::is_megatron(source.path)) {
      throw_hint(ErrorKind::usage, "give the path of a .idx and a .bin without these endings",
                 "{}: is no Megatron data set, which data.order: megatron reads", source.path);
    }
    sources.push_back({source.path, source.weight});
  }
  return sources;
}

data::MegatronSettings megatron_settings(const train::Recipe& r, int64_t vocabulary, std::optional<int32_t> pad_id) {
  data::MegatronSettings settings;
  settings.sequence_length = r.data.sequence_length;
  settings.seed = static_cast<uint32_t>(r.data.seed);
  settings.split = r.data.split;
  settings.vocabulary = vocabulary;
  settings.pad_id = pad_id;
  return settings;
}

// Held-out data comes once, in any order: the sources' own part of a split, or files that data.eval names.
std::unique_ptr<data::SequenceSet> read_megatron_eval(const train::Recipe& r, int64_t vocabulary,
                                                      std::optional<int32_t> pad_id) {
  data::MegatronSettings settings = megatron_settings(r, vocabulary, pad_id);
  if (!r.data.split.empty()) {
    settings.part = data::SplitPart::valid;
    std::vector<data::MegatronSource> sources = megatron_sources(r.data.train);
    for (data::MegatronSource& source : sources) source.weight.reset();
    if (data::MegatronDataset::epoch_samples(sources, settings) == 0) return nullptr;
    return std::make_unique<data::MegatronDataset>(data::MegatronDataset::build(sources, settings));
  }
  return std::make_unique<data::MegatronDataset>(data::MegatronDataset::build(megatron_sources(r.data.eval), settings));
}

// Megatron counts no padding in the loss; a padding token that has another use, too, is none.
std::optional<int32_t> padding_of(const text::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return std::nullopt;
  const std::optional<int32_t> pad = tokenizer->pad_id();
  const bool shared = pad == tokenizer->eos_id() || pad == tokenizer->bos_id() || pad == tokenizer->unk_id();
  return shared ? std::nullopt : pad;
}

}  // namespace

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
                 "{}: is no folder of MDS shards, which data.order: streaming reads", source.path);
    }
    data::StreamingStream& stream = streams.emplace_back();
    const formats::MdsFolder folder(source.path);
    for (const formats::MdsShardInfo& shard : folder.shards()) stream.shards.push_back(shard.samples);
    stream.repeat = source.weight;
  }
  return {std::move(streams), r.data.streaming.value_or(train::StreamingRecipe{}).settings()};
}

namespace {

// The run's length becomes one in steps.
std::unique_ptr<data::Order> streaming_order(train::Recipe& r, const data::Dataset& set) {
  data::StreamingOrder order = read_streaming_order(r);
  if (order.num_samples() != set.num_sequences() || !set.one_document_a_sequence()) {
    throw_hint(
        ErrorKind::usage,
        "set data.packing: false and a data.sequence_length that no sample exceeds, and leave out no bad samples",
        "data.order: streaming needs a sequence for each sample; {} samples, the longest of {} tokens or more, "
        "make {} sequences",
        order.num_samples(), set.statistics().longest, set.num_sequences());
  }
  auto sampler = std::make_unique<data::StreamingSampler>(std::move(order), set.num_sequences(), r.batch.global);
  if (r.epochs) {
    r.steps =
        std::max<int64_t>(1, std::llround(std::ceil(*r.epochs * static_cast<double>(sampler->steps_per_epoch()))));
    r.epochs.reset();
  }
  return sampler;
}

}  // namespace

RunData read_run_data(train::Recipe& r, const checkpoint::TextAssets& text, int64_t vocabulary, ThreadPool& threads,
                      const Log& log) {
  RunData data;
  const bool has_eval = !r.data.eval.values.empty();
  if (r.data.order == train::Order::megatron) {
    const std::optional<int32_t> pad_id = padding_of(text.tokenizer.get());
    data.train = std::make_unique<data::MegatronDataset>(read_megatron(r, vocabulary, pad_id));
    data.order = std::make_unique<data::SequentialOrder>(data.train->num_sequences(), r.batch.global);
    if (!r.data.split.empty() || (has_eval && formats::is_megatron(r.data.eval.values[0].path))) {
      data.eval = read_megatron_eval(r, vocabulary, pad_id);
    }
  } else if (r.data.order == train::Order::streaming) {
    auto set = std::make_unique<data::Dataset>(read_documents(r, r.data.train, text, threads));
    data.order = streaming_order(r, *set);
    data.train = std::move(set);
  } else {
    data.train = std::make_unique<data::Dataset>(read_documents(r, r.data.train, text, threads));
    data.order = std::make_unique<data::Sampler>(data.train->num_sequences(), static_cast<uint64_t>(r.data.seed),
                                                 r.batch.global);
  }
  tell(log, "training data", *data.train);
  if (has_eval && !data.eval) {
    data.eval = std::make_unique<data::Dataset>(read_documents(r, r.data.eval, text, threads));
  }
  if (data.eval) tell(log, "held-out data", *data.eval);
  return data;
}

}  // namespace ingot::app

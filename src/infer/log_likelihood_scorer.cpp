#include "infer/log_likelihood_scorer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "infer/sampler.h"
#include "ops/elementwise.h"
#include "spec/sizes.h"

namespace ingot::infer {

namespace {

int64_t length_of(const std::vector<int32_t>& ids) { return static_cast<int64_t>(ids.size()); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void check_item(const LogLikelihoodRequest& item, const spec::ModelSpec& spec) {
  if (item.context.empty() || item.continuations.empty()) {
    throw_error(ErrorKind::usage, "an item needs a context and at least one continuation");
  }
  const auto check_ids = [&](const std::vector<int32_t>& ids) {
    if (ids.empty()) throw_error(ErrorKind::usage, "a continuation has no tokens");
    for (const int32_t id : ids) {
      if (id >= 0 && id < spec.vocab) continue;
      throw_error(ErrorKind::usage, "token id {} is outside the vocabulary of {}", id, spec.vocab);
    }
  };
  check_ids(item.context);
  for (const std::vector<int32_t>& continuation : item.continuations) {
    check_ids(continuation);
    const int64_t fed = length_of(item.context) + length_of(continuation) - 1;
    if (fed > spec.context) {
      throw_error(ErrorKind::usage, "context and continuation have {} tokens; the model's context is {}", fed + 1,
                  spec.context);
    }
  }
}

// Natural log of the softmax probability of `id`, given logits [V].
double log_probability(std::span<const float> logits, int32_t id) {
  const double max_logit = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max_logit);
  const double result = static_cast<double>(logits[static_cast<size_t>(id)]) - max_logit - std::log(sum);
  check_number(result);
  return result;
}

}  // namespace

void LogLikelihoodScorer::Needs::operator+=(const Needs& other) {
  tokens += other.tokens;
  sequences += other.sequences;
  logit_rows += other.logit_rows;
  pages += other.pages;
}

bool LogLikelihoodScorer::Needs::within(const Needs& limit) const {
  return tokens <= limit.tokens && sequences <= limit.sequences && logit_rows <= limit.logit_rows &&
         pages <= limit.pages;
}

// Whole pages of the context are computed once, as a sequence of their own, and are the first pages of every
// continuation's sequence. That sequence starts with the rest of the context: at least its last token, whose logits
// predict the continuation's first token.
int64_t LogLikelihoodScorer::shared_tokens(const LogLikelihoodRequest& item) const {
  if (item.continuations.size() == 1) return 0;
  return (length_of(item.context) - 1) / settings_.page_tokens * settings_.page_tokens;
}

LogLikelihoodScorer::Needs LogLikelihoodScorer::needs(const LogLikelihoodRequest& item) const {
  const int64_t shared = shared_tokens(item);
  Needs needs{shared, shared > 0 ? 1 : 0, 0, shared / settings_.page_tokens};
  for (const std::vector<int32_t>& continuation : item.continuations) {
    const int64_t own_tokens = length_of(item.context) - shared + length_of(continuation) - 1;
    needs += {own_tokens, 1, length_of(continuation), ceil_div(own_tokens, settings_.page_tokens)};
  }
  return needs;
}

LogLikelihoodScorer::LogLikelihoodScorer(Device& device, const ops::Registry& registry, ThreadPool& threads,
                                         const models::InferenceModel& model, const LogLikelihoodSettings& settings,
                                         std::span<const LogLikelihoodRequest> items)
    : device_(device),
      threads_(threads),
      model_(model),
      settings_(settings),
      context_{device, registry, scratch_, &threads} {
  const spec::ModelSpec& spec = model.spec();
  int64_t longest = 1;
  limit_ = {settings.batch_tokens, settings.batch_tokens / 16, settings.batch_tokens, 0};
  limit_.pages = settings.batch_tokens / settings.page_tokens + limit_.sequences;
  for (const LogLikelihoodRequest& item : items) {
    check_item(item, spec);
    const Needs one = needs(item);
    limit_.tokens = std::max(limit_.tokens, one.tokens);
    limit_.sequences = std::max(limit_.sequences, one.sequences);
    limit_.logit_rows = std::max(limit_.logit_rows, one.logit_rows);
    limit_.pages = std::max(limit_.pages, one.pages);
    for (const std::vector<int32_t>& continuation : item.continuations) {
      longest = std::max(longest, length_of(item.context) + length_of(continuation) - 1);
    }
  }
  max_pages_ = ceil_div(longest, settings.page_tokens);
  logit_rows_ = std::min(limit_.logit_rows, spec::loss_chunk(spec.vocab, true));  // the host reads them

  models::PassShape shape;
  shape.tokens = limit_.tokens;
  shape.longest = longest;
  shape.logit_rows = logit_rows_;
  shape.adapter_rank = settings.adapter_rank;
  shape.activation = settings.activation;
  shape.decoded = settings.decoded;
  shape.int8_activations = settings.int8_activations;
  shape.threads = threads.threads();
  shape.tp = model.shard().tp;
  shape.pp = model.shard().pp;
  shape.cached = true;
  shape.host_visible = device.host_visible();
  scratch_ = Arena(device, models::pass_bytes(spec, shape).forward, "scratch");

  const size_t activation = size_of(settings.activation);
  const size_t tokens = static_cast<size_t>(limit_.tokens), sequences = static_cast<size_t>(limit_.sequences);
  const size_t hidden = static_cast<size_t>(spec.hidden), rows = static_cast<size_t>(logit_rows_);
  // ids, positions, slots; offsets, lengths, tables; normed states of all rows and of the logit rows; logits.
  batch_arena_ =
      Arena(device,
            3 * Arena::footprint(tokens * 4) + Arena::footprint((sequences + 1) * 4) + Arena::footprint(sequences * 4) +
                Arena::footprint(sequences * static_cast<size_t>(max_pages_) * 4) +
                Arena::footprint(tokens * hidden * activation) + Arena::footprint(rows * hidden * activation) +
                Arena::footprint(rows * static_cast<size_t>(spec.vocab) * 4),
            "batch");
  kv_ = Arena(device, spec::kv_bytes(spec, limit_.pages, settings.page_tokens, static_cast<int64_t>(activation)),
              "KV cache");
  for (const spec::LayerSpec& layer : spec.layers) {
    const spec::CacheEntry entry = layer.attention.cache_entry();
    const Tensor k = kv_.allocate(settings.activation, Shape{limit_.pages, settings.page_tokens, entry.keys});
    const Tensor v = kv_.allocate(settings.activation, Shape{limit_.pages, settings.page_tokens, entry.values});
    cache_.layers.push_back({k, v});
  }
}

// Adds a sequence of tokens `ids` at positions `first` and on; `table` has the pages before `first`.
void LogLikelihoodScorer::add_sequence(Batch& batch, std::span<const int32_t> ids, int64_t first,
                                       std::vector<int32_t> table) const {
  const int64_t page = settings_.page_tokens;
  for (const int32_t id : ids) {
    if (first / page == static_cast<int64_t>(table.size())) table.push_back(static_cast<int32_t>(batch.pages++));
    batch.ids.push_back(id);
    batch.positions.push_back(static_cast<int32_t>(first));
    batch.slots.push_back(table[static_cast<size_t>(first / page)] * static_cast<int32_t>(page) +
                          static_cast<int32_t>(first % page));
    ++first;
  }
  batch.offsets.push_back(static_cast<int32_t>(batch.ids.size()));
  batch.lengths.push_back(static_cast<int32_t>(first));
  table.resize(static_cast<size_t>(max_pages_), 0);
  batch.tables.insert(batch.tables.end(), table.begin(), table.end());
}

void LogLikelihoodScorer::add(Batch& batch, const LogLikelihoodRequest& item) const {
  const int64_t shared = shared_tokens(item);
  const std::span<const int32_t> context(item.context);
  std::vector<int32_t> table;
  for (int64_t p = 0; p < shared / settings_.page_tokens; ++p) {
    table.push_back(static_cast<int32_t>(batch.pages + p));
  }
  if (shared > 0) add_sequence(batch, context.first(static_cast<size_t>(shared)), 0, {});
  const std::span<const int32_t> rest = context.subspan(static_cast<size_t>(shared));
  for (const std::vector<int32_t>& continuation : item.continuations) {
    std::vector<int32_t> ids(rest.begin(), rest.end());
    ids.insert(ids.end(), continuation.begin(), continuation.end() - 1);
    const int64_t row = static_cast<int64_t>(batch.ids.size() + rest.size()) - 1;
    for (int64_t t = 0; t < length_of(continuation); ++t) batch.logit_rows.push_back(row + t);
    batch.targets.insert(batch.targets.end(), continuation.begin(), continuation.end());
    add_sequence(batch, ids, shared, table);
  }
}

std::vector<double> LogLikelihoodScorer::compute(const Batch& batch, const nn::Adapter* adapter) {
  const Arena::Scope scope(batch_arena_);
  const auto upload = [&](const std::vector<int32_t>& values, Shape shape) {
    const Tensor tensor = batch_arena_.allocate(DType::i32, shape);
    device_.copy_from_host(tensor.data, values.data(), tensor.bytes());
    return tensor;
  };
  const spec::ModelSpec& spec = model_.spec();
  const int64_t tokens = length_of(batch.ids), sequences = length_of(batch.lengths);
  nn::TokenBatch flat;
  flat.ids = upload(batch.ids, Shape{tokens});
  flat.positions = upload(batch.positions, Shape{tokens});
  flat.offsets = upload(batch.offsets, Shape{sequences + 1});
  cache_.slots = upload(batch.slots, Shape{tokens});
  cache_.layout.query_offsets = flat.offsets;
  cache_.layout.lengths = upload(batch.lengths, Shape{sequences});
  cache_.layout.tables = upload(batch.tables, Shape{sequences, max_pages_});
  const auto segments = [&](int64_t rows) {
    return adapter ? std::vector<nn::AdapterSegment>{{0, rows, adapter}} : std::vector<nn::AdapterSegment>{};
  };

  // Each layer stores keys and values of the whole batch before attention, so that a continuation attends to the pages
  // of its context.
  nn::Pass pass{context_, flat, settings_.activation, segments(tokens), &cache_};
  pass.int8_activations = settings_.int8_activations;
  const Tensor normed = batch_arena_.allocate(settings_.activation, Shape{tokens, spec.hidden});
  model_.forward(pass, normed);

  const Tensor logit_inputs = batch_arena_.allocate(settings_.activation, Shape{logit_rows_, spec.hidden});
  const Tensor logits = batch_arena_.allocate(DType::f32, Shape{logit_rows_, spec.vocab});
  const size_t vocab = static_cast<size_t>(spec.vocab);
  std::vector<float> host(static_cast<size_t>(logit_rows_) * vocab);
  std::vector<double> logprobs(batch.logit_rows.size());
  for (int64_t first = 0; first < static_cast<int64_t>(batch.logit_rows.size()); first += logit_rows_) {
    const int64_t rows = std::min(logit_rows_, static_cast<int64_t>(batch.logit_rows.size()) - first);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = batch.logit_rows[static_cast<size_t>(first + row)];
      ops::scale(context_, logit_inputs.slice(row, row + 1), normed.slice(from, from + 1), 1);
    }
    nn::Pass head{context_, flat, settings_.activation, segments(rows)};
    head.int8_activations = settings_.int8_activations;
    const Tensor part = logits.slice(0, rows);
    model_.logits(head, part, logit_inputs.slice(0, rows));
    device_.copy_to_host(host.data(), part.data, part.bytes());
    threads_.parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const size_t index = static_cast<size_t>(first + row);
        logprobs[index] =
            log_probability(std::span(host).subspan(static_cast<size_t>(row) * vocab, vocab), batch.targets[index]);
      }
    });
  }
  return logprobs;
}

std::vector<std::vector<double>> LogLikelihoodScorer::score(std::span<const LogLikelihoodRequest> items,
                                                            const nn::Adapter* adapter,
                                                            const std::function<void(int64_t)>& done) {
  std::vector<std::vector<double>> scores(items.size());
  for (size_t begin = 0; begin < items.size();) {
    Batch batch;
    Needs all;
    size_t end = begin;
    for (; end < items.size(); ++end) {
      Needs more = all;
      more += needs(items[end]);
      if (!more.within(limit_)) break;
      all = more;
      add(batch, items[end]);
    }
    if (end == begin) throw_error(ErrorKind::internal, "an item exceeds the limits of the scorer");
    const std::vector<double> logprobs = compute(batch, adapter);
    size_t at = 0;
    for (size_t i = begin; i < end; ++i) {
      for (const std::vector<int32_t>& continuation : items[i].continuations) {
        double sum = 0;
        for (size_t t = 0; t < continuation.size(); ++t) sum += logprobs[at++];
        scores[i].push_back(sum);
      }
    }
    begin = end;
    done(static_cast<int64_t>(begin));
  }
  return scores;
}

}  // namespace ingot::infer

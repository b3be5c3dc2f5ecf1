#include "infer/forward.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "checkpoint/row_codec.h"
#include "infer/adapter_message.h"
#include "ops/elementwise.h"
#include "ops/matmul_bytes.h"
#include "ops/sampling.h"

namespace ingot::infer {

namespace {

models::PassShape pass_shape(const EngineSettings& settings, int threads, bool host_visible) {
  models::PassShape shape;
  shape.tokens = settings.batch_tokens;
  shape.longest = settings.context;
  const int64_t choices = settings.sequences * (1 + settings.draft_tokens);
  shape.logit_rows = std::min(std::max(choices, settings.scored_at_once), settings.batch_tokens);
  shape.tp = settings.shard.tp;
  shape.pp = settings.shard.pp;
  shape.adapter_rank = settings.adapter_rank;
  shape.activation = settings.activation;
  shape.decoded = settings.decoded;
  shape.int8_activations = settings.int8_activations;
  shape.threads = threads;
  shape.cached = true;
  shape.lora_batch = true;
  shape.host_visible = host_visible;
  return shape;
}

// Of the memory of logits: on GPUs with room for padding (ops/matmul.h).
Shape logits_shape(const models::PassShape& shape, const spec::ModelSpec& model) {
  return {shape.logit_rows, shape.host_visible ? model.vocab : ops::padded_columns(model.vocab)};
}

int64_t num_slots(const EngineSettings& settings) {
  return settings.adapter_slots > 0 ? settings.adapter_slots : settings.sequences;
}

int64_t pages_per_sequence(const EngineSettings& settings) {
  return (settings.context + settings.page_tokens - 1) / settings.page_tokens;
}

// Elements of ops::PagedLayout::arrivals for a batch of all sequences and any layer of the model (or of a rank's shard
// of it). A CPU needs none.
int64_t num_arrivals(const EngineSettings& settings, const spec::ModelSpec& model, bool host_visible) {
  int64_t heads = 0;
  for (const spec::LayerSpec& layer : model.layers) heads = std::max(heads, layer.attention.heads);
  return host_visible ? 0 : settings.sequences * heads;
}

// Fills in the model's context if none was given.
EngineSettings resolved(EngineSettings settings, const spec::ModelSpec& model) {
  if (settings.context == 0) settings.context = model.context;
  return settings;
}

}  // namespace

void check_counts(const EngineSettings& settings, const spec::ModelSpec& model) {
  if (settings.context < 1 || settings.context > model.context) {
    throw_error(ErrorKind::usage, "the context is {} tokens; it must be from 1 to the model's {}", settings.context,
                model.context);
  }
  if (settings.batch_tokens < 1 || settings.sequences < 1 || settings.page_tokens < 1 || settings.scored_at_once < 1) {
    throw_error(ErrorKind::usage, "an engine needs at least one sequence, one token per batch and one token per page");
  }
  constexpr int64_t max_count = int64_t{1} << 24;
  for (const int64_t count : {settings.batch_tokens, settings.sequences, settings.page_tokens, settings.scored_at_once,
                              settings.draft_tokens, settings.adapter_slots, settings.adapter_rank}) {
    if (count > max_count) {
      throw_error(ErrorKind::usage,
                  "an engine setting is {}; sequences, tokens per batch, tokens per page, draft tokens, adapter slots "
                  "and adapter ranks may be at most {}",
                  count, max_count);
    }
  }
  constexpr int64_t max_pages = int64_t{1} << 31;  // page numbers are 32-bit
  if (settings.pages < 0 || settings.pages >= max_pages)
    throw_error(ErrorKind::usage, "the KV cache has {} pages; it must be from 0 to {}", settings.pages, max_pages - 1);
}

EngineSettings checked(EngineSettings settings, const spec::ModelSpec& model) {
  settings = resolved(settings, model);
  check_counts(settings, model);
  if (num_pages(settings) < pages_per_sequence(settings)) {
    throw_error(ErrorKind::usage, "{} KV cache pages of {} tokens cannot hold one sequence of {} tokens",
                settings.pages, settings.page_tokens, settings.context);
  }
  if (num_pages(settings) > INT32_MAX / settings.page_tokens) {  // token slots of the cache are 32-bit numbers
    throw_hint(ErrorKind::usage, "lower the number of pages or sequences, or the context",
               "a KV cache of {} pages of {} tokens is too large; it can hold at most {} tokens", num_pages(settings),
               settings.page_tokens, INT32_MAX);
  }
  return settings;
}

int64_t num_pages(const EngineSettings& settings) {
  return settings.pages ? settings.pages : settings.sequences * pages_per_sequence(settings);
}

EngineBytes engine_bytes(const spec::ModelSpec& whole, const EngineSettings& wanted, int threads, bool host_visible) {
  const EngineSettings settings = resolved(wanted, whole);
  const spec::ModelSpec model = spec::sizes_of(whole, settings.shard);
  const models::PassShape shape = pass_shape(settings, threads, host_visible);
  const size_t activation = size_of(settings.activation);
  const size_t tokens = static_cast<size_t>(settings.batch_tokens);
  const size_t sequences = static_cast<size_t>(settings.sequences);
  const int64_t pages = num_pages(settings);
  EngineBytes bytes;
  bytes.kv = spec::kv_bytes(model, pages, settings.page_tokens, static_cast<int64_t>(activation));
  bytes.scratch = models::pass_bytes(model, shape).forward;
  bytes.library_workspace = host_visible ? 0 : ops::matmul_library_bytes;
  // ids, positions, slots, adapter slots of tokens and of logit rows, offsets, lengths, page tables (contiguous: they
  // are uploaded together); normed states of all tokens and of the logit rows; logits; counters of attention; the token
  // sampler's memory.
  bytes.batch = 5 * Arena::footprint(tokens * 4) + Arena::footprint((sequences + 1) * 4) +
                Arena::footprint(sequences * 4) +
                Arena::footprint(sequences * static_cast<size_t>(pages_per_sequence(settings)) * 4) +
                Arena::footprint(tokens * static_cast<size_t>(model.hidden) * activation) +
                Arena::footprint(static_cast<size_t>(shape.logit_rows * model.hidden) * activation) +
                Arena::footprint(DType::f32, logits_shape(shape, model)) +
                Arena::footprint(static_cast<size_t>(num_arrivals(settings, model, host_visible)) * 4) +
                TokenSampler::bytes(shape.logit_rows, model.vocab);
  if (settings.adapter_rank > 0) {
    bytes.adapters = AdapterSlots::bytes(whole, settings.shard, num_slots(settings), settings.adapter_rank,
                                         settings.activation, host_visible);
  }
  return bytes;
}

Forward::Forward(Device& device, const ops::Registry& registry, ThreadPool& threads,
                 const models::InferenceModel& model, const EngineSettings& s, const comm::Group& ranks)
    : device_(device), model_(model), settings_(s), link_(ranks), context_{device, registry, scratch_, &threads} {
  const spec::ModelSpec& spec = model.spec();
  const EngineBytes bytes = engine_bytes(model.whole(), s, threads.threads(), device.host_visible());
  scratch_ = Arena(device, bytes.scratch, "scratch");
  kv_ = Arena(device, bytes.kv, "KV cache");
  batch_ = Arena(device, bytes.batch, "batch");
  for (const spec::LayerSpec& layer : spec.layers) {
    const spec::CacheEntry entry = layer.attention.cache_entry();
    const Tensor k = kv_.allocate(s.activation, Shape{num_pages(s), s.page_tokens, entry.keys});
    cache_.layers.push_back({k, kv_.allocate(s.activation, Shape{num_pages(s), s.page_tokens, entry.values})});
  }
  const models::PassShape shape = pass_shape(s, threads.threads(), device.host_visible());
  const int64_t rows = shape.logit_rows;
  ids_ = batch_.allocate(DType::i32, Shape{s.batch_tokens});
  positions_ = batch_.allocate(DType::i32, Shape{s.batch_tokens});
  slots_ = batch_.allocate(DType::i32, Shape{s.batch_tokens});
  offsets_ = batch_.allocate(DType::i32, Shape{s.sequences + 1});
  adapter_slots_ = batch_.allocate(DType::i32, Shape{s.batch_tokens});
  head_slots_ = batch_.allocate(DType::i32, Shape{s.batch_tokens});
  lengths_ = batch_.allocate(DType::i32, Shape{s.sequences});
  tables_ = batch_.allocate(DType::i32, Shape{s.sequences, pages_per_sequence(s)});
  normed_ = batch_.allocate(s.activation, Shape{s.batch_tokens, spec.hidden});
  selected_ = batch_.allocate(s.activation, Shape{rows, spec.hidden});
  logits_ = batch_.allocate(DType::f32, logits_shape(shape, spec));
  // Zeros, as a device's memory is at first and the op leaves them. So they are after a step that fails on the host,
  // too: a kernel that was launched completes, unless the device is lost.
  const int64_t arrivals = num_arrivals(s, spec, device.host_visible());
  if (arrivals > 0) arrivals_ = batch_.allocate(DType::i32, Shape{arrivals});
  staging_.resize(s.async_scheduling && !device.host_visible() && link_.alone() ? 2 : 1);
  for (Staging& each : staging_)
    each = {PinnedBuffer(device, staging_offset(tables_) + tables_.bytes()), device.make_event()};
  sampler_.emplace(device, batch_, rows, spec.vocab);
  row_invariant_ = s.row_invariant && device.kind() == DeviceKind::cpu;
  if (s.adapter_rank == 0) return;
  adapter_arena_ = Arena(device, bytes.adapters, "adapters");
  AdapterSlots::Share share;
  if (!link_.alone() && link_.leads()) share = std::bind_front(&Forward::share_adapter, this);
  adapters_.emplace(device, adapter_arena_, model.whole(), model.shard(), num_slots(s), s.adapter_rank, s.activation,
                    std::move(share));
  lora_.entries = head_lora_.entries = adapters_->entries();
  lora_.ranks.resize(static_cast<size_t>(lora_.entries.shape[1]));
}

// Offset of an uploaded tensor's host copy in Staging::memory.
size_t Forward::staging_offset(const Tensor& tensor) const {
  return static_cast<size_t>(static_cast<const std::byte*>(tensor.data) - static_cast<const std::byte*>(ids_.data));
}

int32_t* Forward::on_host(const Tensor& tensor) const {
  return reinterpret_cast<int32_t*>(staging_[current_].memory.data() + staging_offset(tensor));
}

void Forward::decode(int64_t rows, const std::vector<int64_t>& ranks, FunctionRef<void()> work) {
  const auto known = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const RecordedDecode& d) { return d.rows == rows && d.ranks == ranks; });
  if (known == recordings_.end()) {
    if (recordings_.size() == max_recordings) recordings_.pop_back();
    recordings_.push_front({rows, ranks, nullptr});
    return work();
  }
  std::rotate(recordings_.begin(), known, known + 1);
  std::unique_ptr<RecordedGraph>& replay = recordings_.front().replay;
  if (!replay) replay = device_.record(work);
  replay ? replay->run() : work();
}

size_t Forward::staged_bytes(const ForwardBatch& batch) const {
  const Tensor used = tables_.slice(0, batch.chunks);
  return staging_offset(used) + used.bytes();
}

// Writes the batch's ids, positions, slots, offsets, lengths, page tables and adapter slots to the next host copy.
ForwardBatch Forward::fill_inputs(std::span<const ForwardChunk> chunks) {
  const int64_t max_pages = pages_per_sequence(settings_);
  current_ = (current_ + 1) % staging_.size();
  ForwardBatch batch;
  batch.staging = current_;
  batch.chunks = std::ssize(chunks);
  std::vector<int32_t> sampled_slots, known_slots;
  int64_t tokens = 0;
  on_host(offsets_)[0] = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const ForwardChunk& chunk = chunks[i];
    const auto adapter = static_cast<int32_t>(chunk.slot);
    const int64_t first = tokens;
    for (int64_t t = chunk.begin; t < chunk.end; ++t, ++tokens) {
      const int32_t page = chunk.table[static_cast<size_t>(t / settings_.page_tokens)];
      on_host(ids_)[tokens] = chunk.ids[static_cast<size_t>(t)];
      batch.continues |= on_host(ids_)[tokens] < 0;
      on_host(positions_)[tokens] = static_cast<int32_t>(t);
      on_host(slots_)[tokens] = static_cast<int32_t>(page * settings_.page_tokens + t % settings_.page_tokens);
      on_host(adapter_slots_)[tokens] = adapter;
    }
    for (int64_t row = tokens - chunk.wanted; row < tokens; ++row) {
      batch.sampled_rows.push_back(row);
      sampled_slots.push_back(adapter);
    }
    for (int64_t t = chunk.known_begin; t < chunk.known_end; ++t) {
      batch.known_rows.push_back(first + t - 1 - chunk.begin);
      known_slots.push_back(adapter);
    }
    if (chunk.states) batch.state_rows.emplace_back(first, tokens);
    on_host(offsets_)[i + 1] = static_cast<int32_t>(tokens);
    on_host(lengths_)[i] = static_cast<int32_t>(chunk.end);
    int32_t* table = on_host(tables_) + static_cast<int64_t>(i) * max_pages;
    std::fill(std::copy(chunk.table.begin(), chunk.table.end(), table), table + max_pages, 0);
  }
  batch.tokens = tokens;
  std::copy(known_slots.begin(), known_slots.end(),
            std::copy(sampled_slots.begin(), sampled_slots.end(), on_host(head_slots_)));
  return batch;
}

void Forward::send(const ForwardBatch& batch) const {
  if (link_.alone()) return;
  const std::vector<int64_t> counts = {batch.tokens, batch.chunks, std::ssize(batch.sampled_rows),
                                       std::ssize(batch.known_rows)};
  link_.send(EngineMessage::batch, {bytes_of(counts), bytes_of(batch.sampled_rows), bytes_of(batch.known_rows),
                                    std::span(staging_[current_].memory.data(), staged_bytes(batch))});
}

void Forward::follow_batch(std::span<const std::byte> message) {
  ForwardBatch batch;
  batch.tokens = take<int64_t>(message);
  batch.chunks = take<int64_t>(message);
  const auto sampled = take<int64_t>(message), known = take<int64_t>(message);
  batch.sampled_rows = take_all<int64_t>(message, static_cast<size_t>(sampled));
  batch.known_rows = take_all<int64_t>(message, static_cast<size_t>(known));
  const std::span<const std::byte> staged = take_bytes(message, staged_bytes(batch));
  std::copy(staged.begin(), staged.end(), staging_[current_].memory.data());
  compute(batch);
  for_known(batch, [](int64_t, int64_t) {});
  staging_[current_].computed->record(Stream::compute);  // the next message overwrites the host copy
  staging_[current_].computed->wait();
}

void Forward::follow_adapter(std::span<const std::byte> message) {
  const auto slot = take<int64_t>(message);
  adapters_->place(slot, part_of(*unpack_adapter(message), model_.held_parameters()));
}

// Sends an adapter to the other ranks. Returns this rank's part.
std::shared_ptr<const HostAdapter> Forward::share_adapter(int64_t slot,
                                                          const std::shared_ptr<const HostAdapter>& adapter) {
  const std::vector<std::byte> packed = pack_adapter(*adapter);
  link_.send(EngineMessage::adapter, {std::as_bytes(std::span(&slot, 1)), packed});
  return part_of(*adapter, model_.held_parameters());
}

std::vector<double> Forward::sum_of_rows(int64_t begin, int64_t end) {
  const Tensor rows = normed_.slice(begin, end);
  std::vector<std::byte> bytes(rows.bytes());
  device_.copy_to_host(bytes.data(), rows.data, rows.bytes());
  std::vector<float> values(static_cast<size_t>(rows.elements()));
  checkpoint::decode_row(checkpoint::storage_of(rows.dtype), bytes.data(), rows.elements(), values.data());
  const auto hidden = static_cast<size_t>(model_.spec().hidden);
  std::vector<double> sums(hidden);
  for (size_t i = 0; i < values.size(); ++i) sums[i % hidden] += static_cast<double>(values[i]);
  return sums;
}

// Sets lora_, head_lora_ and adapted_ for the batch.
void Forward::use_adapters(const ForwardBatch& batch) {
  adapted_ = false;
  if (!adapters_) return;
  std::fill(lora_.ranks.begin(), lora_.ranks.end(), 0);
  lora_.host.assign(on_host(adapter_slots_), on_host(adapter_slots_) + batch.tokens);
  head_lora_.host.assign(on_host(head_slots_), on_host(head_slots_) + std::ssize(batch.sampled_rows));
  int32_t last = -1;
  for (const int32_t slot : lora_.host) {
    if (slot < 0 || slot == std::exchange(last, slot)) continue;
    adapted_ = true;
    const std::vector<nn::LoraWeights>& layers = adapters_->adapter(slot).weights.layers;
    for (size_t p = 0; p < layers.size(); ++p) {
      // The maximum rank, so that the launches do not depend on which adapters are in the batch.
      if (layers[p].a) lora_.ranks[p] = settings_.adapter_rank;
    }
  }
  head_lora_.ranks = lora_.ranks;
  lora_.slots = adapter_slots_.slice(0, std::ssize(lora_.host));
  head_lora_.slots = head_slots_.slice(0, std::ssize(head_lora_.host));
}

nn::Pass Forward::head_pass() {
  // On a CPU a row has the same logits in every batch. On a GPU the layers before have not, and the head is computed
  // like them: a few rows by the kernels for few rows.
  const bool like_layers = !device_.host_visible();
  nn::Pass head{context_, flat_, settings_.activation, {}, like_layers ? &cache_ : nullptr};
  head.row_invariant = !like_layers;
  head.int8_activations = settings_.int8_activations;
  if (adapted_) head.lora = &head_lora_;
  return head;
}

Tensor Forward::logits_of(int64_t rows) {
  Tensor logits = logits_.slice(0, rows);
  logits.shape = {rows, model_.logit_columns(head_pass(), rows)};
  return logits;
}

// Computes logits of the batch's rows `logit_rows`; with `every_row` these are all rows. head_lora_ has the rows'
// adapters.
void Forward::compute_logits(std::span<const int64_t> logit_rows, bool every_row) {
  const int64_t rows = std::ssize(logit_rows);
  for (int64_t row = 0; row < rows && !every_row; ++row) {
    const int64_t from = logit_rows[static_cast<size_t>(row)];
    ops::scale(context_, selected_.slice(row, row + 1), normed_.slice(from, from + 1), 1);
  }
  nn::Pass head = head_pass();
  model_.logits(head, logits_of(rows), (every_row ? normed_ : selected_).slice(0, rows));
}

// Uploads the batch, runs the model and computes the logits of the rows to sample from.
void Forward::compute(const ForwardBatch& batch) {
  use_adapters(batch);
  const int64_t rows = std::ssize(batch.sampled_rows);
  device_.copy_from_host_async(Stream::compute, ids_.data, staging_[current_].memory.data(), staged_bytes(batch));
  flat_ = {ids_.slice(0, batch.tokens), positions_.slice(0, batch.tokens), offsets_.slice(0, batch.chunks + 1)};
  cache_.slots = slots_.slice(0, batch.tokens);
  cache_.layout = {flat_.offsets, lengths_.slice(0, batch.chunks), tables_.slice(0, batch.chunks), arrivals_};

  if (batch.continues) ops::insert_sampled(context_, flat_.ids, flat_.ids, sampler_->chosen());

  const bool every_row = rows == batch.tokens;
  nn::Pass pass{context_, flat_, settings_.activation, {}, &cache_};
  pass.row_invariant = row_invariant_;
  pass.int8_activations = settings_.int8_activations;
  if (adapted_) pass.lora = &lora_;
  const auto work = [&] {
    model_.forward(pass, normed_.slice(0, batch.tokens));
    if (rows > 0) compute_logits(batch.sampled_rows, every_row);
  };
  // Every chunk is one token then. An observer waits for each op, which cannot be recorded.
  const bool recordable = context_.watch == nullptr && device_.replays();
  if (every_row && batch.tokens == batch.chunks && recordable && model_.is_recordable(pass)) {
    decode(rows, adapted_ ? lora_.ranks : std::vector<int64_t>{}, work);
  } else {
    work();
  }
  staging_[current_].computed->record(Stream::compute);
}

// Computes logits of the rows of known tokens, for as many at a time as logits_ holds: known tokens [first, end).
// Overwrites logits_ and head_lora_.
void Forward::for_known(const ForwardBatch& batch, FunctionRef<void(int64_t first, int64_t end)> scored) {
  const std::span<const int64_t> known(batch.known_rows);
  const int64_t before = std::ssize(batch.sampled_rows), most = logits_.shape[0];
  const int32_t* slots = on_host(head_slots_) + before;
  for (int64_t first = 0; first < std::ssize(known); first += most) {
    const int64_t end = std::min(first + most, std::ssize(known));
    if (adapted_) {
      head_lora_.host.assign(slots + first, slots + end);
      head_lora_.slots = head_slots_.slice(before + first, before + end);
    }
    compute_logits(known.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)), false);
    scored(first, end);
  }
}

// Log-probabilities of the known tokens.
std::vector<SampleResult> Forward::score_known(const ForwardBatch& batch, std::span<const SampleRequest> known) {
  std::vector<SampleResult> results;
  for_known(batch, [&](int64_t first, int64_t end) {
    const auto part = known.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    std::vector<SampleResult> scored = sampler_->run(context_, logits_of(end - first), part);
    std::move(scored.begin(), scored.end(), std::back_inserter(results));
  });
  return results;
}

ForwardBatch Forward::start(std::span<const ForwardChunk> chunks) {
  ForwardBatch batch = fill_inputs(chunks);
  const double from = steady_seconds();
  send(batch);
  compute(batch);
  device_seconds_ += steady_seconds() - from;
  return batch;
}

void Forward::sample(ForwardBatch& batch, std::span<const SampleRequest> wanted, std::span<const SampleRequest> known) {
  const double from = steady_seconds();
  const int64_t rows = std::ssize(batch.sampled_rows);
  batch.sampling = rows > 0;
  if (batch.sampling) sampler_->start(context_, logits_of(rows), wanted);
  if (batch.is_read_again()) {
    if (std::exchange(batch.sampling, false)) batch.result.sampled = sampler_->finish();
    batch.result.known = score_known(batch, known);
    for (const auto& [begin, end] : batch.state_rows) batch.result.state_sums.push_back(sum_of_rows(begin, end));
  }
  device_seconds_ += steady_seconds() - from;
}

ForwardResult Forward::finish(ForwardBatch& batch) {
  const double from = steady_seconds();
  if (std::exchange(batch.sampling, false)) {
    batch.result.sampled = sampler_->finish();
  } else {
    staging_[batch.staging].computed->wait();  // a later batch reuses the host copy
  }
  device_seconds_ += steady_seconds() - from;
  return std::move(batch.result);
}

}  // namespace ingot::infer

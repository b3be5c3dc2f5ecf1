#include "infer/engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <new>

#include "base/error.h"
#include "infer/adapter_placement.h"
#include "infer/engine_link.h"
#include "infer/forward.h"
#include "infer/prompt_lookup.h"
#include "infer/scheduler.h"

namespace ingot::infer {

namespace {

struct Sequence {
  SequenceState state;
  Request request;
  // Prompt and output; empty before its first chunk is computed. The last one may be in flight: -1 - r, as in
  // ForwardChunk::ids.
  std::vector<int32_t> ids;
  TokenCounts counts;  // of `ids`, where there are penalties
  int64_t produced = 0;
  int64_t prefix_hit = 0;      // prompt tokens found in the prefix cache when it first ran
  bool has_output = false;     // an output was returned
  bool cancelled = false;      // ends at the next step
  std::vector<int32_t> draft;  // draft tokens of this step
  std::vector<double> states;  // with `embed`: sum of the states of the chunks so far
  int64_t scored = 1;  // with prompt_logprobs: leading prompt tokens that are done; the first has no log-probability

  bool complete(const ScheduledChunk& chunk) const { return chunk.end >= state.tokens; }
  bool generates() const { return !request.embed && request.max_tokens > 0; }
  int64_t to_sample(const ScheduledChunk& chunk) const {  // number of tokens
    return generates() && complete(chunk) ? chunk.end - state.tokens + 1 : 0;
  }
  bool to_score() const { return request.prompt_logprobs && scored < request.prompt.size(); }
  // The value of `scored` after the chunk, which returns the log-probabilities of the prompt tokens in between.
  int64_t scored_after(const ScheduledChunk& chunk) const {
    return to_score() ? std::max(scored, std::min(chunk.end + 1, request.prompt.size())) : scored;
  }
};

// A sequence's part of a batch in flight. The sequence may have ended since.
struct StepChunk {
  int64_t id = 0;     // of the sequence
  int64_t begin = 0;  // tokens [begin, end) of it, as in ScheduledChunk
  int64_t end = 0;
  int64_t tokens = 0;       // known tokens of the sequence then, including one in flight
  int64_t num_sampled = 0;  // tokens that are sampled,
  int64_t num_scored = 0;   // and prompt tokens that are scored
  bool states = false;      // it is for an embedding

  bool complete() const { return end >= tokens; }
};

// A batch whose results have not been read.
struct StepBatch {
  std::vector<StepChunk> chunks;
  ForwardBatch forward;
  bool assumed = false;  // the scheduler has its results already, see assume_results
};

using Time = std::chrono::steady_clock::time_point;

void check_ids(const Request& request, int64_t vocab) {
  const auto inside = [&](int32_t id, const char* what) {
    if (id < 0 || id >= vocab) throw_error(ErrorKind::usage, "{} {} is outside the vocabulary of {}", what, id, vocab);
  };
  for (const int32_t id : request.prompt.get()) inside(id, "token id");
  for (const LogitBias& bias : request.sampling.logit_bias) inside(bias.id, "logit_bias: token id");
}

}  // namespace

const char* name(FinishReason finish) {
  switch (finish) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::deadline: return "deadline";
    case FinishReason::failed: return "failed";
  }
  return "?";
}

namespace {

// The kind of an exception that a request's mask throws during generation. A grammar that exceeds its limits is the
// request's fault; after bad_alloc a retry may succeed.
ErrorKind kind_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return ErrorKind::unavailable;
  const auto* known = dynamic_cast<const Error*>(&error);
  return known && known->kind() == ErrorKind::resource ? ErrorKind::usage : ErrorKind::internal;
}

}  // namespace

struct Engine::State {
  const models::InferenceModel& model;
  EngineSettings settings;
  EngineLink link;
  bool interrupted = false;  // a step has failed: other ranks may be in the middle of it
  PagePool pool;
  Scheduler scheduler;
  Forward forward;
  AdapterPlacement placement;
  std::map<int64_t, Sequence> sequences;  // by id, which is the order of arrival
  bool any_cancelled = false;
  std::multimap<Time, int64_t> deadlines;
  EngineCounts counted;  // accumulated counters; counts() fills in the rest
  int64_t next_id = 1;
  std::optional<StepBatch> in_flight;  // queued by the step before

  State(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::InferenceModel& m,
        EngineSettings s, const comm::Group& ranks)
      : model(m),
        settings(s),
        link(ranks),
        pool(num_pages(s), s.page_tokens, s.prefix_cache),
        scheduler(pool, s.batch_tokens, s.sequences),
        forward(device, registry, threads, m, s, ranks),
        placement(forward.adapters(), scheduler, s.sequences) {}

  Sequence& of(const ScheduledChunk& chunk) { return sequences.at(chunk.sequence->id); }
  // Gives the scheduler the ids for prefix cache lookup. Requests for states or prompt log-probabilities need every
  // prompt token computed, so they skip the lookup.
  void show_ids(Sequence& sequence) const {
    if (!settings.prefix_cache || sequence.request.embed || sequence.to_score()) return;
    sequence.state.ids = sequence.ids.empty() ? sequence.request.prompt.get() : sequence.ids;
  }

  void add(int64_t id, Request request);
  std::vector<Output> ended_early();
  void draft();
  std::vector<ScheduledChunk> schedule();
  std::vector<ScheduledChunk> next_batch();
  std::vector<Output> run_batch();
  void begin(Sequence& sequence, int64_t cached);
  StepBatch start(std::vector<ScheduledChunk> scheduled);
  void sample(StepBatch& batch);
  void want(const StepChunk& chunk, std::vector<SampleRequest>& all);
  void want_scores(const StepChunk& chunk, std::vector<SampleRequest>& all) const;
  void assume_results(StepBatch& batch);
  std::optional<StepBatch> run_ahead(StepBatch& batch);
  bool is_needed(const StepBatch& batch) const;
  std::vector<Output> read(StepBatch& batch);
  bool report_prompt(Sequence& sequence, const StepChunk& chunk, std::span<SampleResult> known,
                     std::vector<Output>& outputs);
  void settle_chunk(Sequence& sequence, const StepChunk& chunk, bool assumed, std::span<SampleResult> sampled,
                    std::vector<Output>& outputs);
  Output settle(Sequence& sequence, int64_t position, SampledToken choice);
  std::optional<Output> add_states(Sequence& sequence, const StepChunk& chunk, const std::vector<double>& sums);
  void end_finished(const std::vector<Output>& outputs);
};

Engine::Engine(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::InferenceModel& model,
               EngineSettings settings, const comm::Group& ranks) {
  settings.shard = model.shard();
  const EngineSettings used = checked(settings, model.whole());
  EngineLink(ranks).send(EngineMessage::settings, {std::as_bytes(std::span(&used, 1))});
  state_ = std::make_unique<State>(device, registry, threads, model, used, ranks);
}

Engine::~Engine() {
  if (!state_ || state_->interrupted) return;
  try {
    if (state_->in_flight) state_->forward.finish(state_->in_flight->forward);
    state_->link.send(EngineMessage::end);
  } catch (const std::exception&) {
    state_->interrupted = true;  // the other ranks have failed and need no message
  }
}

int64_t Engine::submit(Request request) {
  State& s = *state_;
  const int64_t length = request.prompt.size();
  if (length == 0) throw_error(ErrorKind::usage, "the prompt has no tokens");
  if (request.max_tokens < 0)
    throw_error(ErrorKind::usage, "max_tokens is {}; it must be at least 0", request.max_tokens);
  if (request.embed && request.prompt_logprobs) {
    throw_error(ErrorKind::usage, "a request for an embedding cannot also ask for prompt log-probabilities");
  }
  check(request.sampling);
  if (length > s.settings.context || (length == s.settings.context && !request.embed && request.max_tokens > 0)) {
    throw_hint(ErrorKind::usage, "shorten the prompt or raise the context",
               "the prompt has {} tokens; the context of {} leaves no room for an answer", length, s.settings.context);
  }
  check_ids(request, s.model.spec().vocab);
  if (request.adapter) {
    if (!s.forward.adapters()) {
      throw_error(ErrorKind::usage, "the request has an adapter of rank {}; the engine was configured without adapters",
                  request.adapter->rank);
    }
    s.forward.adapters()->check(*request.adapter);
  }
  const int64_t id = s.next_id++;
  try {
    s.add(id, std::move(request));
  } catch (...) {  // out of memory: the other requests go on
    s.placement.remove(id);
    s.sequences.erase(id);
    throw;
  }
  return id;
}

void Engine::State::add(int64_t id, Request request) {
  Sequence& sequence = sequences[id];
  const auto length = request.prompt.size();
  sequence.request = std::move(request);
  sequence.state.id = id;
  sequence.state.tenant = sequence.request.owner;
  sequence.state.priority = sequence.request.priority;
  sequence.state.tokens = length;
  sequence.state.owner.salt = sequence.request.cache_salt;
  if (sequence.request.adapter) sequence.state.owner.adapter = sequence.request.adapter->identity;
  if (sequence.request.adapter) placement.add(&sequence.state, sequence.request.adapter);
  show_ids(sequence);
  if (sequence.request.deadline) deadlines.emplace(*sequence.request.deadline, id);
  scheduler.add(&sequence.state);
}

void Engine::cancel(int64_t request) noexcept {
  const auto found = state_->sequences.find(request);
  if (found == state_->sequences.end()) return;
  found->second.cancelled = state_->any_cancelled = true;
}

bool Engine::idle() const { return state_->sequences.empty(); }

bool Engine::has_ranks() const { return !state_->link.alone(); }

void Engine::check_ranks() {
  if (!has_ranks()) return;
  state_->interrupted = true;
  state_->link.send(EngineMessage::idle);
  state_->link.barrier();
  state_->interrupted = false;
}

void Engine::observe(ops::OpObserver* observer) { state_->forward.observe(observer); }

EngineCounts Engine::counts() const {
  const State& s = *state_;
  EngineCounts counts = s.counted;
  counts.running = s.scheduler.running();
  counts.waiting = s.scheduler.waiting();
  counts.free_pages = s.pool.free_pages();
  counts.used_pages = s.pool.pages() - s.pool.free_pages();
  counts.preemptions = s.scheduler.preemptions();
  if (AdapterSlots* adapters = state_->forward.adapters()) counts.adapter_uploads = adapters->uploads();
  counts.device_seconds = s.forward.device_seconds();
  return counts;
}

// Final outputs of requests that were cancelled or whose deadline has passed.
std::vector<Output> Engine::State::ended_early() {
  std::map<int64_t, FinishReason> ended;
  if (any_cancelled) {
    for (const auto& [id, sequence] : sequences) {
      if (sequence.cancelled) ended.emplace(id, FinishReason::cancelled);
    }
    any_cancelled = false;
  }
  const Time now = std::chrono::steady_clock::now();
  for (auto due = deadlines.begin(); due != deadlines.end() && due->first < now;) {
    if (sequences.contains(due->second)) {
      ended.emplace(due->second, FinishReason::deadline);
      ++due;
    } else {
      due = deadlines.erase(due);
    }
  }
  std::vector<Output> outputs;
  for (const auto& [id, finish] : ended) {
    if (!sequences.contains(id)) continue;
    Output& output = outputs.emplace_back();
    output.request = id;
    output.finish = finish;
  }
  return outputs;
}

void Engine::State::draft() {
  if (settings.draft_tokens == 0) return;
  for (SequenceState* state : scheduler.running_list()) {
    Sequence& sequence = sequences.at(state->id);
    sequence.draft.clear();
    if (sequence.generates() && !sequence.ids.empty() && state->cached + 1 == state->tokens) {
      const int64_t left = std::min(sequence.request.max_tokens - sequence.produced, settings.context - state->tokens);
      sequence.draft = prompt_lookup_draft(sequence.ids, std::min(settings.draft_tokens, left - 1));
    }
    state->draft_tokens = std::ssize(sequence.draft);
  }
}

// May be empty.
std::vector<ScheduledChunk> Engine::State::schedule() {
  placement.assign();
  draft();
  return scheduler.next();
}

std::vector<ScheduledChunk> Engine::State::next_batch() {
  std::vector<ScheduledChunk> chunks = schedule();
  if (!chunks.empty()) return chunks;
  if (placement.wait()) {  // every sequence waits for its adapter
    chunks = scheduler.next();
    if (!chunks.empty()) return chunks;
  }
  throw_error(ErrorKind::internal, "the KV cache is too small for any waiting sequence");
}

namespace {

// For a row of a sequence that has ended: its result is dropped.
SampleRequest unneeded() {
  static const SamplingParams greedy;
  SampleRequest request;
  request.sampling = &greedy;
  return request;
}

}  // namespace

// Appends how to sample each token of the chunk: the one after the known tokens, and one after each draft token, in
// case the draft is accepted. All tokens before them have been read.
void Engine::State::want(const StepChunk& chunk, std::vector<SampleRequest>& all) {
  const int64_t count = chunk.num_sampled;
  const auto found = sequences.find(chunk.id);
  if (found == sequences.end()) {
    all.insert(all.end(), static_cast<size_t>(count), unneeded());
    return;
  }
  Sequence& sequence = found->second;
  TokenMask* mask = sequence.request.mask.get();
  const bool penalties = has_penalties(sequence.request.sampling);
  int64_t accepted = 0;
  std::string error;
  for (int64_t i = 0; i < count; ++i) {
    SampleRequest& wanted = all.emplace_back();
    wanted.sampling = &sequence.request.sampling;
    wanted.position = chunk.tokens + i;
    wanted.edits = logit_edits(sequence.request.sampling, sequence.counts);
    if (penalties && i + 1 < count) sequence.counts.add(sequence.draft[static_cast<size_t>(i)]);
    wanted.error = error;
    if (!mask || !error.empty()) continue;
    try {
      const std::span<uint32_t> bits = forward.mask(std::ssize(all) - 1);
      mask->fill(bits);
      wanted.masked = true;
      if (i + 1 == count) continue;
      const auto id = static_cast<size_t>(sequence.draft[static_cast<size_t>(i)]);
      error = "after a rejected draft token";
      if (((bits[id / 32] >> (id % 32)) & 1U) == 0) continue;
      mask->accept(sequence.draft[static_cast<size_t>(i)]);
      ++accepted;
      if (!mask->finished()) error.clear();
    } catch (const std::exception& thrown) {  // from this request's mask; also bad_alloc
      wanted.masked = false;
      error = wanted.error = thrown.what();
      wanted.kind = kind_of(thrown);
    }
  }
  if (accepted > 0) mask->rollback(accepted);
  for (int64_t i = 0; penalties && i + 1 < count; ++i) sequence.counts.remove(sequence.draft[static_cast<size_t>(i)]);
}

// Appends the prompt tokens of the chunk to be scored.
void Engine::State::want_scores(const StepChunk& chunk, std::vector<SampleRequest>& all) const {
  const auto found = sequences.find(chunk.id);
  for (int64_t i = 0; i < chunk.num_scored; ++i) {
    SampleRequest& wanted = all.emplace_back(unneeded());
    wanted.known = 0;
    if (found == sequences.end()) continue;
    const Sequence& sequence = found->second;
    wanted.sampling = &sequence.request.sampling;
    wanted.known = sequence.ids[static_cast<size_t>(sequence.scored + i)];
  }
}

// Called before a sequence's first chunk is computed; `cached` tokens were found in the prefix cache. Sequences that
// have not run yet hold no memory besides their Request, which Service bounds.
void Engine::State::begin(Sequence& sequence, int64_t cached) {
  const PromptIds& prompt = sequence.request.prompt;
  sequence.ids = prompt.get();
  if (has_penalties(sequence.request.sampling)) sequence.counts = TokenCounts(prompt.get(), prompt.size());
  if (sequence.state.ids.empty()) return;
  sequence.prefix_hit = cached;
  counted.prefix_lookups += prompt.size();
  counted.prefix_hits += cached;
}

// Queues the model's work for a batch. Sampling follows by `sample`, once the tokens before it have been read.
StepBatch Engine::State::start(std::vector<ScheduledChunk> scheduled) {
  // Makes the rows of one adapter adjacent: ops::lora reads its weights once for them.
  if (forward.adapters()) {
    std::ranges::sort(scheduled, {}, [&](const ScheduledChunk& p) {
      return std::pair(placement.slot(p.sequence->id), p.sequence->id);
    });
  }
  StepBatch batch;
  std::vector<ForwardChunk> parts;
  for (const ScheduledChunk& chunk : scheduled) {
    Sequence& sequence = of(chunk);
    const int64_t guessed = std::max<int64_t>(0, chunk.end - sequence.state.tokens);
    sequence.draft.resize(static_cast<size_t>(guessed));
    if (sequence.ids.empty()) begin(sequence, chunk.begin);
    sequence.ids.insert(sequence.ids.end(), sequence.draft.begin(), sequence.draft.end());
    counted.drafted_tokens += guessed;
    ForwardChunk& part = parts.emplace_back();
    part.ids = sequence.ids;
    part.table = chunk.sequence->table.pages;
    part.begin = chunk.begin;
    part.end = chunk.end;
    part.slot = placement.slot(sequence.state.id);
    part.states = sequence.request.embed;
    part.wanted = sequence.to_sample(chunk);
    part.known_begin = sequence.scored;
    part.known_end = sequence.scored_after(chunk);
    batch.chunks.push_back({.id = sequence.state.id,
                            .begin = chunk.begin,
                            .end = chunk.end,
                            .tokens = sequence.state.tokens,
                            .num_sampled = part.wanted,
                            .num_scored = part.known_end - part.known_begin,
                            .states = part.states});
  }
  batch.forward = forward.start(parts);
  return batch;
}

void Engine::State::sample(StepBatch& batch) {
  std::vector<SampleRequest> wanted, known;
  for (const StepChunk& chunk : batch.chunks) {
    want(chunk, wanted);
    want_scores(chunk, known);
  }
  forward.sample(batch.forward, wanted, known);
}

// Whether one of its sequences has not ended.
bool Engine::State::is_needed(const StepBatch& batch) const {
  return std::ranges::any_of(batch.chunks, [&](const StepChunk& chunk) { return sequences.contains(chunk.id); });
}

// Changes what the scheduler knows to what it will be if every token that the batch samples is accepted. Sequences that
// end with this batch whatever is sampled are blocked.
void Engine::State::assume_results(StepBatch& batch) {
  batch.assumed = true;
  int32_t row = 0;
  for (const StepChunk& chunk : batch.chunks) {
    const auto found = sequences.find(chunk.id);
    if (found != sequences.end()) {
      Sequence& sequence = found->second;
      sequence.state.cached = chunk.end;
      if (chunk.num_sampled > 0) {
        sequence.ids.push_back(-1 - row);
        ++sequence.state.tokens;
        show_ids(sequence);
      }
      const bool last =
          sequence.produced + 1 == sequence.request.max_tokens || sequence.state.tokens >= settings.context;
      if (chunk.complete() && (last || !sequence.generates())) sequence.state.blocked = true;
    }
    row += static_cast<int32_t>(chunk.num_sampled);
  }
}

// Schedules and queues the batch after `batch`, whose results have not been read. Nothing if it must wait for them:
// - when a request may start and the batch computes prompts, whose pages the request may then find in the prefix cache
//   (one whose adapter has just been loaded may start all the same, and finds fewer);
// - when pages may run out for sequences that decode: sequences that end free some, and otherwise one is preempted.
//   Prompts may preempt a sequence that would not have to be once results are read;
// - when nothing can run.
std::optional<StepBatch> Engine::State::run_ahead(StepBatch& batch) {
  if (!forward.runs_ahead() || settings.draft_tokens > 0 || batch.forward.is_read_again()) return std::nullopt;
  const auto is_prompt = [&](const StepChunk& chunk) {
    const auto found = sequences.find(chunk.id);
    return found != sequences.end() && chunk.begin < found->second.request.prompt.size();
  };
  if (settings.prefix_cache && scheduler.can_start() && std::ranges::any_of(batch.chunks, is_prompt))
    return std::nullopt;
  assume_results(batch);
  if (!scheduler.has_decoding_pages()) return std::nullopt;
  std::vector<ScheduledChunk> scheduled = schedule();
  if (scheduled.empty()) return std::nullopt;
  return start(std::move(scheduled));
}

// The token at `position` of the sequence: after its known tokens, or one that was in flight.
Output Engine::State::settle(Sequence& sequence, int64_t position, SampledToken choice) {
  Output output;
  output.request = sequence.state.id;
  const Request& request = sequence.request;
  if (std::find(request.stop_ids.begin(), request.stop_ids.end(), choice.id) != request.stop_ids.end()) {
    output.finish = FinishReason::stop;
    output.ended_by = std::move(choice);
    return output;
  }
  if (position < std::ssize(sequence.ids)) {
    sequence.ids[static_cast<size_t>(position)] = choice.id;
  } else {
    sequence.ids.push_back(choice.id);
    ++sequence.state.tokens;
  }
  if (has_penalties(request.sampling)) sequence.counts.add(choice.id);
  ++sequence.produced;
  if (request.mask) request.mask->accept(choice.id);
  output.token = std::move(choice);
  if (request.mask && request.mask->finished()) {
    output.finish = FinishReason::stop;
  } else if (sequence.produced == request.max_tokens || position + 1 >= settings.context) {
    output.finish = FinishReason::length;
  }
  return output;
}

// Appends an output with the prompt log-probabilities of the chunk. False when the request has failed.
bool Engine::State::report_prompt(Sequence& sequence, const StepChunk& chunk, std::span<SampleResult> known,
                                  std::vector<Output>& outputs) {
  if (known.empty()) return true;
  sequence.scored += chunk.num_scored;
  sequence.has_output = true;
  Output& output = outputs.emplace_back();
  output.request = sequence.state.id;
  for (SampleResult& one : known) {
    if (!one.error.empty()) {
      output.prompt.clear();
      output.finish = FinishReason::failed;
      output.error = one.error;
      output.kind = one.kind;
      return false;
    }
    output.prompt.push_back(std::move(one.choice));
  }
  return true;
}

// `assumed`: the scheduler knows the chunk's results already.
void Engine::State::settle_chunk(Sequence& sequence, const StepChunk& chunk, bool assumed,
                                 std::span<SampleResult> sampled, std::vector<Output>& outputs) {
  sequence.ids.resize(static_cast<size_t>(sequence.state.tokens));  // without draft tokens
  int64_t known = chunk.tokens;
  for (size_t i = 0; i < sampled.size(); ++i) {
    Output output;
    if (sampled[i].error.empty()) {
      const int32_t id = sampled[i].choice.id;
      const bool right = i < sequence.draft.size() && id == sequence.draft[i];
      try {
        output = settle(sequence, known, std::move(sampled[i].choice));
        known += output.token ? 1 : 0;
      } catch (const std::exception& error) {
        sampled[i].error = error.what();
        sampled[i].kind = kind_of(error);
      }
      counted.accepted_tokens += right;
      if (!right) sampled = sampled.first(i + 1);
    }
    if (!sampled[i].error.empty()) {
      output = {};
      output.request = sequence.state.id;
      output.finish = FinishReason::failed;
      output.error = sampled[i].error;
      output.kind = sampled[i].kind;
    }
    if (!sequence.has_output) output.cached_tokens = sequence.prefix_hit;
    sequence.has_output = true;
    outputs.push_back(std::move(output));
    if (outputs.back().finish) break;
  }
  const int64_t cached = std::min(chunk.end, sampled.empty() ? known : known - 1);
  if (!assumed) sequence.state.cached = cached;
  show_ids(sequence);
  if (!outputs.empty() && outputs.back().finish == FinishReason::failed && outputs.back().request == sequence.state.id)
    return;
  // It may have been preempted since the batch was started.
  pool.cache(sequence.state.table, sequence.ids, std::min(cached, sequence.state.cached), sequence.state.owner);
  if (sequence.request.embed || sequence.generates() || !chunk.complete()) return;
  Output& output = outputs.emplace_back();
  output.request = sequence.state.id;
  output.finish = FinishReason::length;
  if (!sequence.has_output) output.cached_tokens = sequence.prefix_hit;
}

// Adds up the states of the chunks; returns the embedding at the end of the prompt.
std::optional<Output> Engine::State::add_states(Sequence& sequence, const StepChunk& chunk,
                                                const std::vector<double>& sums) {
  if (chunk.begin == 0) sequence.states.assign(sums.size(), 0);  // it may have restarted after a preemption
  for (size_t i = 0; i < sums.size(); ++i) sequence.states[i] += sums[i];
  if (!chunk.complete()) return std::nullopt;
  Output output;
  output.request = sequence.state.id;
  output.finish = FinishReason::stop;
  for (const double sum : sequence.states) {
    output.embedding.push_back(static_cast<float>(sum / static_cast<double>(sequence.state.tokens)));
  }
  const bool finite =
      std::all_of(output.embedding.begin(), output.embedding.end(), [](float x) { return std::isfinite(x); });
  if (!finite) {
    output.embedding.clear();
    output.finish = FinishReason::failed;
    output.error = "a hidden state is not finite: the weights may be damaged, or too large for this activation type";
    output.kind = ErrorKind::corrupt;
  }
  return output;
}

void Engine::State::end_finished(const std::vector<Output>& outputs) {
  for (const Output& output : outputs) {
    if (!output.finish) continue;
    Sequence& sequence = sequences.at(output.request);
    scheduler.remove(&sequence.state);
    placement.remove(output.request);
    if (sequence.request.deadline) {
      auto [due, end] = deadlines.equal_range(*sequence.request.deadline);
      deadlines.erase(std::find_if(due, end, [&](const auto& each) { return each.second == output.request; }));
    }
    sequences.erase(output.request);
  }
}

// Waits for the batch's results and returns its outputs.
std::vector<Output> Engine::State::read(StepBatch& batch) {
  ForwardResult result = forward.finish(batch.forward);
  std::vector<Output> outputs;
  size_t row = 0, known = 0, states = 0;
  for (const StepChunk& chunk : batch.chunks) {
    const auto sampled = std::span(result.sampled).subspan(row, static_cast<size_t>(chunk.num_sampled));
    const auto scored = std::span(result.known).subspan(known, static_cast<size_t>(chunk.num_scored));
    row += sampled.size();
    known += scored.size();
    const size_t state = states;
    states += chunk.states ? 1 : 0;
    const auto found = sequences.find(chunk.id);
    if (found == sequences.end()) continue;
    if (report_prompt(found->second, chunk, scored, outputs)) {
      settle_chunk(found->second, chunk, batch.assumed, sampled, outputs);
    }
    if (!chunk.states) continue;
    std::optional<Output> output = add_states(found->second, chunk, result.state_sums[state]);
    if (output) outputs.push_back(std::move(*output));
  }
  return outputs;
}

// Returns the outputs of one batch: of the one in flight, if there is one that is still needed.
std::vector<Output> Engine::State::run_batch() {
  if (in_flight && !is_needed(*in_flight)) {
    forward.finish(in_flight->forward);
    in_flight.reset();
  }
  if (!in_flight) {
    in_flight = start(next_batch());
    sample(*in_flight);
  }
  std::optional<StepBatch> next = run_ahead(*in_flight);
  std::vector<Output> outputs = read(*in_flight);
  end_finished(outputs);
  in_flight = std::move(next);
  if (in_flight && is_needed(*in_flight)) sample(*in_flight);
  return outputs;
}

std::vector<Output> Engine::step() {
  State& s = *state_;
  std::vector<Output> outputs = s.ended_early();
  s.end_finished(outputs);
  if (s.sequences.empty()) return outputs;
  s.interrupted = true;
  std::vector<Output> given = s.run_batch();
  s.interrupted = false;
  std::move(given.begin(), given.end(), std::back_inserter(outputs));
  return outputs;
}

}  // namespace ingot::infer

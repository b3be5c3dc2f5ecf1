#include "infer/engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/error.h"
#include "infer/forward.h"
#include "infer/scheduler.h"

namespace ingot::infer {

namespace {

struct Sequence {
  SequenceState state;
  Request request;
  std::vector<int32_t> ids;  // prompt and output
  int64_t produced = 0;
  bool cancelled = false;
  std::vector<double> states;  // of a request for its states: those of the pieces so far, added up

  bool expired(std::chrono::steady_clock::time_point now) const { return request.deadline && *request.deadline < now; }
  bool complete(const Piece& piece) const { return piece.end == state.tokens; }
};

void check_ids(const Request& request, int64_t vocab) {
  const auto inside = [&](int32_t id, const char* what) {
    if (id < 0 || id >= vocab) throw_error(ErrorKind::usage, "{} {} is outside the vocabulary of {}", what, id, vocab);
  };
  for (const int32_t id : request.prompt) inside(id, "token id");
  for (const LogitBias& bias : request.sampling.logit_bias) inside(bias.id, "logit_bias: token id");
}

}  // namespace

const char* name(Finish finish) {
  switch (finish) {
    case Finish::stop: return "stop";
    case Finish::length: return "length";
    case Finish::cancelled: return "cancelled";
    case Finish::deadline: return "deadline";
    case Finish::failed: return "failed";
  }
  return "?";
}

struct Engine::State {
  const models::Model& model;
  EngineSettings settings;
  PagePool pool;
  Scheduler scheduler;
  Forward forward;
  std::map<int64_t, Sequence> sequences;  // by id: in order of arrival
  std::vector<uint32_t> allowed;          // a mask's bits
  int64_t next_id = 1;

  State(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& m, EngineSettings s)
      : model(m),
        settings(s),
        pool(num_pages(s), s.page_tokens),
        scheduler(pool, s.batch_tokens, s.sequences),
        forward(device, registry, threads, m, s),
        allowed(static_cast<size_t>(m.spec().vocab + 31) / 32) {}

  Sequence& of(const Piece& piece) { return sequences.at(piece.sequence->id); }

  std::vector<Output> ended_early();
  std::vector<Output> run_batch();
  ForwardResult compute(const std::vector<Piece>& pieces);
  Output next_token(Sequence& sequence, std::span<const float> logits);
  Output settle(Sequence& sequence, Choice choice);
  std::optional<Output> add_states(const Piece& piece, const std::vector<double>& sums);
  void end_finished(const std::vector<Output>& outputs);
};

Engine::Engine(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
               EngineSettings settings)
    : state_(std::make_unique<State>(device, registry, threads, model, checked(settings, model.spec()))) {}

Engine::~Engine() = default;

int64_t Engine::submit(Request request) {
  State& s = *state_;
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) throw_error(ErrorKind::usage, "the prompt has no tokens");
  if (request.max_tokens < 1 && !request.embed) {
    throw_error(ErrorKind::usage, "max_tokens is {}; at least 1", request.max_tokens);
  }
  check(request.sampling);
  if (length > s.settings.context || (length == s.settings.context && !request.embed)) {
    throw_hint(ErrorKind::usage, "shorten the prompt or raise the context",
               "the prompt has {} tokens; the context of {} leaves no room for an answer", length, s.settings.context);
  }
  check_ids(request, s.model.spec().vocab);
  if (request.adapter && request.adapter->rank > s.settings.adapter_rank) {
    throw_error(ErrorKind::usage, "an adapter of rank {}; the engine has memory for rank {}", request.adapter->rank,
                s.settings.adapter_rank);
  }
  const int64_t id = s.next_id++;
  Sequence& sequence = s.sequences[id];
  sequence.ids = request.prompt;
  sequence.request = std::move(request);
  sequence.state.id = id;
  sequence.state.priority = sequence.request.priority;
  sequence.state.tokens = length;
  s.scheduler.add(&sequence.state);
  return id;
}

void Engine::cancel(int64_t request) {
  const auto found = state_->sequences.find(request);
  if (found != state_->sequences.end()) found->second.cancelled = true;
}

bool Engine::idle() const { return state_->sequences.empty(); }

EngineCounts Engine::counts() const {
  const State& s = *state_;
  EngineCounts counts;
  counts.running = s.scheduler.running();
  counts.waiting = s.scheduler.waiting();
  counts.free_pages = s.pool.free_pages();
  counts.used_pages = s.pool.pages() - s.pool.free_pages();
  counts.preemptions = s.scheduler.preemptions();
  return counts;
}

// The last outputs of requests that are not to go on.
std::vector<Output> Engine::State::ended_early() {
  std::vector<Output> outputs;
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [id, sequence] : sequences) {
    if (!sequence.cancelled && !sequence.expired(now)) continue;
    Output output;
    output.request = id;
    output.finish = sequence.cancelled ? Finish::cancelled : Finish::deadline;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

ForwardResult Engine::State::compute(const std::vector<Piece>& pieces) {
  std::vector<ForwardPiece> parts;
  for (const Piece& piece : pieces) {
    const Sequence& sequence = of(piece);
    ForwardPiece& part = parts.emplace_back();
    part.ids = sequence.ids;
    part.table = piece.sequence->table;
    part.begin = piece.begin;
    part.end = piece.end;
    part.adapter = sequence.request.adapter ? &sequence.request.adapter->weights : nullptr;
    part.states = sequence.request.embed;
    part.logits = !part.states && sequence.complete(piece);
  }
  return forward.run(parts);
}

Output Engine::State::settle(Sequence& sequence, Choice choice) {
  Output output;
  output.request = sequence.state.id;
  const Request& request = sequence.request;
  if (std::find(request.stop_ids.begin(), request.stop_ids.end(), choice.id) != request.stop_ids.end()) {
    output.finish = Finish::stop;
    return output;
  }
  sequence.ids.push_back(choice.id);
  ++sequence.produced;
  ++sequence.state.tokens;
  if (request.mask) request.mask->accept(choice.id);
  output.token = std::move(choice);
  if (request.mask && request.mask->finished()) {
    output.finish = Finish::stop;
  } else if (sequence.produced == request.max_tokens || sequence.state.tokens >= settings.context) {
    output.finish = Finish::length;
  }
  return output;
}

Output Engine::State::next_token(Sequence& sequence, std::span<const float> logits) {
  const Request& request = sequence.request;
  Past past{sequence.ids, std::ssize(request.prompt), {}};
  try {
    if (request.mask) {
      request.mask->fill(allowed);
      past.allowed = allowed;
    }
    return settle(sequence, choose(logits, request.sampling, past, sequence.state.tokens));
  } catch (const Error& error) {
    Output output;
    output.request = sequence.state.id;
    output.finish = Finish::failed;
    output.error = error.hint().empty() ? error.message() : error.message() + ": " + error.hint();
    return output;
  }
}

// The embedding at the end of the prompt.
std::optional<Output> Engine::State::add_states(const Piece& piece, const std::vector<double>& sums) {
  Sequence& sequence = of(piece);
  if (piece.begin == 0) sequence.states.assign(sums.size(), 0);  // it may have been preempted
  for (size_t i = 0; i < sums.size(); ++i) sequence.states[i] += sums[i];
  if (!sequence.complete(piece)) return std::nullopt;
  Output output;
  output.request = sequence.state.id;
  output.finish = Finish::stop;
  for (const double sum : sequence.states) {
    output.embedding.push_back(static_cast<float>(sum / static_cast<double>(sequence.state.tokens)));
  }
  const bool finite = std::all_of(output.embedding.begin(), output.embedding.end(), [](float x) { return std::isfinite(x); });
  if (!finite) {
    output.embedding.clear();
    output.finish = Finish::failed;
    output.error = "a state is not a number";
  }
  return output;
}

void Engine::State::end_finished(const std::vector<Output>& outputs) {
  for (const Output& output : outputs) {
    if (!output.finish) continue;
    scheduler.remove(&sequences.at(output.request).state);
    sequences.erase(output.request);
  }
}

std::vector<Output> Engine::State::run_batch() {
  const std::vector<Piece> pieces = scheduler.next();
  if (pieces.empty()) throw_error(ErrorKind::internal, "the KV cache is too small for any waiting sequence");
  const ForwardResult result = compute(pieces);
  Scheduler::done(pieces);
  std::vector<Output> outputs;
  const size_t vocab = static_cast<size_t>(model.spec().vocab);
  size_t row = 0, states = 0;
  for (const Piece& piece : pieces) {
    Sequence& sequence = of(piece);
    if (sequence.request.embed) {
      std::optional<Output> output = add_states(piece, result.state_sums[states++]);
      if (output) outputs.push_back(std::move(*output));
    } else if (sequence.complete(piece)) {
      outputs.push_back(next_token(sequence, result.logits.subspan(row++ * vocab, vocab)));
    }
  }
  return outputs;
}

std::vector<Output> Engine::step() {
  State& s = *state_;
  std::vector<Output> outputs = s.ended_early();
  s.end_finished(outputs);
  if (s.sequences.empty()) return outputs;
  std::vector<Output> given = s.run_batch();
  s.end_finished(given);
  std::move(given.begin(), given.end(), std::back_inserter(outputs));
  return outputs;
}

}  // namespace ingot::infer

#include "infer/engine.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "base/error.h"
#include "base/thread_pool.h"
#include "infer/scheduler.h"
#include "ops/elementwise.h"
#include "tensor/staging.h"

namespace ingot::infer {

namespace {

models::PassShape pass_shape(const EngineSettings& settings, int threads) {
  models::PassShape shape;
  shape.tokens = settings.batch_tokens;
  shape.longest = settings.context;
  shape.logit_rows = std::min(settings.sequences, settings.batch_tokens);
  shape.adapter_rank = settings.adapter_rank;
  shape.activation = settings.activation;
  shape.decoded = settings.decoded;
  shape.threads = threads;
  return shape;
}

int64_t pages_per_sequence(const EngineSettings& settings) {
  return (settings.context + settings.page_tokens - 1) / settings.page_tokens;
}

int64_t num_pages(const EngineSettings& settings) {
  return settings.pages ? settings.pages : settings.sequences * pages_per_sequence(settings);
}

// With the model's context where none was given.
EngineSettings resolved(EngineSettings settings, const spec::ModelSpec& model) {
  if (settings.context == 0) settings.context = model.context;
  return settings;
}

EngineSettings checked(EngineSettings settings, const models::Model& model) {
  const int64_t most = model.spec().context;
  settings = resolved(settings, model.spec());
  if (settings.context < 1 || settings.context > most) {
    throw_error(ErrorKind::usage, "a context of {} tokens; the model was made for {}", settings.context, most);
  }
  if (settings.batch_tokens < 1 || settings.sequences < 1 || settings.page_tokens < 1) {
    throw_error(ErrorKind::usage, "an engine needs at least one sequence, one token a batch and one token a page");
  }
  if (num_pages(settings) < pages_per_sequence(settings)) {
    throw_error(ErrorKind::usage, "{} pages of {} tokens cannot hold one sequence of {}", settings.pages,
                settings.page_tokens, settings.context);
  }
  return settings;
}

}  // namespace

const char* name(Finish finish) {
  switch (finish) {
    case Finish::stop: return "stop";
    case Finish::length: return "length";
    case Finish::cancelled: return "cancelled";
  }
  return "?";
}

EngineBytes engine_bytes(const spec::ModelSpec& model, const EngineSettings& wanted, int threads) {
  const EngineSettings settings = resolved(wanted, model);
  const models::PassShape shape = pass_shape(settings, threads);
  const size_t activation = size_of(settings.activation);
  const size_t tokens = static_cast<size_t>(settings.batch_tokens);
  const size_t sequences = static_cast<size_t>(settings.sequences);
  const int64_t pages = num_pages(settings);
  EngineBytes bytes;
  bytes.kv = spec::kv_bytes(model, pages, settings.page_tokens, static_cast<int64_t>(activation));
  bytes.scratch = models::pass_bytes(model, shape).forward;
  // ids, positions, slots; offsets, lengths, page tables (one after another: they are uploaded together); normed states
  // of all tokens and of those asked; logits.
  bytes.batch = 3 * Arena::footprint(tokens * 4) + Arena::footprint((sequences + 1) * 4) +
                Arena::footprint(sequences * 4) +
                Arena::footprint(sequences * static_cast<size_t>(pages_per_sequence(settings)) * 4) +
                Arena::footprint(tokens * static_cast<size_t>(model.hidden) * activation) +
                Arena::footprint(static_cast<size_t>(shape.logit_rows * model.hidden) * activation) +
                Arena::footprint(static_cast<size_t>(shape.logit_rows * model.vocab) * 4);
  return bytes;
}

namespace {

// Adapters' rows and weights, as far as they decide what a decoding step launches with which addresses.
std::vector<uintptr_t> traits_of(const std::vector<nn::AdapterSegment>& adapters) {
  std::vector<uintptr_t> traits;
  const auto add = [&](const Tensor& weight) {
    traits.push_back(reinterpret_cast<uintptr_t>(weight.data));
    traits.push_back(static_cast<uintptr_t>(weight ? weight.rows() : 0));
  };
  for (const nn::AdapterSegment& segment : adapters) {
    traits.push_back(static_cast<uintptr_t>(segment.begin));
    traits.push_back(static_cast<uintptr_t>(segment.end));
    uint32_t factor = 0;
    std::memcpy(&factor, &segment.adapter->factor, sizeof factor);
    traits.push_back(factor);
    for (const nn::LoraWeights& layer : segment.adapter->layers) {
      add(layer.a);
      add(layer.b);
    }
  }
  return traits;
}

}  // namespace

struct Engine::State {
  struct Sequence {
    SequenceState state;
    Request request;
    std::vector<int32_t> ids;  // prompt and output
    int64_t produced = 0;
    bool cancelled = false;
  };

  // A batch of one token of each of `rows` sequences, which launches the same from step to step: what changes, token
  // ids, positions and pages, is in tensors. The first such batch runs as any other (and loads what it needs), the
  // second is recorded, and from then on it is run again.
  struct Decoding {
    int64_t rows = 0;
    std::vector<uintptr_t> adapters;
    std::unique_ptr<Replay> replay;
  };
  static constexpr size_t most_decodings = 16;

  Device& device;
  const models::Model& model;
  EngineSettings settings;
  Arena scratch;
  Arena kv;
  Arena batch;
  ops::Context context;
  PagePool pool;
  Scheduler scheduler;
  nn::KvCache cache;
  Tensor ids, positions, slots, offsets, lengths, tables;  // of the largest batch
  Tensor normed, chosen, logits;
  HostBuffer up, down;  // of ids .. tables; of logits
  std::unique_ptr<Event> computed;
  std::deque<Decoding> decodings;         // the one used last first
  std::map<int64_t, Sequence> sequences;  // by id: in order of arrival
  int64_t next_id = 1;

  State(Device& d, const ops::Registry& registry, ThreadPool& threads, const models::Model& m, EngineSettings s)
      : device(d),
        model(m),
        settings(s),
        context{d, registry, scratch, &threads},
        pool(num_pages(s), s.page_tokens),
        scheduler(pool, s.batch_tokens, s.sequences) {
    const EngineBytes bytes = engine_bytes(m.spec(), s, threads.threads());
    scratch = Arena(d, bytes.scratch, "scratch");
    kv = Arena(d, bytes.kv, "KV cache");
    batch = Arena(d, bytes.batch, "batch");
    const spec::ModelSpec& spec = m.spec();
    const Shape shape{num_pages(s), s.page_tokens, spec.kv_heads * spec.head_dim};
    for (int64_t layer = 0; layer < spec.layers; ++layer) {
      const Tensor k = kv.take(s.activation, shape);
      cache.layers.push_back({k, kv.take(s.activation, shape)});
    }
    const int64_t rows = pass_shape(s, threads.threads()).logit_rows;
    ids = batch.take(DType::i32, Shape{s.batch_tokens});
    positions = batch.take(DType::i32, Shape{s.batch_tokens});
    slots = batch.take(DType::i32, Shape{s.batch_tokens});
    offsets = batch.take(DType::i32, Shape{s.sequences + 1});
    lengths = batch.take(DType::i32, Shape{s.sequences});
    tables = batch.take(DType::i32, Shape{s.sequences, pages_per_sequence(s)});
    normed = batch.take(s.activation, Shape{s.batch_tokens, spec.hidden});
    chosen = batch.take(s.activation, Shape{rows, spec.hidden});
    logits = batch.take(DType::f32, Shape{rows, spec.vocab});
    up = HostBuffer(d, place_of(tables) + tables.bytes());
    down = HostBuffer(d, logits.bytes());
    computed = d.make_event();
  }

  // Where the host's copy of an uploaded tensor begins.
  size_t place_of(const Tensor& tensor) const {
    return static_cast<size_t>(static_cast<const std::byte*>(tensor.data) - static_cast<const std::byte*>(ids.data));
  }
  int32_t* on_host(const Tensor& tensor) const { return reinterpret_cast<int32_t*>(up.data() + place_of(tensor)); }

  Sequence& of(const Piece& piece) { return sequences.at(piece.sequence->id); }

  // Logits [R, V] of the last token of every piece that ends its sequence, in order; until the next call.
  std::span<const float> compute(const std::vector<Piece>& pieces);
  // Calls `work`, or runs again what it did before.
  void decode(int64_t rows, const std::vector<nn::AdapterSegment>& adapters, FunctionRef<void()> work);
  void settle(Sequence& sequence, const Choice& choice, std::vector<Output>& outputs);
};

Engine::Engine(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
               EngineSettings settings)
    : state_(std::make_unique<State>(device, registry, threads, model, checked(settings, model))) {}

Engine::~Engine() = default;

int64_t Engine::submit(Request request) {
  State& s = *state_;
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) throw_error(ErrorKind::usage, "the prompt has no tokens");
  if (request.max_tokens < 1) throw_error(ErrorKind::usage, "max_tokens is {}; at least 1", request.max_tokens);
  check(request.sampling);
  if (length >= s.settings.context) {
    throw_hint(ErrorKind::usage, "shorten the prompt or raise the context",
               "the prompt has {} tokens; the context of {} leaves no room for an answer", length, s.settings.context);
  }
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= s.model.spec().vocab) {
      throw_error(ErrorKind::usage, "token id {} is outside the vocabulary of {}", id, s.model.spec().vocab);
    }
  }
  if (request.adapter) {
    for (const nn::LoraWeights& layer : request.adapter->layers) {
      if (layer.a && layer.a.rows() > s.settings.adapter_rank) {
        throw_error(ErrorKind::usage, "an adapter of rank {}; the engine has memory for rank {}", layer.a.rows(),
                    s.settings.adapter_rank);
      }
    }
  }
  const int64_t id = s.next_id++;
  State::Sequence& sequence = s.sequences[id];
  sequence.ids = request.prompt;
  sequence.request = std::move(request);
  sequence.state.id = id;
  sequence.state.tokens = length;
  s.scheduler.add(&sequence.state);
  return id;
}

void Engine::cancel(int64_t request) {
  const auto found = state_->sequences.find(request);
  if (found != state_->sequences.end()) found->second.cancelled = true;
}

bool Engine::idle() const { return state_->sequences.empty(); }

void Engine::State::decode(int64_t rows, const std::vector<nn::AdapterSegment>& adapters, FunctionRef<void()> work) {
  std::vector<uintptr_t> traits = traits_of(adapters);
  const auto known = std::find_if(decodings.begin(), decodings.end(),
                                  [&](const Decoding& d) { return d.rows == rows && d.adapters == traits; });
  if (known == decodings.end()) {
    if (decodings.size() == most_decodings) decodings.pop_back();
    decodings.push_front({rows, std::move(traits), nullptr});
    return work();
  }
  std::rotate(decodings.begin(), known, known + 1);
  std::unique_ptr<Replay>& replay = decodings.front().replay;
  if (!replay) replay = device.record(work);
  replay->run();
}

std::span<const float> Engine::State::compute(const std::vector<Piece>& pieces) {
  const int64_t most_pages = pages_per_sequence(settings);
  std::vector<nn::AdapterSegment> adapters, asked_adapters;
  std::vector<int64_t> asked;  // rows whose logits are wanted
  int64_t tokens = 0;
  on_host(offsets)[0] = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const Sequence& sequence = of(piece);
    const std::vector<int32_t>& table = piece.sequence->table;
    const int64_t first = tokens;
    for (int64_t t = piece.begin; t < piece.end; ++t, ++tokens) {
      const int32_t page = table[static_cast<size_t>(t / settings.page_tokens)];
      on_host(ids)[tokens] = sequence.ids[static_cast<size_t>(t)];
      on_host(positions)[tokens] = static_cast<int32_t>(t);
      on_host(slots)[tokens] = static_cast<int32_t>(page * settings.page_tokens + t % settings.page_tokens);
    }
    on_host(offsets)[i + 1] = static_cast<int32_t>(tokens);
    on_host(lengths)[i] = static_cast<int32_t>(piece.end);
    int32_t* own = on_host(tables) + static_cast<int64_t>(i) * most_pages;
    std::fill(std::copy(table.begin(), table.end(), own), own + most_pages, 0);
    const nn::Adapter* adapter = sequence.request.adapter;
    if (adapter) adapters.push_back({first, tokens, adapter});
    if (piece.end == piece.sequence->tokens) {
      const int64_t row = static_cast<int64_t>(asked.size());
      if (adapter) asked_adapters.push_back({row, row + 1, adapter});
      asked.push_back(tokens - 1);
    }
  }

  const int64_t count = static_cast<int64_t>(pieces.size());
  const int64_t rows = static_cast<int64_t>(asked.size());
  const Tensor used = tables.slice(0, count);
  device.start_copy_from_host(Stream::compute, ids.data, up.data(), place_of(used) + used.bytes());
  const nn::TokenBatch flat{ids.slice(0, tokens), positions.slice(0, tokens), offsets.slice(0, count + 1)};
  cache.slots = slots.slice(0, tokens);
  cache.layout = {flat.offsets, lengths.slice(0, count), used};

  const bool every_row = rows == tokens;  // then each piece is one token that ends its sequence
  const auto work = [&] {
    nn::Pass pass{context, flat, settings.activation, adapters, &cache};
    model.forward(pass, normed.slice(0, tokens));
    if (rows == 0) return;
    for (int64_t row = 0; row < rows && !every_row; ++row) {
      const int64_t from = asked[static_cast<size_t>(row)];
      ops::scale(context, chosen.slice(row, row + 1), normed.slice(from, from + 1), 1);
    }
    nn::Pass head{context, flat, settings.activation, asked_adapters};
    model.logits(head, logits.slice(0, rows), (every_row ? normed : chosen).slice(0, rows));
  };
  // Which experts rows go to is known to the host only when it has waited for the router.
  if (every_row && device.replays() && model.spec().experts == 0) {
    decode(rows, adapters, work);
  } else {
    work();
  }
  const Tensor wanted = logits.slice(0, rows);
  device.start_copy_to_host(Stream::compute, down.data(), wanted.data, wanted.bytes());
  computed->record(Stream::compute);
  computed->wait();
  return {reinterpret_cast<const float*>(down.data()), static_cast<size_t>(wanted.elements())};
}

void Engine::State::settle(Sequence& sequence, const Choice& choice, std::vector<Output>& outputs) {
  Output output{sequence.state.id, choice, std::nullopt};
  const std::vector<int32_t>& stops = sequence.request.stop_ids;
  if (std::find(stops.begin(), stops.end(), choice.id) != stops.end()) {
    output.token.reset();
    output.finish = Finish::stop;
  } else {
    sequence.ids.push_back(choice.id);
    ++sequence.produced;
    ++sequence.state.tokens;
    if (sequence.produced == sequence.request.max_tokens || sequence.state.tokens >= settings.context) {
      output.finish = Finish::length;
    }
  }
  outputs.push_back(output);
}

std::vector<Output> Engine::step() {
  State& s = *state_;
  std::vector<Output> outputs;
  for (auto& [id, sequence] : s.sequences) {
    if (sequence.cancelled) outputs.push_back({id, std::nullopt, Finish::cancelled});
  }
  const auto end_finished = [&] {
    for (const Output& output : outputs) {
      if (!output.finish) continue;
      s.scheduler.remove(&s.sequences.at(output.request).state);
      s.sequences.erase(output.request);
    }
  };
  if (!outputs.empty()) {
    end_finished();
    return outputs;
  }
  // A batch may only fill prompts; go on until something is to be told.
  while (outputs.empty() && !s.sequences.empty()) {
    const std::vector<Piece> pieces = s.scheduler.next();
    if (pieces.empty()) throw_error(ErrorKind::internal, "the KV cache is too small for any waiting sequence");
    const std::span<const float> logits = s.compute(pieces);
    Scheduler::done(pieces);
    size_t row = 0;
    const size_t vocab = static_cast<size_t>(s.model.spec().vocab);
    for (const Piece& piece : pieces) {
      if (piece.end != piece.sequence->tokens) continue;
      State::Sequence& sequence = s.of(piece);
      const std::span<const float> scores = logits.subspan(row++ * vocab, vocab);
      s.settle(sequence, choose(scores, sequence.request.sampling, sequence.ids, piece.end), outputs);
    }
  }
  end_finished();
  return outputs;
}

}  // namespace ingot::infer

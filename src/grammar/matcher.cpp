#include "grammar/matcher.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/mask_builder.h"

namespace ingot::grammar {

namespace {

constexpr size_t max_masks = 1024;  // max cached masks of one grammar
constexpr double many = 0.375;      // above this share of a limit, the next output gets a new machine
constexpr int32_t ended = -1;

bool is_many(int64_t number, int64_t limit) { return static_cast<double>(number) > many * static_cast<double>(limit); }

}  // namespace

// The states and masks of a grammar. All access is under `mutex`.
class Machine {
 public:
  Machine(const Grammar& grammar, const Vocabulary& vocabulary, const StateLimits& limits)
      : automaton(grammar.automaton()), vocabulary(vocabulary), builder(automaton, vocabulary, limits), limits(limits) {
    automaton.set_limits(limits);
  }

  // Adds the walk's steps to `visits`.
  const std::vector<uint32_t>& mask(TermId state, int64_t& visits) {
    const auto known = masks.find(state);
    if (known != masks.end()) return known->second;
    std::vector<uint32_t> bits(vocabulary.num_words());
    builder.fill(state, bits);
    visits += builder.visits();
    if (masks.size() >= max_masks) masks.clear();
    return masks.emplace(state, std::move(bits)).first->second;
  }

  size_t bytes() const {
    constexpr size_t of_a_term = 128, of_a_row = 512;
    return static_cast<size_t>(automaton.terms.used()) * of_a_term +
           static_cast<size_t>(automaton.num_rows()) * of_a_row +
           masks.size() * vocabulary.num_words() * sizeof(uint32_t);
  }
  bool is_large() const {
    return is_many(automaton.terms.used(), limits.terms) || is_many(automaton.num_rows(), limits.rows);
  }

  std::mutex mutex;
  Automaton automaton;
  const Vocabulary& vocabulary;
  MaskBuilder builder;
  const StateLimits limits;
  std::unordered_map<TermId, std::vector<uint32_t>> masks;
};

TokenGrammar::TokenGrammar(GrammarPtr grammar, std::shared_ptr<const Vocabulary> vocabulary, const StateLimits& limits)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), limits_(limits) {}

TokenGrammar::~TokenGrammar() = default;

std::shared_ptr<Machine> TokenGrammar::machine() const {
  const std::lock_guard lock(mutex_);
  if (machine_) {
    const std::lock_guard inner(machine_->mutex);
    if (!machine_->is_large()) return machine_;
  }
  machine_ = std::make_shared<Machine>(*grammar_, *vocabulary_, limits_);
  return machine_;
}

std::shared_ptr<Machine> TokenGrammar::own_machine() const {
  return std::make_shared<Machine>(*grammar_, *vocabulary_, limits_);
}

size_t TokenGrammar::bytes() const {
  const std::lock_guard lock(mutex_);
  if (!machine_) return 0;
  const std::lock_guard inner(machine_->mutex);
  return machine_->bytes();
}

Matcher::Matcher(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)), machine_(grammar_->machine()), positions_{{grammar_->start(), 0}} {}

bool Matcher::is_ended() const { return positions_.back().state == ended; }

// Runs `work` on the machine and the current state. When the shared machine is full, other outputs may have filled it:
// `work` is then retried once on a private machine.
template <class Work>
auto Matcher::worked(Work work) const {
  try {
    const std::lock_guard lock(machine_->mutex);
    return work(*machine_, positions_.back().state);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource || is_alone_) throw;
  }
  work_alone();
  const std::lock_guard lock(machine_->mutex);
  return work(*machine_, positions_.back().state);
}

void Matcher::work_alone() const {
  const std::shared_ptr<Machine> machine = grammar_->own_machine();
  std::vector<Position> places = {{grammar_->start(), 0}};
  for (size_t i = 1; i < positions_.size(); ++i) {
    const Position from = places.back();
    const size_t length = positions_[i].length;
    const std::string_view bytes = std::string_view(text_).substr(from.length, length - from.length);
    places.push_back({positions_[i].state == ended ? ended : machine->automaton.step(from.state, bytes), length});
  }
  machine_ = machine;
  positions_ = std::move(places);
  is_alone_ = true;
}

void Matcher::fill_mask(std::span<uint32_t> bits) const {
  std::fill(bits.begin(), bits.end(), 0);
  if (is_ended()) return;
  const StateLimits& limits = grammar_->limits();
  if (visits_ > limits.output_visits + limits.token_visits * accepted()) {
    throw_hint(ErrorKind::resource, "write the grammar with fewer alternatives at one place",
               "computing the token masks of the first {} output tokens took {} steps", accepted(), visits_);
  }
  worked([&](Machine& machine, TermId state) {
    const std::vector<uint32_t>& mask = machine.mask(state, visits_);
    std::copy_n(mask.begin(), std::min(mask.size(), bits.size()), bits.begin());
  });
}

bool Matcher::allows(int32_t id) const {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  if (is_ended() || id < 0 || id >= vocabulary.size()) return false;
  if (vocabulary.is_end(id)) return may_end();
  if (vocabulary.bytes(id).empty()) return false;
  return worked([&](Machine& machine, TermId state) {
    return machine.automaton.step(state, vocabulary.bytes(id)) != TermPool::nothing;
  });
}

void Matcher::accept(int32_t id) {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  const bool is_known = id >= 0 && id < vocabulary.size();
  if (is_known && vocabulary.is_end(id) && may_end()) {
    positions_.push_back({ended, text_.size()});
  } else if (!is_known || vocabulary.is_end(id) || vocabulary.bytes(id).empty() ||
             !accept_bytes(vocabulary.bytes(id))) {
    throw_error(ErrorKind::usage, "the grammar does not allow the token {} here", id);
  }
}

bool Matcher::accept_bytes(std::string_view bytes) {
  if (is_ended()) return false;
  const TermId next = worked([&](Machine& machine, TermId state) { return machine.automaton.step(state, bytes); });
  if (next == TermPool::nothing) return false;
  text_ += bytes;
  positions_.push_back({next, text_.size()});
  return true;
}

void Matcher::rollback(int64_t tokens) {
  if (tokens < 0 || tokens > accepted()) {
    throw_error(ErrorKind::internal, "cannot roll back {} tokens of {}", tokens, accepted());
  }
  positions_.resize(positions_.size() - static_cast<size_t>(tokens));
  text_.resize(positions_.back().length);
}

bool Matcher::may_end() const {
  if (is_ended()) return true;
  return worked([](Machine& machine, TermId state) { return machine.automaton.nullable(state); });
}

bool Matcher::finished() const { return is_ended() || positions_.back().state == TermPool::empty; }

}  // namespace ingot::grammar

#include "grammar/mask_walk.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::grammar {

namespace {

constexpr int64_t many_visits = 1000;  // a walk that took more is kept
constexpr size_t many_tokens = 400;    // more are kept as bits
constexpr size_t max_walks = 512;
constexpr int max_depth = 2000;

uint64_t pair_of(TermId term, uint32_t node) { return uint64_t{static_cast<uint32_t>(term)} << 32 | node; }

void set_bit(std::span<uint32_t> bits, int32_t token) {
  bits[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
}

// Few tokens as a list, many as bits.
void pack(Walk& walk, const Vocabulary& vocabulary) {
  if (walk.tokens.size() <= many_tokens) return;
  walk.bits.assign(vocabulary.num_words(), 0);
  for (const int32_t token : walk.tokens) set_bit(walk.bits, token);
  walk.tokens = {};
}

}  // namespace

void MaskWalk::visit(int64_t nodes) {
  visits_ += nodes;
  if (visits_ > max_visits) {
    throw_hint(ErrorKind::resource, "write it with fewer alternatives at once",
               "the next token of the grammar takes more than {} steps to find", max_visits);
  }
}

void MaskWalk::fill(TermId language, std::span<uint32_t> bits) {
  std::fill(bits.begin(), bits.end(), 0);
  bits_ = bits;
  visits_ = 0;
  depth_ = 0;
  seen_.clear();
  if (walks_.size() > max_walks) walks_.clear();
  collect(language, 0);
  if (automaton_.nullable(language)) {
    for (const int32_t id : vocabulary_.end_ids()) set_bit(bits, id);
  }
}

void MaskWalk::add(const Walk& walk) {
  for (const int32_t token : walk.tokens) set_bit(bits_, token);
  for (size_t i = 0; i < walk.bits.size(); ++i) bits_[i] |= walk.bits[i];
}

// The tokens below `node` that the language allows from there on.
void MaskWalk::collect(TermId language, uint32_t node) {
  if (language == TermPool::nothing || language == TermPool::empty) return;
  if (!seen_.insert(pair_of(language, node)).second) return;
  if (++depth_ > max_depth)
    throw_error(ErrorKind::resource, "a token of the grammar is nested deeper than {}", max_depth);
  visit(1);
  const Term term = automaton_.terms[language];
  if (term.kind == TermKind::sequence) {
    collect_behind(term.left, term.right, node);
  } else {
    collect_behind(language, TermPool::empty, node);
  }
  --depth_;
}

void MaskWalk::collect_behind(TermId head, TermId rest, uint32_t node) {
  TermPool& terms = automaton_.terms;
  const Term term = terms[head];
  if (term.regular) {
    const auto inside = walk(head, node);
    add(*inside);
    if (rest == TermPool::empty) return;
    const auto nodes = vocabulary_.nodes();
    for (const uint32_t end : inside->ends) {
      if (nodes[end].end > end + 1) collect(rest, end);
    }
    return;
  }
  switch (term.kind) {
    case TermKind::choice: {
      const auto view = terms.children(head);
      for (const TermId part : std::vector<TermId>(view.begin(), view.end())) {
        if (part == TermPool::empty) {
          collect(rest, node);
        } else {
          collect(terms.sequence(part, rest), node);
        }
      }
      return;
    }
    case TermKind::rule: collect(terms.sequence(terms.body(head), rest), node); return;
    case TermKind::repeat: {
      const bool is_optional = automaton_.nullable(head);
      const int64_t min = automaton_.nullable(term.left) ? 0 : std::max<int64_t>(0, term.min - 1);
      const TermId more = terms.repeat(term.left, min, term.max == unlimited ? unlimited : term.max - 1);
      if (is_optional) collect(rest, node);
      collect(terms.sequence(term.left, terms.sequence(more, rest)), node);
      return;
    }
    default: break;
  }
  // A capture: its text decides what follows, so every byte is a state of its own.
  const auto nodes = vocabulary_.nodes();
  const TermId language = terms.sequence(head, rest);
  std::vector<TermId> states(1, language);
  const uint16_t base = nodes[node].depth;
  for (uint32_t i = node + 1; i < nodes[node].end;) {
    const size_t depth = static_cast<size_t>(nodes[i].depth - base);
    visit(50);
    const TermId state = automaton_.step(states[depth - 1], nodes[i].byte);
    if (state == TermPool::nothing) {
      i = nodes[i].end;
      continue;
    }
    for (int32_t token = nodes[i].token; token >= 0; token = vocabulary_.same(token)) set_bit(bits_, token);
    states.resize(depth);
    states.push_back(state);
    ++i;
  }
}

std::shared_ptr<const Walk> MaskWalk::walk(TermId lexeme, uint32_t node) {
  const auto known = walks_.find(pair_of(lexeme, node));
  if (known != walks_.end()) return known->second;
  const bool is_unit = automaton_.terms[lexeme].kind == TermKind::unit;
  Vocabulary::Key key{};
  if (is_unit && node == 0) {
    const TermId clamped = automaton_.terms.clamped(lexeme, vocabulary_.longest());
    const Term& term = automaton_.terms[clamped];
    key = {{term.hash[0], term.hash[1]}, node};
    if (auto walk = vocabulary_.find(key)) {
      walks_.emplace(pair_of(lexeme, node), walk);
      return walk;
    }
    const TermId common = resembled(lexeme);
    if (common != TermPool::nothing && common != lexeme) {
      auto walk = changed(lexeme, common, *this->walk(common, node));
      walks_.emplace(pair_of(lexeme, node), walk);
      return walk;
    }
  }
  const int64_t before = visits_;
  auto walk = walked(lexeme, node);
  if (visits_ - before > many_visits) {
    walks_.emplace(pair_of(lexeme, node), walk);
    if (is_unit && node == 0) vocabulary_.keep(key, walk);
  }
  return walk;
}

std::shared_ptr<const Walk> MaskWalk::walked(TermId lexeme, uint32_t node) {
  auto walk = std::make_shared<Walk>();
  const auto nodes = vocabulary_.nodes();
  if (automaton_.nullable(lexeme)) walk->ends.push_back(node);
  std::vector<const Row*> rows(1, &automaton_.row(lexeme));
  const uint16_t base = nodes[node].depth;
  const uint32_t end = nodes[node].end;
  int64_t visits = 0;
  for (uint32_t i = node + 1; i < end;) {
    const size_t depth = static_cast<size_t>(nodes[i].depth - base);
    if ((++visits & 1023) == 0) visit(1024);
    const TermId state = rows[depth - 1]->next(nodes[i].byte);
    if (state == TermPool::nothing) {
      i = nodes[i].end;
      continue;
    }
    for (int32_t token = nodes[i].token; token >= 0; token = vocabulary_.same(token)) walk->tokens.push_back(token);
    if (automaton_.terms[state].nullable == 1) walk->ends.push_back(i);
    if (nodes[i].end > i + 1) {
      rows.resize(depth);
      rows.push_back(&automaton_.row(state));
    }
    ++i;
  }
  visit(visits & 1023);
  pack(*walk, vocabulary_);
  return walk;
}

// The common lexeme that does the same as this one behind most first bytes; nothing when there is none.
TermId MaskWalk::resembled(TermId lexeme) {
  const auto nodes = vocabulary_.nodes();
  for (const TermId common : automaton_.common) {
    if (common == lexeme) return common;
    const Row &row = automaton_.row(lexeme), &other = automaton_.row(common);
    uint32_t alike = 0;
    for (uint32_t i = 1; i < nodes[0].end; i = nodes[i].end) {
      const TermId next = row.next(nodes[i].byte);
      if (next != TermPool::nothing && next == other.next(nodes[i].byte)) alike += nodes[i].end - i;
    }
    if (2 * alike > nodes[0].end) return common;
  }
  return TermPool::nothing;
}

// The walk of a lexeme from that of another one, where only the differences are walked.
std::shared_ptr<const Walk> MaskWalk::changed(TermId lexeme, TermId common, const Walk& known) {
  const auto nodes = vocabulary_.nodes();
  auto walk = std::make_shared<Walk>();
  walk->bits = known.bits;
  if (walk->bits.empty()) {
    walk->bits.assign(vocabulary_.num_words(), 0);
    for (const int32_t token : known.tokens) set_bit(walk->bits, token);
  }
  std::vector<uint32_t> taken, added;
  const auto end_at = [&](TermId state, TermId other, uint32_t node) {
    const bool ends = automaton_.nullable(state), ended = automaton_.nullable(other);
    if (ends && !ended) added.push_back(node);
    if (!ends && ended) taken.push_back(node);
  };
  end_at(lexeme, common, 0);
  std::vector<std::pair<TermId, TermId>> states(1, {lexeme, common});
  for (uint32_t i = 1; i < nodes[0].end;) {
    const size_t depth = nodes[i].depth;
    visit(1);
    const auto [before, before_common] = states[depth - 1];
    const TermId state = automaton_.step(before, nodes[i].byte), other = automaton_.step(before_common, nodes[i].byte);
    if (state == other) {
      i = nodes[i].end;
      continue;
    }
    for (int32_t token = nodes[i].token; token >= 0; token = vocabulary_.same(token)) {
      uint32_t& word = walk->bits[static_cast<size_t>(token) / 32];
      const uint32_t bit = uint32_t{1} << (token % 32);
      word = state == TermPool::nothing ? word & ~bit : word | bit;
    }
    end_at(state, other, i);
    states.resize(depth);
    states.emplace_back(state, other);
    ++i;
  }
  std::set_difference(known.ends.begin(), known.ends.end(), taken.begin(), taken.end(), std::back_inserter(walk->ends));
  walk->ends.insert(walk->ends.end(), added.begin(), added.end());
  std::sort(walk->ends.begin(), walk->ends.end());
  return walk;
}

}  // namespace ingot::grammar

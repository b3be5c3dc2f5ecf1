#include "grammar/mask_builder.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::grammar {

namespace {

constexpr int64_t many_visits = 1000;  // a walk that took more steps is cached
constexpr int64_t many_rows = 8;       // a walk that created more rows is cached
constexpr size_t max_plain_states = 64;
constexpr size_t many_tokens = 400;  // more are stored as a bit mask
constexpr size_t max_matches = 512;
constexpr int max_mask_depth = 2000;

uint64_t pair_of(TermId term, uint32_t node) { return uint64_t{static_cast<uint32_t>(term)} << 32 | node; }

void set_bit(std::span<uint32_t> bits, int32_t token) {
  bits[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
}

void clear_bit(std::span<uint32_t> bits, int32_t token) {
  bits[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
}

// Stores many tokens as a bit mask instead of a list.
void pack(TrieMatch& match, const Vocabulary& vocabulary) {
  if (match.tokens.size() <= many_tokens) return;
  match.bits.assign(vocabulary.num_words(), 0);
  for (const int32_t token : match.tokens) set_bit(match.bits, token);
  match.tokens = {};
}

}  // namespace

void MaskBuilder::visit(int64_t nodes) {
  visits_ += nodes;
  const bool too_many_rows = automaton_.num_rows() - rows_before_ > limits_.mask_rows;
  if (visits_ > limits_.mask_visits || too_many_rows) {
    throw_hint(ErrorKind::resource, "write the grammar with fewer alternatives at one place",
               "finding the allowed next tokens takes more than {} {}",
               too_many_rows ? limits_.mask_rows : limits_.mask_visits, too_many_rows ? "states" : "steps");
  }
}

void MaskBuilder::fill(TermId language, std::span<uint32_t> bits) {
  std::fill(bits.begin(), bits.end(), 0);
  bits_ = bits;
  visits_ = 0;
  rows_before_ = automaton_.num_rows();
  depth_ = 0;
  seen_.clear();
  collect(language, 0);
  if (automaton_.nullable(language)) {
    for (const int32_t id : vocabulary_.end_ids()) set_bit(bits, id);
  }
}

void MaskBuilder::add(const TrieMatch& match) {
  for (const int32_t token : match.tokens) set_bit(bits_, token);
  for (size_t i = 0; i < match.bits.size(); ++i) bits_[i] |= match.bits[i];
}

// Sets the bits of the tokens below `node` whose bytes after those of `node` begin a string of the language.
void MaskBuilder::collect(TermId language, uint32_t node) {
  if (language == TermPool::nothing || language == TermPool::empty) return;
  if (!seen_.insert(pair_of(language, node)).second) return;
  if (++depth_ > max_mask_depth)
    throw_error(ErrorKind::resource, "a token of the grammar is nested deeper than {}", max_mask_depth);
  visit(1);
  const Term term = automaton_.terms[language];
  if (term.kind == TermKind::sequence) {
    collect_sequence(term.left, term.right, node);
  } else {
    collect_sequence(language, TermPool::empty, node);
  }
  --depth_;
}

void MaskBuilder::collect_sequence(TermId head, TermId rest, uint32_t node) {
  TermPool& terms = automaton_.terms;
  const Term term = terms[head];
  if (term.regular) {
    const auto inside = match(head, node);
    add(*inside);
    if (rest == TermPool::empty) return;
    const auto nodes = vocabulary_.nodes();
    for (const uint32_t end : inside->ends) {
      if (nodes[end].end > end + 1 && can_continue(rest, end)) collect(rest, end);
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
    case TermKind::object: collect(terms.sequence(automaton_.object_body(head), rest), node); return;
    case TermKind::capture: collect_capture(head, rest, node); return;
    default: throw_error(ErrorKind::internal, "a part of a grammar that is neither regular nor a rule");
  }
}

// Whether a string of the language may begin with the byte of a child of the node. Always true at the root and if
// the language may begin with a capture.
bool MaskBuilder::can_continue(TermId language, uint32_t node) {
  const auto nodes = vocabulary_.nodes();
  if (node == 0 || automaton_.begins_with_capture(language)) return true;
  const Row& row = automaton_.row(language);
  for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
    if (row.next(nodes[i].byte) != TermPool::nothing) return true;
  }
  return false;
}

// Like collect_sequence, for a capture. The capture is walked as a lexeme; the continuation after it depends on its
// text.
void MaskBuilder::collect_capture(TermId capture, TermId rest, uint32_t node) {
  TermPool& terms = automaton_.terms;
  const Capture state = terms.capture_of(capture);
  const auto inside = match(terms.unit(terms[capture].left), node);
  const auto nodes = vocabulary_.nodes();
  const bool is_any_name = state.object >= 0 && state.member == Capture::any_name;
  const TermId next = terms.sequence(automaton_.any_continuation(state), rest);
  std::vector<int32_t> refused;  // tokens that end with a disallowed name
  for (const uint32_t end : inside->ends) {
    const bool has_more = nodes[end].end > end + 1 && can_continue(next, end);
    if (!has_more && (!is_any_name || nodes[end].token < 0)) continue;
    Capture complete = state;
    const std::string& token = vocabulary_.bytes(nodes[end].token >= 0 ? nodes[end].token : first_token(end));
    complete.text += token.substr(nodes[node].depth, nodes[end].depth - nodes[node].depth);
    if (!has_more && !automaton_.is_property(complete)) continue;
    const TermId after = automaton_.after_capture(complete);
    if (after == TermPool::nothing && is_any_name) {
      for (int32_t same = nodes[end].token; same >= 0; same = vocabulary_.same(same)) refused.push_back(same);
    }
    if (has_more) collect(terms.sequence(after, rest), end);
  }
  if (refused.empty()) return add(*inside);
  TrieMatch allowed = *inside;
  for (const int32_t token : refused) {
    if (!allowed.bits.empty()) clear_bit(allowed.bits, token);
    std::erase(allowed.tokens, token);
  }
  add(allowed);
}

// The first token at or below the node.
int32_t MaskBuilder::first_token(uint32_t node) const {
  const auto nodes = vocabulary_.nodes();
  while (nodes[node].token < 0) ++node;
  return nodes[node].token;
}

std::shared_ptr<const TrieMatch> MaskBuilder::match(TermId lexeme, uint32_t node) {
  const auto known = matches_.find(pair_of(lexeme, node));
  if (known != matches_.end()) return known->second;
  const bool is_shared = automaton_.terms[lexeme].kind == TermKind::unit;
  const TermId clamped = is_shared ? this->clamped(lexeme) : lexeme;
  const Term term = automaton_.terms[clamped];
  const Vocabulary::Key key = {{term.hash[0], term.hash[1]}, node};
  if (is_shared) {
    if (auto match = vocabulary_.find(key)) {
      store(lexeme, node, match);
      return match;
    }
  }
  const int64_t before = visits_, rows_before = automaton_.num_rows();
  auto match = compute_match(clamped, node);
  if (visits_ - before > many_visits || automaton_.num_rows() - rows_before > many_rows) {
    store(lexeme, node, match);
    if (is_shared) vocabulary_.store(key, match);
  }
  return match;
}

TermId MaskBuilder::clamped(TermId lexeme) {
  if (!automaton_.terms[lexeme].is_counted) return lexeme;
  const auto [at, is_new] = clamped_.try_emplace(lexeme, lexeme);
  if (is_new) at->second = automaton_.terms.clamped(lexeme, vocabulary_.longest());
  return at->second;
}

void MaskBuilder::store(TermId lexeme, uint32_t node, const std::shared_ptr<const TrieMatch>& match) {
  if (matches_.size() >= max_matches || cached_bytes_ > TrieMatch::max_cached_bytes) {
    matches_.clear();
    cached_bytes_ = 0;
  }
  if (matches_.emplace(pair_of(lexeme, node), match).second) cached_bytes_ += match->bytes();
}

// Whether every string of plain characters stays inside the lexeme without completing it.
bool MaskBuilder::accepts_all_plain(TermId lexeme) {
  std::vector<TermId> states = {lexeme};
  for (size_t i = 0; i < states.size(); ++i) {
    if (automaton_.nullable(states[i]) || states.size() > max_plain_states) return false;
    const Row& row = automaton_.row(states[i]);
    for (int b = 0x20; b < 0x7F; ++b) {
      if (!Vocabulary::is_plain(static_cast<uint8_t>(b))) continue;
      const TermId next = row.next(static_cast<uint8_t>(b));
      if (next == TermPool::nothing) return false;
      if (std::find(states.begin(), states.end(), next) == states.end()) states.push_back(next);
    }
  }
  return true;
}

std::shared_ptr<const TrieMatch> MaskBuilder::compute_match(TermId lexeme, uint32_t node) {
  auto match = std::make_shared<TrieMatch>();
  if (node == 0 && accepts_all_plain(lexeme)) {
    follow(lexeme, vocabulary_.others(), 0, *match);
    for (uint32_t& end : match->ends) end = vocabulary_.node_of_other(end);
    match->bits = vocabulary_.plain();
    for (const int32_t token : match->tokens) set_bit(match->bits, token);
    match->tokens = {};
  } else {
    follow(lexeme, vocabulary_.nodes(), node, *match);
    pack(*match, vocabulary_);
  }
  return match;
}

// Collects the tokens below a node that stay inside the lexeme, and the nodes where the lexeme may end.
void MaskBuilder::follow(TermId lexeme, std::span<const Vocabulary::Node> nodes, uint32_t node, TrieMatch& match) {
  if (automaton_.nullable(lexeme)) match.ends.push_back(node);
  std::vector<const Row*> rows(1, &automaton_.row(lexeme));  // by depth below `node`
  const TermPool& terms = automaton_.terms;
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
    for (int32_t token = nodes[i].token; token >= 0; token = vocabulary_.same(token)) match.tokens.push_back(token);
    if (terms[state].nullable == 1) match.ends.push_back(i);
    if (nodes[i].end > i + 1) {
      rows.resize(depth);
      rows.push_back(&automaton_.row(state));
    }
    ++i;
  }
  visit(visits & 1023);
}

}  // namespace ingot::grammar

#include "grammar/automaton.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "grammar/depth.h"

namespace ingot::grammar {

namespace {

// The element at `index` of a list indexed by term; the list grows as needed, filled with `none`.
template <class T>
T& at(std::vector<T>& list, TermId index, T none) {
  if (static_cast<size_t>(index) >= list.size()) list.resize(static_cast<size_t>(index) + 256, none);
  return list[static_cast<size_t>(index)];
}

}  // namespace

TermId Automaton::step(TermId term, std::string_view text) {
  for (const char c : text) {
    if (term == TermPool::nothing) break;
    term = step(term, static_cast<uint8_t>(c));
  }
  return term;
}

bool Automaton::begins_with_capture(TermId id) {
  const Term term = terms[id];
  if (term.kind == TermKind::sequence) return begins_with_capture(term.left);
  if (term.kind != TermKind::choice || term.regular) return term.kind == TermKind::capture;
  const auto view = terms.children(id);
  const std::vector<TermId> parts(view.begin(), view.end());
  return std::any_of(parts.begin(), parts.end(), [&](TermId part) { return begins_with_capture(part); });
}

// Captures are stepped without a row: nearly every byte has its own target, and few rows would be used twice.
TermId Automaton::step(TermId id, uint8_t byte) {
  if (!begins_with_capture(id)) return row(id).next(byte);
  const DepthGuard deeper(depth_, max_depth);
  const Term term = terms[id];
  if (term.kind == TermKind::sequence) {
    const TermId inside = terms.sequence(step(term.left, byte), term.right);
    return nullable(term.left) ? terms.choice(inside, step(term.right, byte)) : inside;
  }
  if (term.kind == TermKind::choice) {
    const auto view = terms.children(id);
    std::vector<TermId> parts(view.begin(), view.end());
    for (TermId& part : parts) part = step(part, byte);
    return terms.choice(parts);
  }
  Capture state = terms.capture_of(id);
  const TermId next = terms[term.left].nullable == 1 ? step(after_capture(state), byte) : TermPool::nothing;
  const TermId inside = row(term.left).next(byte);
  if (inside == TermPool::nothing) return next;
  state.text += static_cast<char>(byte);
  if (inside == TermPool::empty) return terms.choice(after_capture(state), next);
  const TermId other = after_other_name(state);
  if (other != TermPool::nothing) return terms.sequence(inside, other);
  return terms.choice(terms.capture(inside, std::move(state)), next);
}

const Row& Automaton::row(TermId term) {
  const int32_t known = at(row_of_, term, -1);
  if (known >= 0) return rows_[static_cast<size_t>(known)];
  const DepthGuard deeper(depth_, max_depth);
  Row row = made_row(term);
  if (num_rows() >= max_rows_) throw_error(ErrorKind::resource, "the grammar needs more than {} states", max_rows_);
  at(row_of_, term, -1) = static_cast<int32_t>(rows_.size());
  rows_.push_back(std::move(row));
  return rows_.back();
}

// A copy of the row of a term; a row that is not cached is computed but not cached.
Row Automaton::copied_row(TermId term) {
  const int32_t known = at(row_of_, term, -1);
  return known >= 0 ? rows_[static_cast<size_t>(known)] : made_row(term);
}

Row Automaton::made_row(TermId id) {
  const Term term = terms[id];
  switch (term.kind) {
    case TermKind::nothing:
    case TermKind::empty: return {};
    case TermKind::bytes: {
      Row row;
      const ByteSet& set = terms.byte_set(id);
      for (int b = 0; b < 256; ++b) row.of[static_cast<size_t>(b)] = set.has(static_cast<uint8_t>(b)) ? 1 : 0;
      row.to.push_back(TermPool::empty);
      return row;
    }
    case TermKind::sequence: return sequence_row(id);
    case TermKind::choice: return choice_row(id);
    case TermKind::both:
    case TermKind::complement: {
      Row row = search_row(id);
      keep_alive(row);
      return row;
    }
    case TermKind::repeat: return repeat_row(id);
    case TermKind::unit: {
      Row row = copied_row(term.left);
      for (TermId& to : row.to) to = terms.unit(to);
      return row;
    }
    case TermKind::rule: return row(terms.body(id));
    case TermKind::multiple: return multiple_row(id);
    case TermKind::json_text: return json_text_row(id);
    case TermKind::capture: return capture_row(id);
    case TermKind::object: return row(object_body(id));
  }
  return {};
}

// The row of `source` with `change` applied to every target.
template <class Change>
Row Automaton::mapped(TermId source, Change change) {
  Row result = row(source);
  for (TermId& to : result.to) to = change(to);
  return result;
}

// The product of several rows: bytes that are in the same class in all of them share a target, merged from theirs.
template <class Merge>
Row Automaton::combined(const std::vector<TermId>& sources, Merge merge) {
  Row result;
  size_t num_classes = 1;
  std::vector<int16_t> pairs;
  for (const TermId source : sources) {
    const Row& other = row(source);
    pairs.assign(num_classes * other.to.size(), -1);
    int16_t next = 0;
    for (size_t b = 0; b < 256; ++b) {
      int16_t& pair = pairs[result.of[b] * other.to.size() + other.of[b]];
      if (pair < 0) pair = next++;
      result.of[b] = static_cast<uint8_t>(pair);
    }
    num_classes = static_cast<size_t>(next);
  }
  std::vector<int> samples(num_classes);
  for (int b = 0; b < 256; ++b) samples[result.of[static_cast<size_t>(b)]] = b;
  result.to.clear();
  for (const int sample : samples) {
    std::vector<TermId> parts;
    for (const TermId source : sources) parts.push_back(row(source).next(static_cast<uint8_t>(sample)));
    result.to.push_back(merge(std::move(parts)));
  }
  return result;
}

// Parts that begin with at most `few_bytes` bytes, like the alternatives of an enum, are grouped by first byte; only
// the other parts need rows.
Row Automaton::choice_row(TermId id) {
  constexpr int few_bytes = 4;
  const auto view = terms.children(id);
  const std::vector<TermId> parts(view.begin(), view.end());
  std::vector<TermId> others;
  std::array<std::vector<TermId>, 256> by_byte;
  for (const TermId part : parts) {
    const Term& term = terms[part];
    const TermId head = term.kind == TermKind::sequence ? term.left : part;
    if (terms[head].kind != TermKind::bytes || terms.byte_set(head).count() > few_bytes) {
      if (part != TermPool::empty) others.push_back(part);
      continue;
    }
    const TermId rest = term.kind == TermKind::sequence ? term.right : TermPool::empty;
    terms.byte_set(head).for_each([&](uint8_t byte) { by_byte[byte].push_back(rest); });
  }
  const Row row = combined(others, [&](const std::vector<TermId>& to) { return terms.choice(to); });
  Row result;
  result.to.clear();
  for (size_t b = 0; b < 256; ++b) {
    TermId to = row.next(static_cast<uint8_t>(b));
    if (!by_byte[b].empty()) {
      by_byte[b].push_back(to);
      to = terms.choice(by_byte[b]);
    }
    const auto known = std::find(result.to.begin(), result.to.end(), to);
    result.of[b] = static_cast<uint8_t>(known - result.to.begin());
    if (known == result.to.end()) result.to.push_back(to);
  }
  return result;
}

Row Automaton::sequence_row(TermId id) {
  const Term term = terms[id];
  Row first = terms[term.left].kind == TermKind::json_text ? copied_row(term.left) : row(term.left);
  for (TermId& to : first.to) to = terms.sequence(to, term.right);
  if (!nullable(term.left)) return first;
  const Row second = row(term.right);
  Row result;
  std::vector<int16_t> pairs(first.to.size() * second.to.size(), -1);
  result.to.clear();
  for (size_t b = 0; b < 256; ++b) {
    int16_t& pair = pairs[first.of[b] * second.to.size() + second.of[b]];
    if (pair < 0) {
      pair = static_cast<int16_t>(result.to.size());
      result.to.push_back(terms.choice(first.to[first.of[b]], second.to[second.of[b]]));
    }
    result.of[b] = static_cast<uint8_t>(pair);
  }
  return result;
}

Row Automaton::repeat_row(TermId id) {
  const Term term = terms[id];
  const int64_t min = nullable(term.left) ? 0 : std::max<int64_t>(0, term.min - 1);
  const TermId rest = terms.repeat(term.left, min, term.max == unlimited ? unlimited : term.max - 1);
  return mapped(term.left, [&](TermId to) { return terms.sequence(to, rest); });
}

Row Automaton::multiple_row(TermId id) {
  const Term term = terms[id];  // left: fraction digits left to count; right: whether after the point
  Row row;
  for (int digit = 0; digit < 10; ++digit) {
    TermId to = TermPool::nothing;
    if (term.right == 0 || term.left > 0) {
      const int64_t remainder = (term.max * 10 + digit) % term.min;
      to = terms.multiple(term.min, remainder, term.right == 0 ? term.left : term.left - 1, term.right != 0);
    } else if (digit == 0) {
      to = id;
    }
    row.of[static_cast<uint8_t>('0' + digit)] = static_cast<uint8_t>(row.to.size());
    row.to.push_back(to);
  }
  if (term.right == 0) {
    row.of['.'] = static_cast<uint8_t>(row.to.size());
    row.to.push_back(terms.multiple(term.min, term.max, term.left, true));
  }
  return row;
}

Row Automaton::capture_row(TermId id) {
  Row row;
  const TermId left = terms[id].left;
  for (size_t b = 0; b < 256; ++b) {
    const bool can_continue = this->row(left).next(static_cast<uint8_t>(b)) != TermPool::nothing;
    if (!can_continue && terms[left].nullable == 0) continue;
    const TermId to = step(id, static_cast<uint8_t>(b));
    if (to == TermPool::nothing) continue;
    row.of[b] = static_cast<uint8_t>(row.to.size());
    row.to.push_back(to);
  }
  return row;
}

TermId Automaton::after_capture(const Capture& complete) {
  if (complete.object >= 0) return after_name(complete);
  const Distinct elements = terms.distinct(complete.distinct);
  const int64_t count = static_cast<int64_t>(terms.seen(complete.seen).size()) + 1;
  TermId more = TermPool::nothing;
  if (elements.max == unlimited || count < elements.max) {
    more = terms.sequence(elements.separator,
                          next_distinct(complete.distinct, terms.add_seen(complete.seen, complete.text)));
  }
  if (count >= elements.min) more = terms.optional(more);
  return more;
}

TermId Automaton::any_continuation(const Capture& capture) {
  if (capture.object >= 0) return terms.object(terms.object_state(capture.object).shape).colon;
  return terms.optional(terms.distinct(capture.distinct).separator);
}

TermId Automaton::next_distinct(int32_t number, int32_t seen) {
  const TermId all = terms.distinct(number).text;
  std::vector<TermId> texts;
  for (const std::string& text : terms.seen(seen)) texts.push_back(terms.literal(text));
  const TermId text = terms.without(all, terms.choice(texts));
  if (!alive(text)) return TermPool::nothing;
  return terms.capture(text, {.distinct = number, .seen = seen});
}

bool Automaton::nullable(TermId id) {
  const Term term = terms[id];
  if (term.nullable >= 0) return term.nullable == 1;
  const DepthGuard deeper(depth_, max_depth);
  bool result = false;
  if (term.kind == TermKind::capture) {
    result = nullable(term.left) && nullable(after_capture(terms.capture_of(id)));
  } else if (term.kind == TermKind::sequence) {
    TermId part = id;
    for (result = true; result && terms[part].kind == TermKind::sequence; part = terms[part].right) {
      result = nullable(terms[part].left);
    }
    result = result && nullable(part);
  } else if (term.kind == TermKind::choice) {
    const auto view = terms.children(id);
    const std::vector<TermId> parts(view.begin(), view.end());
    result = std::any_of(parts.begin(), parts.end(), [&](TermId part) { return nullable(part); });
  } else {
    result = nullable(term.kind == TermKind::rule ? terms.body(id) : term.left);
  }
  terms.set_nullable(id, result);
  return result;
}

// Whether alive() must search from this state. Every other basic term is nonempty or `nothing`.
bool Automaton::is_search_state(TermId id) const {
  const TermKind kind = terms[id].kind;
  return kind == TermKind::both || (kind == TermKind::complement && id != TermPool::anything);
}

const Row& Automaton::search_row(TermId id) {
  const int32_t known = at(search_of_, id, -1);
  if (known >= 0) return searches_[static_cast<size_t>(known)];
  const Term term = terms[id];
  Row row;
  if (term.kind == TermKind::both) {
    const auto parts = terms.children(id);
    row = combined({parts.begin(), parts.end()}, [&](const std::vector<TermId>& to) { return terms.both(to); });
  } else {
    row = mapped(term.left, [&](TermId to) { return terms.complement(to); });
  }
  at(search_of_, id, -1) = static_cast<int32_t>(searches_.size());
  searches_.push_back(std::move(row));
  return searches_.back();
}

void Automaton::keep_alive(Row& row) {
  for (TermId& to : row.to) {
    if (!alive(to)) to = TermPool::nothing;
  }
}

bool Automaton::alive(TermId start) {
  const DepthGuard deeper(depth_, max_depth);
  for (; terms[start].kind == TermKind::sequence; start = terms[start].right) {
    if (!alive(terms[start].left)) return false;
  }
  if (start == TermPool::nothing) return false;
  if (!is_search_state(start)) {
    const Term term = terms[start];
    if (term.kind == TermKind::unit || term.kind == TermKind::json_text) return alive(term.left);
    if (term.kind == TermKind::repeat) return term.min == 0 || alive(term.left);
    if (term.kind != TermKind::choice) return true;
    const auto view = terms.children(start);
    const std::vector<TermId> parts(view.begin(), view.end());
    return std::any_of(parts.begin(), parts.end(), [&](TermId part) { return alive(part); });
  }
  if (at(life_, start, Life::unknown) != Life::unknown) return at(life_, start, Life::unknown) == Life::alive;
  std::vector<std::pair<TermId, size_t>> found = {{start, 0}};  // breadth-first: state, index of its predecessor
  std::unordered_map<TermId, bool> known = {{start, true}};
  for (size_t i = 0; i < found.size(); ++i) {
    const TermId state = found[i].first;
    const bool is_alive = !is_search_state(state) || nullable(state) || at(life_, state, Life::unknown) == Life::alive;
    if (is_alive) {
      for (size_t k = i;; k = found[k].second) {
        at(life_, found[k].first, Life::unknown) = Life::alive;
        if (k == 0) return true;
      }
    }
    if (at(life_, state, Life::unknown) == Life::dead) continue;
    const std::vector<TermId> targets = search_row(state).to;
    for (const TermId to : targets) {
      if (to != TermPool::nothing && known.try_emplace(to, true).second) found.emplace_back(to, i);
    }
    if (static_cast<int64_t>(found.size()) > max_search) {
      throw_hint(ErrorKind::resource, "combine fewer patterns, lengths and exclusions on one value",
                 "checking whether any text meets all conditions takes more than {} states", max_search);
    }
  }
  for (const auto& [state, from] : found) at(life_, state, Life::unknown) = Life::dead;
  return false;
}

int64_t Automaton::count(TermId term, int64_t limit) {
  // Counts the paths to each state, by the length of the string. Every state can be completed, so each path is the
  // beginning of at least one string, and a path that visits a state twice means infinitely many strings.
  if (!alive(term)) return 0;
  std::unordered_map<TermId, int64_t> ways = {{term, 1}};
  std::unordered_map<TermId, bool> known = {{term, true}};
  int64_t total = 0, steps = 0;
  for (int64_t length = 0; !ways.empty(); ++length) {
    int64_t min_strings = total;  // strings that there are for certain
    for (const auto& [state, number] : ways) min_strings += number;
    if (min_strings >= limit || length >= static_cast<int64_t>(known.size())) return limit;
    steps += static_cast<int64_t>(ways.size());
    if (length > max_search || steps > max_count_steps) {
      throw_hint(
          ErrorKind::resource, "use shorter patterns, or a smaller minimum of different names or items",
          "cannot count the possible values of property names or array items that must be distinct: they are too long");
    }
    std::unordered_map<TermId, int64_t> next;
    for (const auto& [state, number] : ways) {
      if (nullable(state)) total += number;
      const Row& row = this->row(state);
      std::array<int64_t, 256> num_bytes{};  // bytes of each class
      for (const uint8_t to : row.of) ++num_bytes[to];
      for (size_t i = 0; i < row.to.size(); ++i) {
        if (row.to[i] == TermPool::nothing || num_bytes[i] == 0) continue;
        int64_t& sum = next[row.to[i]];
        sum = std::min(limit, sum + number * num_bytes[i]);
        known.try_emplace(row.to[i], true);
      }
    }
    ways = std::move(next);
  }
  return total;
}

}  // namespace ingot::grammar

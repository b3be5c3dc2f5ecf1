#include "grammar/term.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "grammar/depth.h"

namespace ingot::grammar {

namespace {

constexpr int max_term_depth = 1000;       // max recursion depth of rebuilt()
constexpr size_t text_of_a_term = 256;     // bytes of text that count as one more term
constexpr size_t children_of_a_term = 32;  // children that count as one more term

// Hashes are keyed by process, so that no schema can be crafted to make two terms collide.
uint64_t process_key() {
  static const uint64_t key = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return key;
}

uint64_t mixed(uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ value >> 27) * 0x94D049BB133111EBULL;
  return value ^ value >> 31;
}

// Two independent 64-bit hash chains.
struct Hash {
  uint64_t low = process_key();
  uint64_t high = ~process_key();
  void add(uint64_t word) {
    low = mixed(low ^ word);
    high = mixed(high + (word ^ 0xD6E8FEB86659FD93ULL));
  }
};

}  // namespace

TermPool::TermPool() {
  intern({.kind = TermKind::nothing});
  intern({.kind = TermKind::empty, .nullable = 1});
  intern({.kind = TermKind::complement, .nullable = 1, .left = nothing});
}

void TermPool::hash(Term& term, std::span<const TermId> children) const {
  Hash hash;
  hash.add(static_cast<uint64_t>(term.kind));
  if (term.max != 0) hash.add(static_cast<uint64_t>(term.max));
  if (term.kind == TermKind::bytes) {
    for (const uint64_t word : sets_[static_cast<size_t>(term.min)].words) hash.add(word);
  } else if (term.kind == TermKind::capture) {
    const Capture& state = captures_[static_cast<size_t>(term.min)];
    hash.add(static_cast<uint64_t>(state.distinct) << 32 | static_cast<uint32_t>(state.member));
    hash.add(static_cast<uint64_t>(state.seen) << 32 | static_cast<uint32_t>(state.object));
    hash.add(state.text.size());
    for (const char c : state.text) hash.add(static_cast<uint8_t>(c));
  } else if (term.kind == TermKind::object) {
    const ObjectState& state = object_states_[static_cast<size_t>(term.min)];
    hash.add(static_cast<uint64_t>(state.shape) << 32 | static_cast<uint32_t>(state.seen));
    hash.add(static_cast<uint64_t>(state.names) << 32 | static_cast<uint32_t>(state.next));
    hash.add(static_cast<uint64_t>(state.met) << 32 | static_cast<uint32_t>(state.count));
    hash.add(state.first ? 1 : 0);
  } else {
    hash.add(static_cast<uint64_t>(term.min));
  }
  if (term.kind == TermKind::multiple) {
    hash.add(static_cast<uint64_t>(term.left));
    hash.add(static_cast<uint64_t>(term.right));
  } else if (term.left != nothing || term.right != nothing) {
    for (const TermId side : {term.left, term.right}) {
      hash.add((*this)[side].hash[0]);
      hash.add((*this)[side].hash[1]);
    }
  }
  if (!children.empty()) {
    uint64_t sums[2] = {children.size(), 0};  // order-independent
    for (const TermId child : children) {
      sums[0] += mixed((*this)[child].hash[0]);
      sums[1] += mixed((*this)[child].hash[1]);
    }
    hash.add(sums[0]);
    hash.add(sums[1]);
  }
  term.hash[0] = hash.low;
  term.hash[1] = hash.high;
}

TermId TermPool::intern(Term term, std::span<const TermId> children) {
  hash(term, children);
  for (uint64_t key = term.hash[0];; ++key) {
    const auto [at, is_new] = known_.try_emplace(key, static_cast<TermId>(terms_.size()));
    if (!is_new) {
      const Term& other = (*this)[at->second];
      if (other.hash[0] == term.hash[0] && other.hash[1] == term.hash[1]) return at->second;
      continue;
    }
    if (used() >= max_terms_) {
      known_.erase(at);
      throw_hint(ErrorKind::resource, "write it with fewer alternatives, or with smaller bounds",
                 "the grammar needs more than {} states", max_terms_);
    }
    if (term.kind != TermKind::multiple) {
      const auto is_counted = [&](TermId part) { return !terms_.empty() && (*this)[part].is_counted; };
      term.is_counted = (term.kind == TermKind::repeat && (term.min > 1 || term.max > 1)) || is_counted(term.left) ||
                        is_counted(term.right) || std::any_of(children.begin(), children.end(), is_counted);
    }
    term.first = static_cast<int32_t>(children_.size());
    term.count = static_cast<int32_t>(children.size());
    children_.insert(children_.end(), children.begin(), children.end());
    used_elsewhere_ += static_cast<int64_t>(children.size() / children_of_a_term);
    terms_.push_back(term);
    return at->second;
  }
}

TermId TermPool::bytes(const ByteSet& set) {
  if (set.empty()) return nothing;
  sets_.push_back(set);
  const int64_t before = size();
  const TermId id = intern({.kind = TermKind::bytes, .min = static_cast<int64_t>(sets_.size()) - 1});
  if (size() == before) sets_.pop_back();
  return id;
}

TermId TermPool::literal(std::string_view text) {
  TermId term = empty;
  for (size_t i = text.size(); i-- > 0;) term = sequence(byte(text[i]), term);
  return term;
}

TermId TermPool::sequence(TermId left, TermId right) {
  if (left == nothing || right == nothing) return nothing;
  if (left == empty) return right;
  if (right == empty) return left;
  std::vector<TermId> heads;
  for (; (*this)[left].kind == TermKind::sequence; left = (*this)[left].right) heads.push_back((*this)[left].left);
  heads.push_back(left);
  for (size_t i = heads.size(); i-- > 0;) {
    const Term &a = (*this)[heads[i]], &b = (*this)[right];
    const int8_t nullable = a.nullable == 0 || b.nullable == 0 ? 0 : a.nullable == 1 && b.nullable == 1 ? 1 : -1;
    right = intern({.kind = TermKind::sequence,
                    .regular = a.regular && b.regular,
                    .nullable = nullable,
                    .left = heads[i],
                    .right = right});
  }
  return right;
}

TermId TermPool::sequence(std::initializer_list<TermId> parts) {
  TermId term = empty;
  for (const TermId* part = std::rbegin(parts).base(); part != parts.begin();) term = sequence(*--part, term);
  return term;
}

// Flattens nested choices, and unites byte sets into `set`.
void TermPool::add_choice(TermId part, std::vector<TermId>& parts, ByteSet& set) {
  switch ((*this)[part].kind) {
    case TermKind::nothing: return;
    case TermKind::bytes: set = set | byte_set(part); return;
    case TermKind::choice: {
      for (const TermId child : std::vector<TermId>(children(part).begin(), children(part).end())) {
        add_choice(child, parts, set);
      }
      return;
    }
    default: parts.push_back(part);
  }
}

TermId TermPool::choice(const std::vector<TermId>& given) {
  std::vector<TermId> parts;
  ByteSet set;
  for (const TermId part : given) add_choice(part, parts, set);
  if (!set.empty()) parts.push_back(bytes(set));
  // Sequences with the same right side are merged into one, and so are units.
  const auto key = [&](TermId id) {
    const Term& term = (*this)[id];
    return std::pair(term.kind == TermKind::sequence ? int64_t{term.right} : term.kind == TermKind::unit ? -1 : -2, id);
  };
  std::sort(parts.begin(), parts.end(), [&](TermId a, TermId b) { return key(a) < key(b); });
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::vector<TermId> merged;
  bool is_merged = false;
  for (size_t i = 0; i < parts.size();) {
    const int64_t kind = key(parts[i]).first;
    size_t end = i + 1;
    while (kind != -2 && end < parts.size() && key(parts[end]).first == kind) ++end;
    if (end == i + 1) {
      merged.push_back(parts[i]);
    } else {
      std::vector<TermId> lefts;
      for (size_t k = i; k < end; ++k) lefts.push_back((*this)[parts[k]].left);
      const TermId left = choice(lefts);
      merged.push_back(kind == -1 ? unit(left) : sequence(left, static_cast<TermId>(kind)));
      is_merged = true;
    }
    i = end;
  }
  if (is_merged) return choice(merged);
  if (parts.empty()) return nothing;
  if (parts.size() == 1) return parts[0];
  if (std::find(parts.begin(), parts.end(), anything) != parts.end()) return anything;
  std::sort(parts.begin(), parts.end());
  Term term{.kind = TermKind::choice};
  for (const TermId part : parts) {
    const Term& child = (*this)[part];
    term.regular = term.regular && child.regular;
    if (child.nullable == 1 || (child.nullable == -1 && term.nullable == 0)) term.nullable = child.nullable;
  }
  return intern(term, parts);
}

TermId TermPool::both(const std::vector<TermId>& given) {
  std::vector<TermId> parts;
  ByteSet set = ByteSet::range(0, 255);
  bool has_set = false;
  for (const TermId part : given) {
    const Term& term = (*this)[part];
    if (!term.regular) throw_error(ErrorKind::internal, "an intersection of languages with rules");
    if (part == nothing) return nothing;
    if (part == anything) continue;
    if (term.kind == TermKind::bytes) {
      set = set & byte_set(part);
      has_set = true;
    } else if (term.kind == TermKind::both) {
      parts.insert(parts.end(), children(part).begin(), children(part).end());
    } else if (term.kind == TermKind::unit) {
      parts.push_back(term.left);
    } else {
      parts.push_back(part);
    }
  }
  if (has_set) parts.push_back(bytes(set));
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.empty()) return anything;
  if (parts.size() == 1) return parts[0];
  Term result{.kind = TermKind::both, .nullable = 1};
  for (const TermId part : parts) {
    const Term& term = (*this)[part];
    if (part == nothing) return nothing;
    if (term.kind == TermKind::complement && std::binary_search(parts.begin(), parts.end(), term.left)) return nothing;
    if (term.nullable == 0) result.nullable = 0;
  }
  if (std::binary_search(parts.begin(), parts.end(), empty)) return result.nullable == 1 ? empty : nothing;
  return intern(result, parts);
}

TermId TermPool::complement(TermId id) {
  const Term& term = (*this)[id];
  if (!term.regular) throw_error(ErrorKind::internal, "the complement of a language with rules");
  if (term.kind == TermKind::complement) return term.left;
  if (term.kind == TermKind::unit) return complement(term.left);
  return intern({.kind = TermKind::complement, .nullable = static_cast<int8_t>(1 - term.nullable), .left = id});
}

TermId TermPool::repeat(TermId id, int64_t min, int64_t max) {
  if (max == 0 || id == empty) return empty;
  if (id == nothing) return min == 0 ? empty : nothing;
  if (min == 1 && max == 1) return id;
  const Term& term = (*this)[id];
  if (term.kind == TermKind::repeat && term.min == 0 && term.max == unlimited && min <= 1) return id;
  if (term.nullable == 1) min = 0;
  return intern({.kind = TermKind::repeat,
                 .regular = term.regular,
                 .nullable = min == 0 ? int8_t{1} : term.nullable,
                 .left = id,
                 .min = min,
                 .max = max});
}

TermId TermPool::unit(TermId id) {
  const Term& term = (*this)[id];
  if (id == nothing || id == empty || term.kind == TermKind::unit) return id;
  if (!term.regular) throw_error(ErrorKind::internal, "a unit with rules");
  return intern({.kind = TermKind::unit, .nullable = term.nullable, .left = id});
}

TermId TermPool::multiple(int64_t modulus, int64_t remainder, int places, bool in_fraction) {
  int64_t left_over = remainder;
  for (int i = 0; i < places; ++i) left_over = left_over * 10 % modulus;
  return intern({.kind = TermKind::multiple,
                 .nullable = static_cast<int8_t>(left_over == 0 ? 1 : 0),
                 .left = places,
                 .right = in_fraction ? 1 : 0,
                 .min = modulus,
                 .max = remainder});
}

TermId TermPool::json_text(TermId left, bool canonical, int64_t escape) {
  if (left == nothing || (left == empty && escape == 0)) return left;
  const Term& term = (*this)[left];
  if (!term.regular) throw_error(ErrorKind::internal, "a JSON string with rules");
  return intern({.kind = TermKind::json_text,
                 .nullable = escape == 0 ? term.nullable : int8_t{0},
                 .left = left,
                 .min = escape,
                 .max = canonical ? 1 : 0});
}

TermId TermPool::declare() {
  bodies_.push_back(nothing);
  return intern(
      {.kind = TermKind::rule, .regular = false, .nullable = -1, .min = static_cast<int64_t>(bodies_.size()) - 1});
}

void TermPool::define(TermId rule, TermId body) { bodies_[static_cast<size_t>((*this)[rule].min)] = body; }

int32_t TermPool::add_distinct(const Distinct& elements) {
  distincts_.push_back(elements);
  return static_cast<int32_t>(distincts_.size()) - 1;
}

int32_t TermPool::add_seen(int32_t before, const std::string& text) {
  const auto [at, is_new] = number_of_seen_.try_emplace({before, text}, static_cast<int32_t>(seen_.size()));
  if (is_new) {
    seen_.emplace_back(before, text);
    used_elsewhere_ += 1 + static_cast<int64_t>(text.size() / text_of_a_term);
  }
  return at->second;
}

std::vector<std::string> TermPool::seen(int32_t number) const {
  std::vector<std::string> texts;
  for (; number > 0; number = seen_[static_cast<size_t>(number)].first) {
    texts.push_back(seen_[static_cast<size_t>(number)].second);
  }
  return texts;
}

TermId TermPool::capture(TermId left, Capture state) {
  if (left == nothing) return nothing;
  const auto text = static_cast<int64_t>(state.text.size() / text_of_a_term);
  captures_.push_back(std::move(state));
  const int64_t before = size();
  const TermId id = intern({.kind = TermKind::capture,
                            .regular = false,
                            .nullable = static_cast<int8_t>((*this)[left].nullable == 0 ? 0 : -1),
                            .left = left,
                            .min = static_cast<int64_t>(captures_.size()) - 1});
  if (size() == before) {
    captures_.pop_back();
  } else {
    used_elsewhere_ += text;
  }
  return id;
}

int32_t TermPool::add_object(ObjectShape shape) {
  used_elsewhere_ += 1 + static_cast<int64_t>((shape.members.size() + shape.properties.size()) / 2);
  objects_.push_back(std::move(shape));
  return static_cast<int32_t>(objects_.size()) - 1;
}

TermId TermPool::members(const ObjectState& state) {
  object_states_.push_back(state);
  const int64_t before = size();
  const TermId id =
      intern({.kind = TermKind::object, .regular = false, .min = static_cast<int64_t>(object_states_.size()) - 1});
  if (size() == before) object_states_.pop_back();
  return id;
}

int32_t TermPool::with_property(int32_t set, int32_t property) {
  std::vector<uint64_t> words = sets_of_properties_[static_cast<size_t>(set)];
  const auto word = static_cast<size_t>(property) / 64;
  if (words.size() <= word) words.resize(word + 1);
  words[word] |= uint64_t{1} << (property % 64);
  const auto [at, is_new] =
      number_of_set_.try_emplace(std::move(words), static_cast<int32_t>(sets_of_properties_.size()));
  if (is_new) {
    sets_of_properties_.push_back(at->first);
    used_elsewhere_ += 1 + static_cast<int64_t>(at->first.size() * 2 * sizeof(uint64_t) / text_of_a_term);
  }
  return at->second;
}

bool TermPool::has_property(int32_t set, int32_t property) const {
  const std::vector<uint64_t>& words = sets_of_properties_[static_cast<size_t>(set)];
  const auto word = static_cast<size_t>(property) / 64;
  return word < words.size() && (words[word] >> (property % 64) & 1) != 0;
}

void TermPool::change_objects(const std::function<TermId(TermId)>& change) {
  for (ObjectShape& shape : objects_) {
    for (ObjectShape::Member& member : shape.members) member.tail = change(member.tail);
  }
}

TermId TermPool::rebuilt(TermId id, const std::function<TermId(TermId)>& change) {
  const DepthGuard deeper(depth_, max_term_depth);
  const Term term = (*this)[id];
  switch (term.kind) {
    case TermKind::sequence: {
      std::vector<TermId> parts;
      for (; (*this)[id].kind == TermKind::sequence; id = (*this)[id].right) parts.push_back((*this)[id].left);
      TermId result = change(id);
      for (size_t i = parts.size(); i-- > 0;) result = sequence(change(parts[i]), result);
      return result;
    }
    case TermKind::choice: {
      std::vector<TermId> parts(children(id).begin(), children(id).end());
      for (TermId& part : parts) part = change(part);
      return choice(parts);
    }
    case TermKind::repeat: return repeat(change(term.left), term.min, term.max);
    case TermKind::unit: return unit(change(term.left));
    case TermKind::json_text: return json_text(change(term.left), term.max != 0, term.min);
    default: return id;
  }
}

TermId TermPool::without_rules(TermId id, const std::vector<bool>& dead) {
  const Term& term = (*this)[id];
  if (term.regular) return id;
  if (term.kind == TermKind::rule) return dead[static_cast<size_t>(term.min)] ? nothing : id;
  return rebuilt(id, [&](TermId part) { return without_rules(part, dead); });
}

TermId TermPool::clamped(TermId id, int64_t longest) {
  const Term term = (*this)[id];
  if (!term.is_counted) return id;
  if (term.kind != TermKind::repeat) return rebuilt(id, [&](TermId part) { return clamped(part, longest); });
  const int64_t max = term.max > longest ? unlimited : term.max;
  return repeat(clamped(term.left, longest), std::min(term.min, longest + 1), max);
}

}  // namespace ingot::grammar

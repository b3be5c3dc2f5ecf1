// Compiles array schemas to rules.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "grammar/schema_compiler.h"

namespace ingot::grammar {

namespace {
constexpr int64_t block = 32;           // consecutive prefix elements in one rule
constexpr int64_t max_counts = 20'000;  // max states for counting `contains` matches
}  // namespace

TermId SchemaCompiler::array(const Case& one) {
  const bool is_distinct = !one.unique.empty() && (one.max_items == unlimited || one.max_items > 1);
  TermId inside = TermPool::nothing;
  if (is_distinct) {
    inside = distinct_elements(one);
  } else {
    inside = one.contained.empty() ? elements(one) : counted_elements(one);
  }
  const bool may_be_empty =
      one.min_items == 0 && std::all_of(one.contained.begin(), one.contained.end(),
                                        [](const Case::Contained& contained) { return contained.min == 0; });
  const auto bracketed = [&](TermId elements) {
    return terms_.sequence({terms_.byte('['), json_.space, elements, terms_.byte(']')});
  };
  return terms_.choice(bracketed(terms_.sequence(inside, json_.space)),
                       may_be_empty ? bracketed(TermPool::empty) : TermPool::nothing);
}

// One or more elements.
TermId SchemaCompiler::elements(const Case& one) {
  const auto within = [&](int64_t count) { return one.max_items == unlimited || count <= one.max_items; };
  const auto size = static_cast<int64_t>(one.prefix.size());
  TermId tail = TermPool::empty;  // the elements after the current one, with commas
  if (within(size + 1)) {
    const int64_t max = one.max_items == unlimited ? unlimited : one.max_items - size;
    tail =
        terms_.repeat(terms_.sequence(json_.comma, value(one.rest)), std::max<int64_t>(0, one.min_items - size), max);
  } else if (one.min_items > size) {
    return TermPool::nothing;
  }
  if (size == 0) {
    if (!within(1)) return TermPool::nothing;
    const int64_t max = one.max_items == unlimited ? unlimited : one.max_items - 1;
    const TermId item = value(one.rest);
    return terms_.sequence(
        item, terms_.repeat(terms_.sequence(json_.comma, item), std::max<int64_t>(0, one.min_items - 1), max));
  }
  for (int64_t i = size - 1; i >= 0; --i) {
    if (!within(i + 1)) {
      tail = TermPool::empty;
      continue;
    }
    TermId here = terms_.sequence(value(one.prefix[static_cast<size_t>(i)]), tail);
    if (i == 0) return here;
    here = terms_.sequence(json_.comma, here);
    tail = i >= one.min_items ? terms_.optional(here) : here;
    if (i % block == 0) {
      const TermId rule = terms_.declare();
      terms_.define(rule, tail);
      tail = rule;
    }
  }
  return TermPool::nothing;  // no element is allowed
}

// One or more elements with minContains / maxContains conditions: a rule for each vector of counts.
TermId SchemaCompiler::counted_elements(const Case& one) {
  const int64_t last = std::max(
      {static_cast<int64_t>(one.prefix.size()), one.min_items, one.max_items == unlimited ? 0 : one.max_items});
  using State = std::vector<int64_t>;  // elements so far, then the matches of each condition
  std::map<State, TermId> known;
  std::vector<State> open;
  const auto rule = [&](const State& state) {
    const auto [at, is_new] = known.try_emplace(state, TermPool::nothing);
    if (!is_new) return at->second;
    if (static_cast<int64_t>(known.size()) > max_counts) {
      throw_error(ErrorKind::resource, "{}: counting what an array contains takes more than {} states",
                  one.contained[0].pointer, max_counts);
    }
    at->second = terms_.declare();
    open.push_back(state);
    return at->second;
  };
  // The next element and what follows it, after a state: for each condition, either an element that matches it or one
  // that does not.
  const auto next = [&](const State& state) {
    const auto at = static_cast<size_t>(state[0]);
    std::vector<TermId> parts;
    const std::function<void(size_t, State, const Conjunction&)> choose = [&](size_t i, State to,
                                                                              const Conjunction& item) {
      if (i == one.contained.size()) {
        parts.push_back(terms_.sequence(value(item), rule(to)));
        return;
      }
      const Case::Contained& condition = one.contained[i];
      Conjunction without = item, with = item;
      add_to(with, condition.items[0]);
      if (condition.max != unlimited) add_to(without, condition.items[0] ^ 1);
      choose(i + 1, to, without);
      const int64_t max_matches = condition.max == unlimited ? condition.min : condition.max;
      if (to[i + 1] < max_matches) {
        ++to[i + 1];
        choose(i + 1, to, with);
      }
    };
    State to = state;
    to[0] = std::min(state[0] + 1, last);
    const bool is_full = one.max_items != unlimited && state[0] >= one.max_items;
    if (!is_full) choose(0, to, at < one.prefix.size() ? one.prefix[at] : one.rest);
    return terms_.choice(parts);
  };
  const TermId first = next(State(one.contained.size() + 1));
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    bool may_end = state[0] >= one.min_items;
    for (size_t i = 0; i < one.contained.size(); ++i) may_end = may_end && state[i + 1] >= one.contained[i].min;
    const TermId more = terms_.sequence(json_.comma, next(state));
    terms_.define(known[state], may_end ? terms_.optional(more) : more);
  }
  return first;
}

TermId SchemaCompiler::distinct_elements(const Case& one) {
  if (!one.prefix.empty() || !one.contained.empty()) {
    throw_error(ErrorKind::unsupported, "{} is not supported together with prefixItems or contains", one.unique);
  }
  Distinct elements;
  const TermId texts = scalar_texts(one.rest, one.unique);
  elements.min = std::max<int64_t>(1, one.min_items);
  if (automaton_.count(texts, elements.min) < elements.min) return TermPool::nothing;
  elements.text = texts;
  elements.separator = json_.comma;
  elements.max = one.max_items;
  return automaton_.next_distinct(terms_.add_distinct(elements), 0);
}

// The canonical texts of values that are neither arrays nor objects.
TermId SchemaCompiler::scalar_texts(const Conjunction& all, const std::string& pointer) {
  std::vector<TermId> parts;
  for (const JsonType type : json_types) {
    for (const Case& one : cases_.expand(all, type)) {
      if (type == JsonType::array || type == JsonType::object) {
        if (all.empty()) continue;  // unconstrained items: generating only scalars is enough
        throw_hint(ErrorKind::unsupported, "limit the items to null, boolean, number, string or constants of these",
                   "{} is not supported for items that can be arrays or objects", pointer);
      }
      if (type == JsonType::number) {
        parts.push_back(cases_.number_language(one, true));
      } else if (type == JsonType::string) {
        parts.push_back(json_.canonical(one.language));
      } else {
        parts.push_back(scalar(one, type));
      }
    }
  }
  return terms_.choice(parts);
}

}  // namespace ingot::grammar

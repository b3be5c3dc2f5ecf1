// Analysis of the rules once all are defined: nullability, productivity, left recursion.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/depth.h"

namespace ingot::grammar {

bool Automaton::productive(TermId id, const std::vector<bool>& rules) {
  const Term& term = terms[id];
  if (term.kind == TermKind::nothing) return false;
  if (term.regular) return true;
  const DepthGuard deeper(depth_, max_depth);
  switch (term.kind) {
    case TermKind::rule: return rules[static_cast<size_t>(term.min)];
    case TermKind::sequence: {
      for (; terms[id].kind == TermKind::sequence; id = terms[id].right) {
        if (!productive(terms[id].left, rules)) return false;
      }
      return productive(id, rules);
    }
    case TermKind::choice: {
      const auto parts = terms.children(id);
      return std::any_of(parts.begin(), parts.end(), [&](TermId part) { return productive(part, rules); });
    }
    case TermKind::repeat: return term.min == 0 || productive(term.left, rules);
    case TermKind::object:
      return completable(terms.object_state(id), [&](TermId tail) { return productive(tail, rules); });
    default: return true;
  }
}

bool Automaton::evaluated_nullable(TermId id, const std::vector<bool>& rules) {
  const Term& term = terms[id];
  if (term.nullable >= 0) return term.nullable == 1;
  const DepthGuard deeper(depth_, max_depth);
  switch (term.kind) {
    case TermKind::rule: return rules[static_cast<size_t>(term.min)];
    case TermKind::sequence: {
      for (; terms[id].kind == TermKind::sequence; id = terms[id].right) {
        if (!evaluated_nullable(terms[id].left, rules)) return false;
      }
      return evaluated_nullable(id, rules);
    }
    case TermKind::choice: {
      const auto parts = terms.children(id);
      return std::any_of(parts.begin(), parts.end(), [&](TermId part) { return evaluated_nullable(part, rules); });
    }
    case TermKind::repeat: return term.min == 0 || evaluated_nullable(term.left, rules);
    default: return false;
  }
}

// Appends the rules that a term may begin with.
void Automaton::first_rules(TermId id, std::vector<TermId>& out) {
  const DepthGuard deeper(depth_, max_depth);
  for (; terms[id].kind == TermKind::sequence; id = terms[id].right) {
    first_rules(terms[id].left, out);
    if (!nullable(terms[id].left)) return;
  }
  const Term term = terms[id];
  if (term.regular) return;
  switch (term.kind) {
    case TermKind::rule: out.push_back(id); return;
    case TermKind::choice: {
      const auto view = terms.children(id);
      for (const TermId part : std::vector<TermId>(view.begin(), view.end())) first_rules(part, out);
      return;
    }
    case TermKind::repeat: first_rules(term.left, out); return;
    default: return;
  }
}

void Automaton::refuse_left_recursion(const std::vector<std::string>& names) {
  const size_t num_rules = terms.bodies().size();
  std::vector<std::vector<TermId>> first(num_rules);
  for (size_t i = 0; i < num_rules; ++i) first_rules(terms.bodies()[i], first[i]);
  std::vector<uint8_t> state(num_rules);  // 1: on the path, 2: done
  for (size_t root = 0; root < num_rules; ++root) {
    std::vector<std::pair<size_t, size_t>> path = {{root, 0}};
    while (!path.empty()) {
      auto& [rule, at] = path.back();
      if (at == 0 && state[rule] == 2) {
        path.pop_back();
        continue;
      }
      state[rule] = 1;
      if (at == first[rule].size()) {
        state[rule] = 2;
        path.pop_back();
        continue;
      }
      const size_t next = static_cast<size_t>(terms[first[rule][at++]].min);
      if (state[next] == 1) {
        throw_hint(ErrorKind::unsupported, "write it as a repetition: list ::= item (\",\" item)*",
                   "the rule {} is left-recursive: it begins with itself",
                   next < names.size() ? names[next] : fmt::format("#{}", next));
      }
      if (state[next] == 0) path.emplace_back(next, 0);
    }
  }
}

TermId Automaton::finish(TermId start, const std::vector<std::string>& names) {
  std::vector<TermId>& bodies = terms.bodies();
  const auto fixed_point = [&](auto holds) {
    std::vector<bool> rules(bodies.size());
    // Rules depend on later and on earlier ones: alternating the direction settles a chain of rules in few passes.
    for (bool changed = true, is_backward = true; changed; is_backward = !is_backward) {
      changed = false;
      for (size_t k = 0; k < bodies.size(); ++k) {
        const size_t i = is_backward ? bodies.size() - 1 - k : k;
        if (rules[i] || !holds(bodies[i], rules)) continue;
        rules[i] = changed = true;
      }
    }
    return rules;
  };
  const std::vector<bool> nullable_rules =
      fixed_point([&](TermId body, const auto& rules) { return evaluated_nullable(body, rules); });
  for (TermId id = 0; id < terms.size(); ++id) {
    const Term& term = terms[id];
    if (term.kind == TermKind::rule) terms.set_nullable(id, nullable_rules[static_cast<size_t>(term.min)]);
  }
  refuse_left_recursion(names);
  std::vector<bool> dead = fixed_point([&](TermId body, const auto& rules) { return productive(body, rules); });
  dead.flip();
  if (std::find(dead.begin(), dead.end(), true) != dead.end()) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      const TermId body = terms.without_rules(bodies[i], dead);
      bodies[i] = body;
    }
    start = terms.without_rules(start, dead);
    terms.change_objects([&](TermId tail) { return terms.without_rules(tail, dead); });
  }
  return start;
}

}  // namespace ingot::grammar

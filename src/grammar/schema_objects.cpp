// Objects of schemas as rules: the named properties in order, then all others.
#include <algorithm>

#include "base/error.h"
#include "grammar/characters.h"
#include "grammar/schema_compiler.h"

namespace ingot::grammar {

namespace {
constexpr size_t block = 32;            // optional properties in a row that one rule lists
constexpr size_t max_members = 10'000;  // named properties
constexpr int64_t max_counts = 50'000;  // states of counting properties
}  // namespace

TermId SchemaCompiler::object(const Case& one) {
  if (one.properties.size() > max_members) {
    throw_error(ErrorKind::resource, "an object of {} properties; at most {}", one.properties.size(), max_members);
  }
  if (!one.some.empty()) return object_with_some(one);
  const bool is_counted = one.min_properties > 0 || one.max_properties != unlimited;
  const TermId inside = is_counted ? counted_members(one) : members(one);
  const bool needs_member = one.min_properties > 0 || std::any_of(one.properties.begin(), one.properties.end(),
                                                                  [](const auto& part) { return part.required; });
  return terms_.choice(bracketed('{', terms_.sequence(inside, json_.space), '}'),
                       needs_member ? TermPool::nothing : bracketed('{', TermPool::empty, '}'));
}

// A property with a name of a language must be there: a named one, or one of the others.
TermId SchemaCompiler::object_with_some(Case one) {
  const TermId language = one.some.back();
  one.some.pop_back();
  std::vector<TermId> parts;
  for (size_t i = 0; i < one.properties.size(); ++i) {
    const TermId name = encoded(terms_, one.properties[i].name, Encoding::json);
    if (!automaton_.alive(terms_.both(language, name))) continue;
    Case with = one;
    with.properties[i].required = true;
    parts.push_back(object(with));
  }
  const TermId other = other_member(one, language);
  if (other != TermPool::nothing) {
    if (!one.some.empty() || one.min_properties > 0 || one.max_properties != unlimited) {
      throw_error(ErrorKind::unsupported,
                  "not, if or oneOf here needs a property of some name or other, which is not supported beside "
                  "minProperties, maxProperties or a second such need");
    }
    // Any of the others around the one that must be there.
    const TermId any = other_member(one, TermPool::anything);
    const TermId tail = terms_.repeat(terms_.sequence(json_.comma, any), 0, unlimited);
    const TermId others =
        terms_.sequence({terms_.repeat(terms_.sequence(any, json_.comma), 0, unlimited), other, tail});
    Case named = one;
    named.others.clear();
    const bool needs_member =
        std::any_of(one.properties.begin(), one.properties.end(), [](const auto& part) { return part.required; });
    const TermId first = terms_.sequence({members(named), json_.comma, others, json_.space});
    parts.push_back(bracketed('{', first, '}'));
    if (!needs_member) parts.push_back(bracketed('{', terms_.sequence(others, json_.space), '}'));
  }
  return terms_.choice(parts);
}

TermId SchemaCompiler::member(const Case::Property& property) {
  return terms_.sequence({json_.quoted(property.name), json_.colon, value(property.value)});
}

// Names of a class with their quotes, the named properties left out.
TermId SchemaCompiler::other_names(const Case& one, const Case::Names& names) {
  if (names.language == TermPool::anything && one.properties.empty()) return json_.free_text;
  std::vector<TermId> known;
  for (const Case::Property& part : one.properties) known.push_back(encoded(terms_, part.name, Encoding::json));
  const TermId language = terms_.both({cases_.any_text(), names.language, terms_.complement(terms_.choice(known))});
  return automaton_.alive(language) ? json_.quoted(language) : TermPool::nothing;
}

// A property that is not among the named ones, its name in the language `within`.
TermId SchemaCompiler::other_member(const Case& one, TermId within) {
  std::vector<TermId> parts;
  for (Case::Names names : one.others) {
    if (within != TermPool::anything) names.language = terms_.both(names.language, within);
    const TermId text = other_names(one, names);
    if (text != TermPool::nothing) parts.push_back(terms_.sequence({text, json_.colon, value(names.value)}));
  }
  return terms_.choice(parts);
}

// One member or more.
TermId SchemaCompiler::members(const Case& one) {
  const size_t size = one.properties.size();
  const TermId other = other_member(one, TermPool::anything);
  const TermId others = terms_.repeat(terms_.sequence(json_.comma, other), 0, unlimited);
  std::vector<TermId> rest(size + 1);  // what may follow the first i properties, with its comma; may be empty
  for (size_t i = 0; i < size; ++i) rest[i] = terms_.declare();
  rest[size] = others;
  // Alternatives from property i on; with `comma` one in front of each.
  const auto from = [&](size_t i, TermId comma, bool may_be_none) {
    std::vector<TermId> parts;
    for (size_t k = i;; ++k) {
      if (k == size) {
        parts.push_back(may_be_none ? others : terms_.sequence(other, others));
        break;
      }
      if (may_be_none && k == i + block) {
        parts.push_back(rest[k]);
        break;
      }
      parts.push_back(terms_.sequence({comma, member(one.properties[k]), rest[k + 1]}));
      if (one.properties[k].required) break;
    }
    return terms_.choice(parts);
  };
  for (size_t i = 0; i < size; ++i) terms_.define(rest[i], from(i, json_.comma, true));
  return from(0, TermPool::empty, false);
}

// One member or more, between min_properties and max_properties of them: a rule for each place and count.
TermId SchemaCompiler::counted_members(const Case& one) {
  const size_t size = one.properties.size();
  const int64_t cap = one.max_properties == unlimited ? one.min_properties : one.max_properties;
  if (cap == 0) return TermPool::nothing;
  if (static_cast<int64_t>(size + 1) * (std::min<int64_t>(cap, static_cast<int64_t>(size)) + 1) > max_counts) {
    throw_error(ErrorKind::resource, "minProperties or maxProperties {} beside {} properties is too much", cap, size);
  }
  const bool is_limited = one.max_properties != unlimited;
  // More members than these are as good as these.
  const int64_t most = is_limited ? one.max_properties : std::max<int64_t>(1, one.min_properties);
  std::vector<int64_t> least(size + 1);  // members that there are in front of property i
  for (size_t i = 0; i < size; ++i) least[i + 1] = least[i] + (one.properties[i].required ? 1 : 0);
  if (!is_limited) std::ranges::transform(least, least.begin(), [&](int64_t count) { return std::min(count, most); });

  // behind[count]: what may follow with so many members so far, from property i on; in front of each a comma but for
  // the first.
  std::vector<TermId> behind;
  for (size_t i = size + 1; i-- > 0;) {
    std::vector<TermId> here(static_cast<size_t>(most) + 1, TermPool::nothing);
    for (int64_t count = least[i]; count <= std::min(most, static_cast<int64_t>(i)); ++count) {
      const TermId comma = count == 0 ? TermPool::empty : json_.comma;
      const bool is_full = is_limited && count >= most;
      TermId result = TermPool::nothing;
      if (i == size) {
        const int64_t min = std::max<int64_t>(count == 0 ? 1 : 0, one.min_properties - count);
        const int64_t max = is_limited ? one.max_properties - count : unlimited;
        const TermId more =
            is_full ? TermPool::nothing : terms_.sequence(comma, distinct_others(one, std::max<int64_t>(1, min), max));
        result = min <= 0 ? terms_.optional(more) : more;
      } else {
        const Case::Property& part = one.properties[i];
        const auto next = static_cast<size_t>(std::min(count + 1, most));
        const TermId with = is_full ? TermPool::nothing : terms_.sequence({comma, member(part), behind[next]});
        result = part.required ? with : terms_.choice(with, behind[static_cast<size_t>(count)]);
      }
      const TermId rule = terms_.declare();
      terms_.define(rule, result);
      here[static_cast<size_t>(count)] = rule;
    }
    behind = std::move(here);
  }
  return behind[0];
}

// From min (at least 1) to max members that are not among the named ones; where two or more are needed, their names
// differ.
TermId SchemaCompiler::distinct_others(const Case& one, int64_t min, int64_t max) {
  if (min == 1) {
    const TermId other = other_member(one, TermPool::anything);
    return terms_.sequence(other,
                           terms_.repeat(terms_.sequence(json_.comma, other), 0, max == unlimited ? max : max - 1));
  }
  Distinct elements;
  std::vector<TermId> all;
  for (const Case::Names& names : one.others) {
    const Case::Names canonical = {terms_.both(names.language, cases_.any_text()), names.value};
    const TermId text = other_names(one, canonical);
    if (text == TermPool::nothing || cases_.impossible(names.value)) continue;
    elements.alternatives.push_back({terms_[text].left, terms_.sequence(json_.colon, value(names.value))});
    all.push_back(terms_[text].left);
  }
  const auto number = automaton_.count(terms_.choice(all), min);
  if (number && *number < min) return TermPool::nothing;
  elements.separator = json_.comma;
  elements.min = min;
  elements.max = max;
  return automaton_.next_distinct(terms_.add_distinct(std::move(elements)), 0);
}

}  // namespace ingot::grammar

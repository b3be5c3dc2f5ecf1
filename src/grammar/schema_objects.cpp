// Compiles object schemas to shapes: the ways to write each member.
#include <algorithm>

#include "base/error.h"
#include "grammar/schema_compiler.h"

namespace ingot::grammar {

namespace {

constexpr size_t max_members = 10'000;   // max named properties
constexpr size_t max_needs = 6;          // max needs (Case::Need)
constexpr size_t max_ways = 512;         // max ways to write members if there are needs; all are tried
constexpr int64_t many_names = 100'000;  // a class with this many names counts as inexhaustible
constexpr int64_t max_count = 1'000'000'000;

}  // namespace

TermId SchemaCompiler::object(const Case& one) {
  if (one.properties.size() > max_members) {
    throw_error(ErrorKind::resource, "an object has {} properties; at most {} are supported", one.properties.size(),
                max_members);
  }
  if (one.needs.size() > max_needs) {
    throw_error(ErrorKind::resource,
                "not, if or oneOf require {} properties with unspecified names at once; at most {} are supported",
                one.needs.size(), max_needs);
  }
  ObjectShape shape;
  shape.needs = (uint32_t{1} << one.needs.size()) - 1;
  shape.min = std::min(one.min_properties, max_count);
  if (one.max_properties != unlimited) shape.max = std::min(one.max_properties, max_count);
  shape.in_order = options_.in_order;
  shape.free_text = json_.free_text;
  shape.colon = json_.colon;
  shape.comma = json_.comma;
  shape.space = json_.space;
  shape.close = terms_.byte('}');
  for (size_t i = 0; i < one.properties.size(); ++i) {
    shape.names.push_back(terms_.literal(one.properties[i].name));
    shape.properties.emplace_back(one.properties[i].name, static_cast<int32_t>(i));
    shape.longest = std::max(shape.longest, one.properties[i].name.size());
    add_property(one, i, shape);
    if (shape.needs != 0 && shape.members.size() > max_ways) {
      throw_error(ErrorKind::resource,
                  "not, if or oneOf require a property with an unspecified name, in more than {} ways", max_ways);
    }
  }
  std::sort(shape.properties.begin(), shape.properties.end());
  const size_t named = shape.members.size();
  add_others(one, shape);
  const auto others = shape.members.begin() + static_cast<std::ptrdiff_t>(named);
  shape.distinct = shape.min > 1 && others != shape.members.end();
  shape.all_distinct = std::any_of(others, shape.members.end(), [](const auto& other) { return other.meets != 0; });
  const TermId members = terms_.members({.shape = terms_.add_object(std::move(shape))});
  const TermId rule = terms_.declare();
  terms_.define(rule, terms_.sequence({terms_.byte('{'), json_.space, members}));
  return rule;
}

// Adds the ways to write a property: one for each set of needs that its name and value can satisfy.
void SchemaCompiler::add_property(const Case& one, size_t property, ObjectShape& shape) {
  const Case::Property& part = one.properties[property];
  shape.required.push_back(part.required);
  uint32_t possible = 0, always = 0;  // `always`: needs without a value condition
  for (size_t i = 0; i < one.needs.size(); ++i) {
    if (cases_.contains(one.needs[i].language, part.name)) {
      (one.needs[i].value.empty() ? always : possible) |= uint32_t{1} << i;
    }
  }
  ObjectShape::Member member;
  member.key = json_.quoted(shape.names[property]);
  member.property = static_cast<int32_t>(property);
  for (uint32_t set = possible;; set = (set - 1) & possible) {
    Conjunction all = part.value;
    for (size_t i = 0; i < one.needs.size(); ++i) {
      if ((set >> i & 1) != 0) add_to(all, one.needs[i].value);
    }
    member.meets = set | always;
    member.tail = terms_.sequence(json_.colon, value(all));
    shape.members.push_back(member);
    if (set == 0) break;
  }
}

// Adds the members with other names: by class, and by the set of needs that they can satisfy.
void SchemaCompiler::add_others(const Case& one, ObjectShape& shape) {
  const TermId unknown = terms_.complement(terms_.choice({shape.names.begin(), shape.names.end()}));
  const bool is_open = one.needs.empty() && one.others.size() == 1 && one.others[0].language == TermPool::anything;
  for (const Case::Names& names : one.others) {
    for (uint32_t set = shape.needs;; --set) {
      std::vector<TermId> languages = {cases_.any_text(), names.language, unknown};
      Conjunction all = names.value;
      for (size_t i = 0; i < one.needs.size(); ++i) {
        if ((set >> i & 1) == 0) continue;
        languages.push_back(one.needs[i].language);
        add_to(all, one.needs[i].value);
      }
      ObjectShape::Member member;
      member.names = terms_.both(languages);
      if ((is_open || automaton_.alive(member.names)) && !cases_.impossible(all)) {
        const bool is_free = member.names == cases_.any_text();
        member.key = is_free ? json_.free_text : json_.quoted(member.names);
        member.tail = terms_.sequence(json_.colon, value(all));
        member.meets = set;
        // Such names must differ: a small set could be used up before the need is satisfied.
        if (set != 0 && automaton_.count(member.names, many_names) < many_names) {
          throw_error(
              ErrorKind::unsupported,
              "not, if or oneOf require a property whose pattern allows fewer than {} names, which is not supported",
              many_names);
        }
        if (is_open) shape.open = static_cast<int32_t>(shape.members.size());
        if (shape.min > 1 && !is_open) {
          const int64_t number = automaton_.count(member.names, shape.min);
          if (number < shape.min) member.number = number;
        }
        shape.members.push_back(member);
      }
      if (set == 0) break;
    }
  }
}

}  // namespace ingot::grammar

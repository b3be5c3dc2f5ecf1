// Negations of schemas: the ways in which an instance can violate one.
#include <algorithm>

#include "base/error.h"
#include "grammar/characters.h"
#include "grammar/format.h"
#include "grammar/schema_pending.h"

namespace ingot::grammar {

namespace {

[[noreturn]] void refuse(const Schema& schema, const char* keyword) {
  throw_hint(ErrorKind::unsupported,
             "the negation is needed by not, by if, or by a oneOf whose schemas can hold at once: make those mutually "
             "exclusive with a property of different constants",
             "{}/{}: the negation of this keyword is not supported", schema.pointer, keyword);
}

// Whether the schema imposes no constraint.
bool is_trivial(const Schema& schema) {
  return !schema.never && schema.types == 0x3F && !schema.constants && !schema.integers && schema.at_least.empty() &&
         schema.above.empty() && schema.at_most.empty() && schema.below.empty() && schema.multiples.empty() &&
         !schema.min_length && !schema.max_length && !schema.pattern && !schema.format && schema.prefix.empty() &&
         !schema.items && !schema.contains && schema.min_items == 0 && schema.max_items == unlimited &&
         !schema.unique && schema.properties.empty() && schema.patterns.empty() && !schema.additional &&
         !schema.names && schema.required.empty() && schema.min_properties == 0 && schema.max_properties == unlimited &&
         schema.dependents.empty() && schema.all_of.empty() && schema.any_of.empty() && schema.one_of.empty() &&
         !schema.negated && !schema.condition;
}

}  // namespace

bool DnfExpander::opposites(const Schema& schema, Alternatives& out) {
  if (schema.never || (schema.types >> static_cast<int>(type_) & 1) == 0) return false;
  if (schema.constants && !opposite_of_constants(*schema.constants, out)) return false;
  if (type_ == JsonType::number) opposite_of_numbers(schema, out);
  if (type_ == JsonType::string) opposite_of_strings(schema, out);
  if (type_ == JsonType::array) opposite_of_array(schema, out);
  if (type_ == JsonType::object) opposite_of_object(schema, out);
  opposite_of_combinations(schema, out);
  return true;
}

bool DnfExpander::opposite_of_constants(const std::vector<Constant>& constants, Alternatives& out) {
  TermPool& terms = automaton_.terms;
  Alternative way;
  uint8_t booleans = 0;
  std::vector<TermId> numbers;
  bool is_any = false;
  for (const Constant& constant : constants) {
    if (constant.type != type_) continue;
    is_any = true;
    if (type_ == JsonType::boolean) booleans |= constant.boolean ? 2 : 1;
    if (type_ == JsonType::number) {
      numbers.push_back(equal_to(terms, constant.number));
      way.conditions.digits = std::max(way.conditions.digits, static_cast<int64_t>(constant.number.whole.size()));
    }
    if (type_ == JsonType::array || type_ == JsonType::object) way.schemas.push_back(fails(constant.structure));
  }
  if (!is_any) return false;
  if (type_ == JsonType::null || booleans == 3) return true;
  way.conditions.booleans = static_cast<uint8_t>(3 & ~booleans);
  if (type_ == JsonType::number) {
    way.conditions.numbers = {terms.complement(terms.choice(numbers))};
    way.conditions.is_exact = true;
  }
  if (type_ == JsonType::string) way.conditions.texts = {terms.complement(text_literals(constants))};
  out.push_back(std::move(way));
  return true;
}

void DnfExpander::opposite_of_numbers(const Schema& schema, Alternatives& out) {
  TermPool& terms = automaton_.terms;
  const auto add = [&](const std::vector<Decimal>& bounds, auto language) {
    for (const Decimal& bound : bounds) {
      Alternative way;
      way.conditions.is_exact = true;
      way.conditions.numbers = {terms.complement(language(terms, bound))};
      way.conditions.digits = std::max(way.conditions.digits, static_cast<int64_t>(bound.whole.size()));
      out.push_back(std::move(way));
    }
  };
  add(schema.at_least, at_least);
  add(schema.above, above);
  add(schema.at_most, at_most);
  add(schema.below, below);
  const size_t bounds = out.size();
  add(schema.multiples, multiples_of);
  for (size_t i = bounds; i < out.size(); ++i) out[i].conditions.has_exponents = false;
  if (!schema.integers) return;
  Alternative way;
  way.conditions.is_exact = true;
  way.conditions.has_exponents = false;
  way.conditions.numbers = {terms.complement(schema.plain_integers ? plain_integers(terms) : integers(terms))};
  out.push_back(std::move(way));
}

void DnfExpander::opposite_of_strings(const Schema& schema, Alternatives& out) {
  TermPool& terms = automaton_.terms;
  if (schema.min_length.value_or(0) > 0) {
    out.emplace_back();
    out.back().conditions.max_length = *schema.min_length - 1;
  }
  if (schema.max_length) {
    out.emplace_back();
    out.back().conditions.min_length = *schema.max_length + 1;
  }
  if (schema.pattern) {
    const TermId language = pattern(*schema.pattern, schema.pointer + "/pattern");
    out.emplace_back();
    out.back().conditions.texts = {terms.complement(language)};
  }
  if (!schema.format) return;
  const auto format = format_named(terms, *schema.format);
  if (!format->is_exact) refuse(schema, "format");
  out.emplace_back();
  out.back().conditions.texts = {terms.complement(format->language)};
}

void DnfExpander::opposite_of_array(const Schema& schema, Alternatives& out) {
  for (size_t i = 0; i < schema.prefix.size(); ++i) {
    out.emplace_back();
    Case& way = out.back().conditions;
    way.prefix.resize(i + 1);
    way.prefix[i] = {fails(schema.prefix[i])};
    way.min_items = static_cast<int64_t>(i) + 1;
  }
  if (schema.items && !is_trivial(schemas_[*schema.items])) {
    Case way;
    if (schemas_[*schema.items].never) {
      way.min_items = static_cast<int64_t>(schema.prefix.size()) + 1;
    } else if (schema.prefix.empty()) {
      way.contained.push_back({{fails(*schema.items)}, 1, unlimited, schema.pointer + "/items"});
    } else {
      refuse(schema, "items");
    }
    out.push_back({std::move(way), {}});
  }
  if (schema.min_items > 0) {
    out.emplace_back();
    out.back().conditions.max_items = schema.min_items - 1;
  }
  if (schema.max_items != unlimited) {
    out.emplace_back();
    out.back().conditions.min_items = schema.max_items + 1;
  }
  if (schema.unique) refuse(schema, "uniqueItems");
  if (!schema.contains) return;
  if (schema.min_contains > 0) {
    out.emplace_back();
    Case& way = out.back().conditions;
    if (schema.min_contains == 1) {
      way.rest = {fails(*schema.contains)};
    } else {
      way.contained.push_back({{holds(*schema.contains)}, 0, schema.min_contains - 1, schema.pointer + "/contains"});
    }
  }
  if (schema.max_contains != unlimited) {
    out.emplace_back();
    out.back().conditions.contained.push_back(
        {{holds(*schema.contains)}, schema.max_contains + 1, unlimited, schema.pointer + "/contains"});
  }
}

void DnfExpander::opposite_of_object(const Schema& schema, Alternatives& out) {
  for (const auto& [name, value] : schema.properties) {
    if (is_trivial(schemas_[value])) continue;
    out.emplace_back();
    out.back().conditions.properties.push_back({name, {fails(value)}, true});
  }
  for (const std::string& name : schema.required) {
    out.emplace_back();
    out.back().conditions.properties.push_back({name, {holds(schemas_.never())}, false});
  }
  if (schema.min_properties > 0) {
    out.emplace_back();
    out.back().conditions.max_properties = schema.min_properties - 1;
  }
  if (schema.max_properties != unlimited) {
    out.emplace_back();
    out.back().conditions.min_properties = schema.max_properties + 1;
  }
  for (const auto& [name, value] : schema.dependents) {
    out.emplace_back();
    out.back().conditions.properties.push_back({name, {}, true});
    out.back().schemas = {fails(value)};
  }
  opposite_of_names(schema, out);
}

// Violations by a property whose name is disallowed, or whose value does not satisfy the schema for its name.
void DnfExpander::opposite_of_names(const Schema& schema, Alternatives& out) {
  TermPool& terms = automaton_.terms;
  const auto need = [&](TermId language, SchemaId value) {
    if (is_trivial(schemas_[value])) return;
    out.emplace_back();
    out.back().conditions.needs = {{language, {}}};
    if (!schemas_[value].never) out.back().conditions.needs[0].value = {fails(value)};
  };
  std::vector<TermId> known;
  for (const auto& [name, value] : schema.properties) known.push_back(terms.literal(name));
  for (const auto& [text, value] : schema.patterns) {
    const TermId language = pattern(text, schema.pointer + "/patternProperties");
    known.push_back(language);
    need(language, value);
  }
  if (schema.additional) need(terms.complement(terms.choice(known)), *schema.additional);
  if (!schema.names || is_trivial(schemas_[*schema.names])) return;
  out.emplace_back();
  out.back().conditions.needs = {{name_language(*schema.names, true), {}}};
}

void DnfExpander::opposite_of_combinations(const Schema& schema, Alternatives& out) {
  const auto add = [&](Conjunction schemas) { out.push_back({{}, std::move(schemas)}); };
  for (const SchemaId part : schema.all_of) add({fails(part)});
  for (const std::vector<SchemaId>& schemas : schema.any_of) {
    Conjunction none;
    for (const SchemaId one : schemas) none.push_back(fails(one));
    add(std::move(none));
  }
  for (const std::vector<SchemaId>& schemas : schema.one_of) {  // none of them holds, or two do
    Conjunction none;
    for (size_t i = 0; i < schemas.size(); ++i) {
      none.push_back(fails(schemas[i]));
      for (size_t k = 0; k < i; ++k) add({holds(schemas[k]), holds(schemas[i])});
    }
    add(std::move(none));
  }
  if (schema.negated) add({holds(*schema.negated)});
  if (!schema.condition) return;
  if (schema.consequence) add({holds(*schema.condition), fails(*schema.consequence)});
  if (schema.alternative) add({fails(*schema.condition), fails(*schema.alternative)});
}

}  // namespace ingot::grammar

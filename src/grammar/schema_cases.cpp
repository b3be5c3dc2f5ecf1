#include "grammar/schema_cases.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "grammar/characters.h"
#include "grammar/depth.h"
#include "grammar/format.h"
#include "grammar/regex.h"
#include "grammar/schema_pending.h"

namespace ingot::grammar {

namespace {

constexpr int max_case_depth = 6;       // max nesting of impossible()
constexpr int max_nested = 256;         // max nesting of expand()
constexpr size_t max_one_of = 64;       // max schemas of a oneOf
constexpr int64_t max_steps = 100'000;  // max expansion steps for a document

uint8_t bit(JsonType type) { return static_cast<uint8_t>(1U << static_cast<int>(type)); }

bool has_never(const Conjunction& all, SchemaId never) {
  return std::find(all.begin(), all.end(), holds(never)) != all.end();
}

}  // namespace

void add_to(Conjunction& all, int32_t literal) {
  if (std::find(all.begin(), all.end(), literal) == all.end()) all.push_back(literal);
}

void add_to(Conjunction& all, const Conjunction& more) {
  for (const int32_t literal : more) add_to(all, literal);
}

DnfExpander::DnfExpander(Automaton& automaton, SchemaSet& schemas, const JsonOptions& options)
    : automaton_(automaton),
      schemas_(schemas),
      options_(options),
      any_text_(automaton.terms.repeat(encoded(automaton.terms, CharacterSet::all()), 0, unlimited)),
      until_(options.seconds() + options.max_seconds) {}

void DnfExpander::check_time() const {
  if (options_.seconds() <= until_) return;
  throw_hint(ErrorKind::resource, "use fewer combinations of schemas", "the schema takes more than {} s to compile",
             options_.max_seconds);
}

std::vector<Case> DnfExpander::expand(const Conjunction& all, JsonType type) {
  const JsonType before = type_;
  type_ = type;
  std::vector<Case> cases;
  Pending pending;
  pending.literals = all;
  expand({}, std::move(pending), cases);
  type_ = before;
  return cases;
}

void DnfExpander::expand(Case one, Pending pending, std::vector<Case>& out) {
  const DepthGuard deeper(nested_, max_nested);
  check_time();
  steps_ += 1 + static_cast<int64_t>((one.properties.size() + pending.size()) / 16);  // the copies cost time too
  if (steps_ > max_steps) {
    throw_hint(ErrorKind::resource, "combine fewer schemas with anyOf, oneOf, not and if",
               "expanding the schema's combinations takes more than {} steps", max_steps);
  }
  for (size_t i = 0; i < pending.literals.size(); ++i) {
    if (!apply(pending.literals[i], one, pending)) return;
  }
  pending.literals.clear();
  if (pending.choices.empty()) {
    if (!possible(one, type_)) return;
    if (static_cast<int64_t>(out.size()) >= options_.max_cases) {
      throw_hint(ErrorKind::resource, "combine fewer schemas with anyOf, oneOf, not and if",
                 "the schema expands to more than {} alternatives for one value", options_.max_cases);
    }
    out.push_back(std::move(one));
    return;
  }
  const auto choice = std::move(pending.choices.back());
  pending.choices.pop_back();
  for (const Alternative& alternative : *choice) {
    Case next = one;
    if (!merge(alternative.conditions, next)) continue;
    Pending rest = pending;
    rest.literals = alternative.schemas;
    expand(std::move(next), std::move(rest), out);
  }
}

bool DnfExpander::apply(int32_t literal, Case& one, Pending& pending) {
  if (pending.seen.contains(literal ^ 1)) return false;
  if (!pending.seen.insert(literal).second) return true;
  const Schema& schema = schemas_[literal / 2];
  if ((literal & 1) == 0) return apply_positive(schema, one, pending);
  Alternatives ways;
  if (!opposites(schema, ways)) return true;
  if (ways.empty()) return false;
  if (ways.size() > 1) {
    pending.choose(std::move(ways));
    return true;
  }
  for (const int32_t more : ways[0].schemas) pending.add(more);
  return merge(ways[0].conditions, one);
}

bool DnfExpander::apply_positive(const Schema& schema, Case& one, Pending& pending) {
  if (schema.never || (schema.types & bit(type_)) == 0) return false;
  if (schema.constants && !apply_constants(schema, one, pending)) return false;
  if (type_ == JsonType::number) apply_numbers(schema, one);
  if (type_ == JsonType::string) apply_strings(schema, one);
  if (type_ == JsonType::array) apply_array(schema, one);
  if (type_ == JsonType::object) apply_object(schema, one);
  combine(schema, pending);
  return true;
}

TermId DnfExpander::text_literals(const std::vector<Constant>& constants) {
  std::vector<TermId> texts;
  for (const Constant& constant : constants) {
    if (constant.type == JsonType::string) texts.push_back(automaton_.terms.literal(constant.text));
  }
  return automaton_.terms.choice(texts);
}

bool DnfExpander::apply_constants(const Schema& schema, Case& one, Pending& pending) {
  Case only;
  Alternatives structures;
  only.booleans = 0;
  only.values.emplace();
  bool is_any = false;
  for (const Constant& constant : *schema.constants) {
    if (constant.type != type_) continue;
    is_any = true;
    only.booleans |= constant.boolean ? 2 : 1;
    if (type_ == JsonType::number) only.values->push_back(constant.number);
    if (type_ == JsonType::array || type_ == JsonType::object) structures.push_back({{}, {holds(constant.structure)}});
  }
  if (!is_any) return false;
  if (type_ == JsonType::string) one.texts.push_back(text_literals(*schema.constants));
  if (!structures.empty()) pending.choose(std::move(structures));
  if (type_ != JsonType::boolean) only.booleans = 3;
  if (type_ != JsonType::number) only.values.reset();
  return merge(only, one);
}

void DnfExpander::apply_numbers(const Schema& schema, Case& one) {
  TermPool& terms = automaton_.terms;
  const auto add = [&](const std::vector<Decimal>& bounds, auto language) {
    for (const Decimal& bound : bounds) {
      one.numbers.push_back(language(terms, bound));
      one.digits = std::max(one.digits, static_cast<int64_t>(bound.whole.size()));
    }
  };
  add(schema.at_least, at_least);
  add(schema.above, above);
  add(schema.at_most, at_most);
  add(schema.below, below);
  if (!schema.above.empty() || !schema.below.empty() || !schema.multiples.empty()) one.is_exact = true;
  for (const Decimal& value : schema.multiples) {
    one.has_exponents = false;
    try {
      one.numbers.push_back(multiples_of(terms, value));
    } catch (const Error& error) {
      throw Error(error.kind(), schema.pointer + "/multipleOf: " + error.message(), error.hint());
    }
    if (value.is_integer()) one.integers_only = true;
  }
  if (schema.integers) {
    one.numbers.push_back(schema.plain_integers ? plain_integers(terms) : integers(terms));
    one.integers_only = true;
  }
}

void DnfExpander::apply_strings(const Schema& schema, Case& one) {
  if (schema.min_length) one.min_length = std::max(one.min_length, *schema.min_length);
  if (schema.max_length) {
    one.max_length = one.max_length == unlimited ? *schema.max_length : std::min(one.max_length, *schema.max_length);
  }
  if (schema.pattern) one.texts.push_back(pattern(*schema.pattern, schema.pointer + "/pattern"));
  if (schema.format) one.texts.push_back(format_named(automaton_.terms, *schema.format)->language);
}

TermId DnfExpander::pattern(const std::string& text, const std::string& pointer) {
  const auto known = patterns_.find(text);
  if (known != patterns_.end()) return known->second;
  try {
    return patterns_[text] = pattern_language(automaton_.terms, text);
  } catch (const Error& error) {
    throw Error(error.kind(), pointer + ": " + error.message(), error.hint());
  }
}

void DnfExpander::apply_array(const Schema& schema, Case& one) {
  while (one.prefix.size() < schema.prefix.size()) one.prefix.push_back(one.rest);
  for (size_t i = 0; i < one.prefix.size(); ++i) {
    if (i < schema.prefix.size()) {
      add_to(one.prefix[i], holds(schema.prefix[i]));
    } else if (schema.items) {
      add_to(one.prefix[i], holds(*schema.items));
    }
  }
  if (schema.items) add_to(one.rest, holds(*schema.items));
  one.min_items = std::max(one.min_items, schema.min_items);
  if (schema.max_items != unlimited) {
    one.max_items = one.max_items == unlimited ? schema.max_items : std::min(one.max_items, schema.max_items);
  }
  if (schema.unique) one.unique = schema.pointer + "/uniqueItems";
  if (schema.contains && (schema.min_contains > 0 || schema.max_contains != unlimited)) {
    one.contained.push_back(
        {{holds(*schema.contains)}, schema.min_contains, schema.max_contains, schema.pointer + "/contains"});
  }
}

void DnfExpander::apply_object(const Schema& schema, Case& one) {
  TermPool& terms = automaton_.terms;
  std::vector<std::pair<TermId, SchemaId>> patterns;
  std::vector<TermId> languages;
  for (const auto& [text, value] : schema.patterns) {
    patterns.emplace_back(pattern(text, schema.pointer + "/patternProperties"), value);
    languages.push_back(patterns.back().first);
  }
  std::unordered_map<std::string_view, SchemaId> named;
  for (const auto& [name, value] : schema.properties) named.emplace(name, value);
  std::unordered_set<std::string> before;
  for (const Case::Property& known : one.properties) before.insert(known.name);
  for (const auto& [name, value] : schema.properties) {
    if (!before.contains(name)) one.properties.push_back({name, value_of(one, name), false});
  }
  for (Case::Property& known : one.properties) {
    const auto value_here = named.find(known.name);
    bool is_named = value_here != named.end();
    if (is_named) add_to(known.value, holds(value_here->second));
    for (const auto& [language, value] : patterns) {
      if (!contains(language, known.name)) continue;
      add_to(known.value, holds(value));
      is_named = true;
    }
    if (!is_named && schema.additional) add_to(known.value, holds(*schema.additional));
  }
  if (schema.additional) split(one, terms.choice(languages), {}, {holds(*schema.additional)});
  for (const auto& [language, value] : patterns) split(one, language, {holds(value)}, {});
  if (schema.names) apply_names(schema, one);
  if (!schema.required.empty()) {
    std::unordered_map<std::string, size_t> index_of_name;
    for (size_t i = 0; i < one.properties.size(); ++i) index_of_name.emplace(one.properties[i].name, i);
    for (const std::string& name : schema.required) {
      const auto [at, is_new] = index_of_name.try_emplace(name, one.properties.size());
      if (is_new) one.properties.push_back({name, value_of(one, name), false});
      one.properties[at->second].required = true;
    }
  }
  one.min_properties = std::max(one.min_properties, schema.min_properties);
  if (schema.max_properties != unlimited) {
    one.max_properties =
        one.max_properties == unlimited ? schema.max_properties : std::min(one.max_properties, schema.max_properties);
  }
}

void DnfExpander::apply_names(const Schema& schema, Case& one) {
  const TermId language = name_language(*schema.names, false);
  for (Case::Property& known : one.properties) {
    if (!contains(language, known.name)) add_to(known.value, holds(schemas_.never()));
  }
  split(one, language, {}, {holds(schemas_.never())});
}

TermId DnfExpander::name_language(SchemaId names, bool negated) {
  std::vector<TermId> parts;
  for (const Case& one : expand({negated ? fails(names) : holds(names)}, JsonType::string)) {
    parts.push_back(one.language);
  }
  return automaton_.terms.choice(parts);
}

// Splits every class of other names by the language: names in it get the schemas `inside`, the rest `outside`. Classes
// that are empty or allow no value are dropped.
void DnfExpander::split(Case& one, TermId language, const Conjunction& inside, const Conjunction& outside) {
  TermPool& terms = automaton_.terms;
  std::vector<Case::Names> parts;
  for (const Case::Names& names : one.others) {
    for (const bool is_inside : {true, false}) {
      const TermId part = terms.both(names.language, is_inside ? language : terms.complement(language));
      Case::Names next = {part, names.value};
      add_to(next.value, is_inside ? inside : outside);
      if (has_never(next.value, schemas_.never()) || !automaton_.alive(terms.both(part, any_text_))) continue;
      parts.push_back(std::move(next));
    }
  }
  one.others = std::move(parts);
}

bool DnfExpander::contains(TermId language, const std::string& name) {
  return automaton_.nullable(automaton_.step(language, name));
}

Conjunction DnfExpander::value_of(const Case& one, const std::string& name) {
  for (const Case::Names& names : one.others) {
    if (contains(names.language, name)) return names.value;
  }
  return {holds(schemas_.never())};
}

Case::Property& DnfExpander::property(Case& one, const std::string& name) {
  const auto known = std::find_if(one.properties.begin(), one.properties.end(),
                                  [&](const Case::Property& property) { return property.name == name; });
  if (known != one.properties.end()) return *known;
  one.properties.push_back({name, value_of(one, name), false});
  return one.properties.back();
}

void DnfExpander::combine(const Schema& schema, Pending& pending) {
  for (const SchemaId part : schema.all_of) pending.add(holds(part));
  for (const std::vector<SchemaId>& schemas : schema.any_of) {
    if (schemas.size() == 1) {
      pending.add(holds(schemas[0]));
      continue;
    }
    Alternatives ways;
    for (const SchemaId one : schemas) ways.push_back({{}, {holds(one)}});
    pending.choose(std::move(ways));
  }
  for (const std::vector<SchemaId>& schemas : schema.one_of) one_of(schemas, pending);
  if (schema.negated) pending.add(fails(*schema.negated));
  if (schema.condition && (schema.consequence || schema.alternative)) {
    Alternatives ways = {{{}, {holds(*schema.condition)}}, {{}, {fails(*schema.condition)}}};
    if (schema.consequence) ways[0].schemas.push_back(holds(*schema.consequence));
    if (schema.alternative) ways[1].schemas.push_back(holds(*schema.alternative));
    pending.choose(std::move(ways));
  }
  if (type_ != JsonType::object) return;
  for (const auto& [name, value] : schema.dependents) {
    Case absent, present;
    absent.properties.push_back({name, {holds(schemas_.never())}, false});
    present.properties.push_back({name, {}, true});
    pending.choose({{std::move(absent), {}}, {std::move(present), {holds(value)}}});
  }
}

// Exactly one of the schemas holds. Negations of schemas that are known to exclude the chosen one are omitted.
void DnfExpander::one_of(const std::vector<SchemaId>& schemas, Pending& pending) {
  if (schemas.size() > max_one_of) {
    throw_error(ErrorKind::resource, "oneOf has {} schemas; at most {} are supported", schemas.size(), max_one_of);
  }
  Alternatives ways;
  for (size_t i = 0; i < schemas.size(); ++i) {
    Alternative way{{}, {holds(schemas[i])}};
    for (size_t k = 0; k < schemas.size(); ++k) {
      if (i == k || impossible({holds(schemas[std::min(i, k)]), holds(schemas[std::max(i, k)])})) continue;
      way.schemas.push_back(fails(schemas[k]));
    }
    ways.push_back(std::move(way));
  }
  pending.choose(std::move(ways));
}

bool DnfExpander::merge(const Case& from, Case& into) {
  into.booleans &= from.booleans;
  into.numbers.insert(into.numbers.end(), from.numbers.begin(), from.numbers.end());
  into.integers_only = into.integers_only || from.integers_only;
  into.digits = std::max(into.digits, from.digits);
  into.is_exact = into.is_exact || from.is_exact;
  into.has_exponents = into.has_exponents && from.has_exponents;
  if (from.values && into.values) {
    std::erase_if(*into.values, [&](const Decimal& value) {
      return std::none_of(from.values->begin(), from.values->end(),
                          [&](const Decimal& other) { return other.text() == value.text(); });
    });
  } else if (from.values) {
    into.values = from.values;
  }
  into.texts.insert(into.texts.end(), from.texts.begin(), from.texts.end());
  const auto smaller = [](int64_t a, int64_t b) { return a == unlimited ? b : b == unlimited ? a : std::min(a, b); };
  into.min_length = std::max(into.min_length, from.min_length);
  into.max_length = smaller(into.max_length, from.max_length);
  while (into.prefix.size() < from.prefix.size()) into.prefix.push_back(into.rest);
  for (size_t i = 0; i < into.prefix.size(); ++i)
    add_to(into.prefix[i], i < from.prefix.size() ? from.prefix[i] : from.rest);
  add_to(into.rest, from.rest);
  into.min_items = std::max(into.min_items, from.min_items);
  into.max_items = smaller(into.max_items, from.max_items);
  into.contained.insert(into.contained.end(), from.contained.begin(), from.contained.end());
  for (const Case::Property& part : from.properties) {
    Case::Property& known = property(into, part.name);
    add_to(known.value, part.value);
    known.required = known.required || part.required;
  }
  into.min_properties = std::max(into.min_properties, from.min_properties);
  into.max_properties = smaller(into.max_properties, from.max_properties);
  into.needs.insert(into.needs.end(), from.needs.begin(), from.needs.end());
  return into.booleans != 0 && !(into.values && into.values->empty());
}

TermId DnfExpander::string_language(const Case& one) {
  TermPool& terms = automaton_.terms;
  std::vector<TermId> parts = one.texts;
  if (one.max_length != unlimited && one.max_length < one.min_length) return TermPool::nothing;
  if (one.min_length > 0 || one.max_length != unlimited) {
    parts.push_back(terms.repeat(encoded(terms, CharacterSet::all()), one.min_length, one.max_length));
  }
  const bool is_bounded =
      std::any_of(parts.begin(), parts.end(), [&](TermId part) { return terms[part].kind != TermKind::complement; });
  if (!is_bounded) parts.push_back(any_text_);
  const TermId language = terms.both(parts);
  return automaton_.alive(language) ? language : TermPool::nothing;
}

TermId DnfExpander::number_language(const Case& one, bool canonical) {
  TermPool& terms = automaton_.terms;
  std::vector<TermId> parts = one.numbers;
  if (one.values) {
    std::vector<TermId> texts;
    for (const Decimal& value : *one.values)
      texts.push_back(canonical ? terms.literal(value.text()) : texts_of(terms, value));
    parts.push_back(terms.choice(texts));
  } else if (one.numbers.empty() && !canonical) {
    return any_number(terms);
  } else {
    if (!one.integers_only && one.digits > integer_digits) {
      throw_error(ErrorKind::unsupported,
                  "a bound of {} digits for numbers that need not be integers; at most {} are supported", one.digits,
                  integer_digits);
    }
    const NumberForm form = {.integers_only = one.integers_only,
                             .digits = one.digits,
                             .is_exact = one.is_exact,
                             .has_exponents = one.has_exponents,
                             .is_canonical = canonical};
    parts.push_back(decimals(terms, form));
    // Unbounded integers are never empty: no search is needed.
    if (one.integers_only && one.numbers == std::vector<TermId>{integers(terms)}) return parts.back();
    if (one.integers_only && one.numbers == std::vector<TermId>{plain_integers(terms)}) {
      return any_integer(terms, one.digits);
    }
  }
  const TermId language = terms.both(parts);
  return automaton_.alive(language) ? language : TermPool::nothing;
}

bool DnfExpander::possible(Case& one, JsonType type) {
  if (type == JsonType::string) one.language = string_language(one);
  if (type == JsonType::number) one.language = number_language(one, false);
  if (type == JsonType::string || type == JsonType::number) return one.language != TermPool::nothing;
  if (type == JsonType::array) {
    if (one.max_items != unlimited && one.max_items < one.min_items) return false;
    const auto needed = static_cast<size_t>(std::min<int64_t>(one.min_items, static_cast<int64_t>(one.prefix.size())));
    return std::none_of(one.prefix.begin(), one.prefix.begin() + static_cast<std::ptrdiff_t>(needed),
                        [&](const Conjunction& item) { return impossible(item); });
  }
  if (type != JsonType::object) return true;
  if (one.max_properties != unlimited && one.max_properties < one.min_properties) return false;
  return std::none_of(one.properties.begin(), one.properties.end(),
                      [&](const Case::Property& part) { return part.required && impossible(part.value); });
}

bool DnfExpander::impossible(const Conjunction& all) {
  if (all.empty()) return false;
  if (has_never(all, schemas_.never())) return true;
  const auto [at, is_new] = impossible_.try_emplace(all, false);
  if (!is_new) return at->second;  // false during a recursive query: not yet known
  if (depth_ >= max_case_depth) {
    impossible_.erase(at);
    return false;
  }
  ++depth_;
  const bool result = std::all_of(std::begin(json_types), std::end(json_types),
                                  [&](JsonType type) { return expand(all, type).empty(); });
  --depth_;
  impossible_[all] = result;
  return result;
}

}  // namespace ingot::grammar

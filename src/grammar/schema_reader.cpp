#include "grammar/schema_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/format.h"
#include "grammar/schema_uri.h"

namespace ingot::grammar {

namespace {

constexpr const char* type_names[] = {"null", "boolean", "number", "string", "array", "object"};

// Keywords that do not constrain instances, or that are read elsewhere, with the drafts that define them. The content
// keywords are annotations (2020-12, Validation, section 8).
struct Annotation {
  std::string_view keyword;
  Draft first = Draft::draft4, last = Draft::draft2020;
  bool is_text = false;
};
constexpr Annotation annotations[] = {
    {"title"},
    {"description"},
    {"default"},
    {"definitions"},
    {"id", Draft::draft4, Draft::draft4, true},
    {"$id", Draft::draft6, Draft::draft2020, true},
    {"examples", Draft::draft6},
    {"$comment", Draft::draft7},
    {"readOnly", Draft::draft7},
    {"writeOnly", Draft::draft7},
    {"contentEncoding", Draft::draft7},
    {"contentMediaType", Draft::draft7},
    {"contentSchema", Draft::draft2019},
    {"deprecated", Draft::draft2019},
    {"$defs", Draft::draft2019},
    {"$vocabulary", Draft::draft2019},
    {"$anchor", Draft::draft2019, Draft::draft2020, true},
    {"$recursiveAnchor", Draft::draft2019, Draft::draft2019},
    {"$dynamicAnchor", Draft::draft2020, Draft::draft2020, true},
    {"unevaluatedItems", Draft::draft2019},
    {"unevaluatedProperties", Draft::draft2019},
};

}  // namespace

std::string SchemaReader::at(const std::string& key) const { return schema_.pointer + "/" + as_pointer_token(key); }

void SchemaReader::malformed(const std::string& key, const char* wanted) const {
  throw_error(ErrorKind::usage, "the schema's {} must be {}", at(key), wanted);
}

int64_t SchemaReader::count(const std::string& key, const Json& value) const {
  const bool is_whole = value.is_number() && value.get<double>() >= 0 && value.get<double>() < 9e15 &&
                        value.get<double>() == static_cast<double>(value.get<int64_t>());
  if (!is_whole) malformed(key, "a non-negative whole number");
  return value.get<int64_t>();
}

Decimal SchemaReader::number(const std::string& key, const Json& value) const {
  if (!value.is_number()) malformed(key, "a number");
  return Decimal::parse(value.dump());
}

std::string SchemaReader::string(const std::string& key, const Json& value) const {
  if (!value.is_string()) malformed(key, "a string");
  return value.get<std::string>();
}

std::vector<std::string> SchemaReader::strings(const std::string& key, const Json& value) const {
  if (!value.is_array()) malformed(key, "an array of strings");
  std::vector<std::string> texts;
  for (const Json& item : value) texts.push_back(string(key, item));
  return texts;
}

SchemaId SchemaReader::child(const std::string& key, const Json& value) { return sources_.child(value, at(key)); }

std::vector<SchemaId> SchemaReader::children(const std::string& key, const Json& value) {
  if (!value.is_array() || value.empty()) malformed(key, "an array of schemas");
  std::vector<SchemaId> ids;
  for (size_t i = 0; i < value.size(); ++i) ids.push_back(sources_.child(value[i], at(key) + "/" + std::to_string(i)));
  return ids;
}

std::vector<std::pair<std::string, SchemaId>> SchemaReader::named_children(const std::string& key, const Json& value) {
  if (!value.is_object()) malformed(key, "an object of schemas");
  std::vector<std::pair<std::string, SchemaId>> named;
  for (const auto& [name, schema] : value.items()) {
    named.emplace_back(name, sources_.child(schema, at(key) + "/" + as_pointer_token(name)));
  }
  return named;
}

Schema SchemaReader::read() {
  schema_.pointer = pointer_;
  if (value_.is_boolean()) {
    schema_.never = !value_.get<bool>();
    return std::move(schema_);
  }
  if (!value_.is_object()) {
    throw_error(ErrorKind::usage, "{}: a schema must be an object, true or false", schema_.pointer);
  }
  // Up to draft-07 the siblings of $ref are ignored.
  const auto only = until(Draft::draft7) ? value_.find("$ref") : value_.end();
  if (only != value_.end()) {
    reference("$ref", *only);
    return std::move(schema_);
  }
  for (const auto& [key, value] : value_.items()) keyword(key, value);
  if (excludes_minimum_) std::swap(schema_.at_least, schema_.above);
  if (excludes_maximum_) std::swap(schema_.at_most, schema_.below);
  if (until(Draft::draft2019)) {
    if (const auto items = value_.find("items"); items != value_.end() && items->is_array()) tuple(*items);
  }
  if (since(Draft::draft2019)) unevaluated();
  return std::move(schema_);
}

void SchemaReader::keyword(const std::string& key, const Json& value) {
  const bool is_known = number_keyword(key, value) || string_keyword(key, value) || array_keyword(key, value) ||
                        object_keyword(key, value) || combination(key, value) || reference(key, value) ||
                        annotation(key, value);
  if (is_known) return;
  if (key == "type") {
    types(value);
  } else if (key == "const" && since(Draft::draft6)) {
    constants(key, Json::array({value}));
  } else if (key == "enum") {
    if (!value.is_array()) malformed(key, "an array");
    constants(key, value);
  } else if (key == "$schema") {
    schema_dialect(value);
  } else {
    unknown(at(key));
  }
}

void SchemaReader::unknown(const std::string& where) {
  if (sources_.strict) {
    throw_hint(ErrorKind::unsupported,
               "remove it: the schema's draft of JSON Schema does not define it and would ignore it", "{} is not known",
               where);
  }
  sources_.unknown(where);
}

void SchemaReader::schema_dialect(const Json& value) const {
  const std::string name = string("$schema", value);
  if (draft_named(name)) return;
  throw_error(ErrorKind::unsupported, "{} is '{}'; draft-04, 06, 07, 2019-09 and 2020-12 are supported", at("$schema"),
              name);
}

void SchemaReader::types(const Json& value) {
  const auto names = value.is_string() ? std::vector<std::string>{value.get<std::string>()} : strings("type", value);
  schema_.types = 0;
  bool all_numbers = false;
  for (const std::string& name : names) {
    const auto* const known = std::find(std::begin(type_names), std::end(type_names), name);
    if (known != std::end(type_names)) {
      schema_.types |= static_cast<uint8_t>(1U << (known - std::begin(type_names)));
      all_numbers = all_numbers || name == "number";
    } else if (name == "integer") {
      schema_.types |= 1U << static_cast<int>(JsonType::number);
      schema_.integers = true;
    } else {
      malformed("type", "null, boolean, integer, number, string, array or object, or several of them");
    }
  }
  if (all_numbers) schema_.integers = false;
  schema_.plain_integers = schema_.integers && sources_.draft == Draft::draft4;
}

void SchemaReader::constants(const std::string& key, const Json& values) {
  std::vector<Constant> all;
  for (const Json& value : values) all.push_back(constant(key, value));
  if (!schema_.constants) {
    schema_.constants = std::move(all);
  } else {  // both enum and const: the second becomes a schema in allOf
    Json both = Json::object();
    both["enum"] = values;
    schema_.all_of.push_back(sources_.made(std::move(both), schema_.pointer));
  }
}

Constant SchemaReader::constant(const std::string& key, const Json& value) {
  Constant result;
  const std::string where = schema_.pointer + "/" + key;
  switch (value.type()) {
    case Json::value_t::null: return result;
    case Json::value_t::boolean:
      result.type = JsonType::boolean;
      result.boolean = value.get<bool>();
      return result;
    case Json::value_t::string:
      result.type = JsonType::string;
      result.text = value.get<std::string>();
      return result;
    case Json::value_t::array: {
      result.type = JsonType::array;
      Json made = {{"type", "array"}, {"minItems", value.size()}, {"maxItems", value.size()}};
      if (!value.empty()) made["prefixItems"] = Json::array();
      for (const Json& item : value) made["prefixItems"].push_back(Json::object({{"const", item}}));
      result.structure = sources_.made(std::move(made), where);
      return result;
    }
    case Json::value_t::object: {
      result.type = JsonType::object;
      Json made = {{"type", "object"},
                   {"properties", Json::object()},
                   {"required", Json::array()},
                   {"additionalProperties", false}};
      Json::object_t::Container& properties = made["properties"].get_ref<Json::object_t&>();
      for (const auto& [name, item] : value.items()) {
        // Appended without a lookup: the names are distinct.
        properties.emplace_back(name, Json::object({{"const", item}}));
        made["required"].push_back(name);
      }
      result.structure = sources_.made(std::move(made), where);
      return result;
    }
    default:
      result.type = JsonType::number;
      result.number = Decimal::parse(value.dump());
      return result;
  }
}

bool SchemaReader::number_keyword(const std::string& key, const Json& value) {
  if (key == "minimum") {
    schema_.at_least.push_back(number(key, value));
  } else if (key == "maximum") {
    schema_.at_most.push_back(number(key, value));
  } else if (key == "exclusiveMinimum" || key == "exclusiveMaximum") {
    const bool is_minimum = key == "exclusiveMinimum";
    if (since(Draft::draft6)) {
      (is_minimum ? schema_.above : schema_.below).push_back(number(key, value));
    } else {
      if (!value.is_boolean()) malformed(key, "true or false");
      (is_minimum ? excludes_minimum_ : excludes_maximum_) = value.get<bool>();
    }
  } else if (key == "multipleOf") {
    schema_.multiples.push_back(number(key, value));
  } else {
    return false;
  }
  return true;
}

bool SchemaReader::string_keyword(const std::string& key, const Json& value) {
  if (key == "minLength") {
    schema_.min_length = count(key, value);
  } else if (key == "maxLength") {
    schema_.max_length = count(key, value);
  } else if (key == "pattern") {
    schema_.pattern = string(key, value);
  } else if (key == "format") {
    schema_.format = string(key, value);
    if (!is_format(*schema_.format)) {
      unknown(at(key));
      schema_.format.reset();
    }
  } else {
    return false;
  }
  return true;
}

bool SchemaReader::array_keyword(const std::string& key, const Json& value) {
  if (key == "prefixItems" && since(Draft::draft2020)) {
    schema_.prefix = children(key, value);
  } else if (key == "items") {
    if (!value.is_array() || since(Draft::draft2020)) schema_.items = child(key, value);
  } else if (key == "additionalItems" && until(Draft::draft2019)) {
    return true;  // only applies if `items` is an array: see tuple()
  } else if (key == "contains" && since(Draft::draft6)) {
    schema_.contains = child(key, value);
  } else if (key == "minItems") {
    schema_.min_items = count(key, value);
  } else if (key == "maxItems") {
    schema_.max_items = count(key, value);
  } else if (key == "minContains" && since(Draft::draft2019)) {
    schema_.min_contains = count(key, value);
  } else if (key == "maxContains" && since(Draft::draft2019)) {
    schema_.max_contains = count(key, value);
  } else if (key == "uniqueItems") {
    if (!value.is_boolean()) malformed(key, "true or false");
    schema_.unique = value.get<bool>();
  } else {
    return false;
  }
  return true;
}

bool SchemaReader::object_keyword(const std::string& key, const Json& value) {
  if (key == "properties") {
    schema_.properties = named_children(key, value);
  } else if (key == "patternProperties") {
    schema_.patterns = named_children(key, value);
  } else if (key == "additionalProperties") {
    schema_.additional = child(key, value);
  } else if (key == "propertyNames" && since(Draft::draft6)) {
    schema_.names = child(key, value);
  } else if (key == "required") {
    schema_.required = strings(key, value);
  } else if (key == "minProperties") {
    schema_.min_properties = count(key, value);
  } else if (key == "maxProperties") {
    schema_.max_properties = count(key, value);
  } else if (key == "dependentSchemas" && since(Draft::draft2019)) {
    for (auto& dependent : named_children(key, value)) schema_.dependents.push_back(std::move(dependent));
  } else if (key == "dependencies" || (key == "dependentRequired" && since(Draft::draft2019))) {
    dependents(key, value);
  } else {
    return false;
  }
  return true;
}

// For each property, the names that it requires or (dependencies) a schema. The drafts after 07 leave it to the
// implementation whether to support `dependencies` (2020-12, Core, appendix on compatibility).
void SchemaReader::dependents(const std::string& key, const Json& value) {
  if (!value.is_object()) malformed(key, "an object");
  for (const auto& [name, names] : value.items()) {
    if (key == "dependencies" && !names.is_array()) {
      schema_.dependents.emplace_back(name, sources_.child(names, at(key) + "/" + as_pointer_token(name)));
      continue;
    }
    static_cast<void>(strings(key, names));
    schema_.dependents.emplace_back(name, sources_.made(Json::object({{"required", names}}), at(key)));
  }
}

// An array of item schemas, and additionalItems for the items after them: the form up to 2019-09.
void SchemaReader::tuple(const Json& items) {
  if (!items.empty()) schema_.prefix = children("items", items);
  if (const auto rest = value_.find("additionalItems"); rest != value_.end()) {
    schema_.items = child("additionalItems", *rest);
  }
}

bool SchemaReader::combination(const std::string& key, const Json& value) {
  if (key == "allOf") {
    const auto all = children(key, value);
    schema_.all_of.insert(schema_.all_of.end(), all.begin(), all.end());
  } else if (key == "anyOf") {
    schema_.any_of.push_back(children(key, value));
  } else if (key == "oneOf") {
    schema_.one_of.push_back(children(key, value));
  } else if (key == "not") {
    schema_.negated = child(key, value);
  } else if (key == "if" && since(Draft::draft7)) {
    schema_.condition = child(key, value);
  } else if (key == "then" && since(Draft::draft7)) {
    schema_.consequence = child(key, value);
  } else if (key == "else" && since(Draft::draft7)) {
    schema_.alternative = child(key, value);
  } else {
    return false;
  }
  return true;
}

bool SchemaReader::reference(const std::string& key, const Json& value) {
  const bool is_reference = key == "$ref" || (key == "$recursiveRef" && sources_.draft == Draft::draft2019) ||
                            (key == "$dynamicRef" && since(Draft::draft2020));
  if (is_reference) schema_.all_of.push_back(sources_.named(key, string(key, value), schema_));
  return is_reference;
}

bool SchemaReader::annotation(const std::string& key, const Json& value) const {
  const auto* const known = std::find_if(std::begin(annotations), std::end(annotations),
                                         [&](const Annotation& one) { return one.keyword == key; });
  if (known == std::end(annotations) || !since(known->first) || !until(known->last)) return false;
  if (known->is_text) static_cast<void>(string(key, value));
  return true;
}

// Reads unevaluated* where no adjacent applicator can evaluate anything: they then equal additionalProperties and
// items.
void SchemaReader::unevaluated() {
  const bool is_alone = schema_.all_of.empty() && schema_.any_of.empty() && schema_.one_of.empty() &&
                        !schema_.negated && !schema_.condition && schema_.dependents.empty();
  const auto refuse = [&](const char* key) {
    throw_hint(ErrorKind::unsupported, "list the properties in one schema, with additionalProperties or items",
               "{} is not supported together with $ref, allOf, anyOf, oneOf, not, if, dependentSchemas or contains",
               at(key));
  };
  if (const auto rest = value_.find("unevaluatedProperties"); rest != value_.end()) {
    const bool is_empty = rest->is_boolean() && rest->get<bool>();
    if (!is_alone && !is_empty) refuse("unevaluatedProperties");
    if (!schema_.additional) schema_.additional = child("unevaluatedProperties", *rest);
  }
  if (const auto rest = value_.find("unevaluatedItems"); rest != value_.end()) {
    const bool is_empty = rest->is_boolean() && rest->get<bool>();
    if ((!is_alone || schema_.contains) && !is_empty) refuse("unevaluatedItems");
    if (!schema_.items) schema_.items = child("unevaluatedItems", *rest);
  }
}

}  // namespace ingot::grammar

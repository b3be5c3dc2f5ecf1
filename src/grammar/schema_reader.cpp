#include "grammar/schema_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/schema_uri.h"

namespace ingot::grammar {

namespace {

constexpr const char* type_names[] = {"null", "boolean", "number", "string", "array", "object"};

bool is_one_of(const std::string& key, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return key == name; });
}

}  // namespace

std::string SchemaReader::at(const std::string& key) const { return schema_.pointer + "/" + as_pointer_token(key); }

void SchemaReader::malformed(const std::string& key, const char* wanted) const {
  throw_error(ErrorKind::usage, "the schema's {} must be {}", at(key), wanted);
}

int64_t SchemaReader::count(const std::string& key, const Json& value) const {
  const bool is_whole = value.is_number() && value.get<double>() >= 0 && value.get<double>() < 9e15 &&
                        value.get<double>() == static_cast<double>(value.get<int64_t>());
  if (!is_whole) malformed(key, "a whole number from 0 on");
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
    throw_error(ErrorKind::usage, "{}: a schema is an object, true or false", schema_.pointer);
  }
  for (const auto& [key, value] : value_.items()) keyword(key, value);
  unevaluated();
  return std::move(schema_);
}

void SchemaReader::keyword(const std::string& key, const Json& value) {
  const bool is_known = number_keyword(key, value) || string_keyword(key, value) || array_keyword(key, value) ||
                        object_keyword(key, value) || combination(key, value) || annotation(key, value);
  if (is_known) return;
  if (key == "type") {
    types(value);
  } else if (key == "const") {
    constants(Json::array({value}));
  } else if (key == "enum") {
    if (!value.is_array()) malformed(key, "an array");
    constants(value);
  } else if (key == "$schema") {
    schema_dialect(value);
  } else if (is_one_of(key, {"$dynamicRef", "$recursiveRef", "$recursiveAnchor", "additionalItems", "dependencies"})) {
    throw_hint(ErrorKind::unsupported, "docs/grammar.md lists the keywords that are", "{} is not supported", at(key));
  } else if (!sources_.ignore_unknown) {
    throw_hint(ErrorKind::unsupported, "leave it out: draft 2020-12 does not know it either, and would ignore it",
               "{} is not supported", at(key));
  }
}

void SchemaReader::schema_dialect(const Json& value) const {
  const std::string name = string("$schema", value);
  for (const char* known : {"/draft-06/schema", "/draft-07/schema", "/draft/2019-09/schema", "/draft/2020-12/schema"}) {
    if (name.find(known) != std::string::npos) return;
  }
  throw_error(ErrorKind::unsupported, "{} is '{}'; schemas of draft 2020-12 are supported", at("$schema"), name);
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
}

void SchemaReader::constants(const Json& values) {
  std::vector<Constant> all;
  for (const Json& value : values) all.push_back(constant(value));
  if (!schema_.constants) {
    schema_.constants = std::move(all);
  } else {  // both enum and const: a schema of its own for the second
    Json both = Json::object();
    both["enum"] = values;
    schema_.all_of.push_back(sources_.made(std::move(both), schema_.pointer));
  }
}

Constant SchemaReader::constant(const Json& value) {
  Constant result;
  const std::string where = schema_.pointer + "/enum";
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
      for (const auto& [name, item] : value.items()) {
        made["properties"][name] = Json::object({{"const", item}});
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
  } else if (key == "exclusiveMinimum") {
    schema_.above.push_back(number(key, value));
  } else if (key == "exclusiveMaximum") {
    schema_.below.push_back(number(key, value));
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
  } else {
    return false;
  }
  return true;
}

bool SchemaReader::array_keyword(const std::string& key, const Json& value) {
  if (key == "prefixItems") {
    schema_.prefix = children(key, value);
  } else if (key == "items") {
    schema_.items = child(key, value);
  } else if (key == "contains") {
    schema_.contains = child(key, value);
  } else if (key == "minItems") {
    schema_.min_items = count(key, value);
  } else if (key == "maxItems") {
    schema_.max_items = count(key, value);
  } else if (key == "minContains") {
    schema_.min_contains = count(key, value);
  } else if (key == "maxContains") {
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
  } else if (key == "propertyNames") {
    schema_.names = child(key, value);
  } else if (key == "required") {
    schema_.required = strings(key, value);
  } else if (key == "minProperties") {
    schema_.min_properties = count(key, value);
  } else if (key == "maxProperties") {
    schema_.max_properties = count(key, value);
  } else if (key == "dependentSchemas") {
    for (auto& dependent : named_children(key, value)) schema_.dependents.push_back(std::move(dependent));
  } else if (key == "dependentRequired") {
    if (!value.is_object()) malformed(key, "an object of arrays of strings");
    for (const auto& [name, names] : value.items()) {
      static_cast<void>(strings(key, names));
      const SchemaId required = sources_.made(Json::object({{"required", names}}), at(key));
      schema_.dependents.emplace_back(name, required);
    }
  } else {
    return false;
  }
  return true;
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
  } else if (key == "if") {
    schema_.condition = child(key, value);
  } else if (key == "then") {
    schema_.consequence = child(key, value);
  } else if (key == "else") {
    schema_.alternative = child(key, value);
  } else if (key == "$ref") {
    schema_.all_of.push_back(sources_.named(string(key, value), schema_));
  } else {
    return false;
  }
  return true;
}

// Keywords that say nothing about instances. The content keywords are annotations in this draft (Validation, section
// 8).
bool SchemaReader::annotation(const std::string& key, const Json& value) const {
  if (key == "$id" || key == "$anchor" || key == "$dynamicAnchor") {
    static_cast<void>(string(key, value));
    return true;
  }
  return is_one_of(key, {"$defs", "definitions", "$comment", "$vocabulary", "title", "description", "default",
                         "deprecated", "readOnly", "writeOnly", "examples", "contentEncoding", "contentMediaType",
                         "contentSchema", "unevaluatedItems", "unevaluatedProperties"});
}

// What unevaluated* say where no other schema in the same place can evaluate anything.
void SchemaReader::unevaluated() {
  const bool is_alone = schema_.all_of.empty() && schema_.any_of.empty() && schema_.one_of.empty() &&
                        !schema_.negated && !schema_.condition && schema_.dependents.empty();
  const auto refuse = [&](const char* key) {
    throw_hint(ErrorKind::unsupported, "list the properties in one schema, with additionalProperties or items",
               "{} is not supported beside $ref, allOf, anyOf, oneOf, not, if, dependentSchemas and contains", at(key));
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

#include "server/constraint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "grammar/grammar.h"
#include "server/fields.h"

namespace ingot::server {

namespace {

using Kind = Constraint::Kind;

constexpr size_t max_grammar = 256 << 10;  // bytes; a grammar of a file may have more
constexpr size_t max_texts = 256 << 10;    // bytes of all texts of a choice
constexpr size_t max_alternatives = 4096;

// The text of a regular expression or a grammar.
std::string bounded(Kind kind, std::string text, const std::string& path) {
  const size_t max_bytes = kind == Kind::regex ? grammar::max_pattern_bytes : max_grammar;
  if (text.empty() || text.size() > max_bytes) {
    throw bad_field(path, "invalid_value", fmt::format("'{}' must have from 1 to {} bytes.", path, max_bytes));
  }
  return text;
}

// A schema as a JSON value or as JSON in a string: vLLM accepts both.
Constraint schema_of(const Json& value) {
  return {Kind::json_schema, value.is_string() ? value.get<std::string>() : value.dump(), {}};
}

Constraint choice_of(const Json& list, const std::string& path) {
  Constraint constraint{Kind::choice, {}, {}};
  size_t bytes = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    constraint.choices.push_back(text_at(list[i], fmt::format("{}[{}]", path, i)));
    bytes += constraint.choices.back().size();
  }
  if (bytes > max_texts) {
    throw bad_field(path, "invalid_value",
                    fmt::format("The texts of '{}' have {} bytes; at most {}.", path, bytes, max_texts));
  }
  return constraint;
}

// Reads the constraints of these members; `prefix` precedes their names.
void read_members(Fields& fields, const std::string& prefix, std::vector<ConstraintField>& found) {
  const auto add = [&](Constraint constraint, const std::string& name) {
    found.push_back({std::move(constraint), fields.path_of(name)});
  };
  const auto named = [&](const char* name) { return prefix + name; };
  if (const Json* schema = fields.any(named("json").c_str())) add(schema_of(*schema), named("json"));
  const auto text = [&](const char* name, Kind kind) {
    if (std::optional<std::string> value = fields.text(named(name).c_str())) {
      add({kind, bounded(kind, *std::move(value), fields.path_of(named(name))), {}}, named(name));
    }
  };
  text("regex", Kind::regex);
  text("grammar", Kind::grammar);
  if (const Json* list = fields.array(named("choice").c_str(), 1, max_alternatives)) {
    add(choice_of(*list, fields.path_of(named("choice"))), named("choice"));
  }
  if (fields.boolean(named("json_object").c_str()).value_or(false))
    add({Kind::json_object, {}, {}}, named("json_object"));
}

void read_response_format(Fields& fields, std::vector<ConstraintField>& found) {
  const Json* value = fields.object("response_format");
  if (!value) return;
  Fields inner(*value, "response_format");
  inner.needed_text("type");
  const std::string type = *inner.word("type", {"text", "json_object", "json_schema", "regex", "grammar"});
  Constraint constraint;
  if (type == "json_object") constraint.kind = Kind::json_object;
  if (type == "json_schema") {
    Fields schema(inner.needed_object("json_schema"), "response_format.json_schema");
    constraint = json_schema_constraint(schema);
    schema.finish();
  }
  if (type == "regex" || type == "grammar") {
    const Kind kind = type == "regex" ? Kind::regex : Kind::grammar;
    constraint = {kind, bounded(kind, inner.needed_text(type.c_str()), inner.path_of(type)), {}};
  }
  inner.finish();
  if (constraint.kind != Kind::none) found.push_back({std::move(constraint), "response_format"});
}

void read_structured_outputs(Fields& fields, std::vector<ConstraintField>& found) {
  const Json* value = fields.object("structured_outputs");
  if (!value) return;
  const size_t before = found.size();
  Fields inner(*value, "structured_outputs");
  read_members(inner, "", found);
  inner.ignore({"disable_fallback"});  // there is no fallback
  inner.finish();
  if (found.size() == before) {
    throw bad_field("structured_outputs", "invalid_value",
                    "'structured_outputs' needs one of: json, json_object, regex, choice, grammar.");
  }
}

}  // namespace

ConstraintField constraint_of(Fields& fields) {
  std::vector<ConstraintField> found;
  read_response_format(fields, found);
  read_structured_outputs(fields, found);
  read_members(fields, "guided_", found);
  fields.ignore({"guided_decoding_backend"});  // selects among vLLM's own backends
  if (found.size() > 1) {
    throw bad_field(
        found[1].param, "invalid_value",
        fmt::format("'{}' and '{}' both constrain the output; give only one.", found[0].param, found[1].param));
  }
  return found.empty() ? ConstraintField() : std::move(found.front());
}

Constraint json_schema_constraint(Fields& format) {
  const std::string name = format.needed_text("name");
  const bool named =
      !name.empty() && name.size() <= 64 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string::npos;
  if (!named) {
    throw bad_field(format.path_of("name"), "invalid_value",
                    fmt::format("'{}' must be 1 to 64 letters, digits, '_' and '-'.", format.path_of("name")));
  }
  format.text("description");
  const bool strict = format.boolean("strict").value_or(false);
  const bool in_order = format.boolean("in_order").value_or(false);
  const Json* schema = format.any("schema");
  return {Kind::json_schema, schema ? schema->dump() : "{}", {}, strict, in_order};
}

}  // namespace ingot::server

// Guided decoding: the constraint on an output. From response_format of OpenAI, guided_* and structured_outputs of
// vLLM.
#pragma once

#include <string>
#include <vector>

namespace ingot::server {

class Fields;

struct Constraint {
  enum class Kind {
    none,
    json_object,  // any JSON object
    json_schema,  // JSON that matches this schema
    regex,        // a text that fully matches a regular expression of grammar/regex.h
    grammar,      // a text of a GBNF grammar
    choice,       // one of `choices`
  };
  Kind kind = Kind::none;
  std::string text;                  // the schema as JSON, the expression or the grammar
  std::vector<std::string> choices;  // of Kind::choice
  bool strict = false;               // of a schema: refuse keywords and formats that its draft does not know
  bool in_order = false;             // of a schema: properties must be in its order
  bool operator==(const Constraint&) const = default;
};

// A constraint, and the request field that it came from.
struct ConstraintField {
  Constraint constraint;
  std::string param = "response_format";
};

// The constraint that a body's fields ask for. Errors: ApiError, also when several fields ask for one.
ConstraintField constraint_of(Fields& fields);

// Reads {"name", "description"?, "schema"?, "strict"?, "in_order"?} of a response_format (its `json_schema`) or of
// text.format. The caller reads the other members of `format`.
Constraint json_schema_constraint(Fields& format);

}  // namespace ingot::server

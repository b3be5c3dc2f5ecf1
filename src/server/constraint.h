// What an output must be, beyond the model's own wish: response_format of OpenAI, guided_* and structured_outputs of
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
    json_schema,  // a JSON text of this schema
    regex,        // a text that a regular expression of grammar/regex.h matches from end to end
    grammar,      // a text of a grammar in GBNF
    choice,       // one of the texts
  };
  Kind kind = Kind::none;
  std::string text;                  // the schema as JSON, the expression or the grammar
  std::vector<std::string> choices;  // of Kind::choice
  bool strict = false;               // of a schema: keywords and formats that its draft does not know are refused
  bool in_order = false;             // of a schema: properties come in its order
  bool operator==(const Constraint&) const = default;
};

// A constraint, and the field that it came from.
struct ConstraintField {
  Constraint constraint;
  std::string param = "response_format";
};

// The one that a body's fields ask for. Errors: ApiError; where several fields ask for one, too.
ConstraintField constraint_of(Fields& fields);

// {"name", "description"?, "schema"?, "strict"?, "in_order"?} of a response_format (there below `json_schema`) or of
// text.format. Members that `format` has besides are its caller's.
Constraint json_schema_constraint(Fields& format);

}  // namespace ingot::server

// Combinations of schemas as alternatives without keywords like anyOf: one list of conditions each, of one type of
// JSON.
//
// All that combines schemas (allOf, anyOf, oneOf, not, if, dependentSchemas, $ref) becomes "and", "or" and "not" over
// the conditions of single schemas, and those of one type are kept in a form in which "and" and "not" can be done:
// languages for texts and numbers; for arrays and objects, a conjunction of schemas for each place.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/schema.h"

namespace ingot::grammar {

// Schemas that hold at once: 2 * id, or 2 * id + 1 where the schema must not hold. In the order of the document.
using Conjunction = std::vector<int32_t>;

inline int32_t holds(SchemaId id) { return 2 * id; }
inline int32_t fails(SchemaId id) { return 2 * id + 1; }

void add_to(Conjunction& all, int32_t literal);
void add_to(Conjunction& all, const Conjunction& more);

// One alternative of a combination, of one type.
struct Case {
  uint8_t booleans = 3;                 // bit 0: false may come, bit 1: true
  TermId language = TermPool::nothing;  // of numbers, or of strings without quotes, as `expand` finds it

  // Numbers: languages as in grammar/number.h.
  std::vector<TermId> numbers;
  bool integers_only = false;
  int64_t digits = integer_digits;
  bool is_exact = false;                       // conditions that hold in decimals might not in doubles
  bool has_exponents = true;                   // numbers with an exponent may come
  std::optional<std::vector<Decimal>> values;  // only these

  // Strings: languages of what is inside the quotes.
  std::vector<TermId> texts;
  int64_t min_length = 0, max_length = unlimited;

  // Arrays.
  struct Contained {
    Conjunction items;  // one schema
    int64_t min, max;
    std::string pointer;
  };
  std::vector<Conjunction> prefix;
  Conjunction rest;
  int64_t min_items = 0, max_items = unlimited;
  std::vector<Contained> contained;
  std::string unique;  // the pointer of uniqueItems, or empty

  // Objects: named properties in order, and classes of all other names, which have no name in common.
  struct Property {
    std::string name;
    Conjunction value;
    bool required = false;
  };
  struct Names {
    TermId language;
    Conjunction value;
  };
  std::vector<Property> properties;
  std::vector<Names> others = {{TermPool::anything, {}}};
  int64_t min_properties = 0, max_properties = unlimited;
  struct Need {  // a property must be there whose name is in the language and whose value meets the schemas
    TermId language;
    Conjunction value;
  };
  std::vector<Need> needs;
};

class CaseExpander {
 public:
  CaseExpander(Automaton& automaton, SchemaSet& schemas, const JsonOptions& options);

  // The alternatives of a combination for instances of one type; those that are found to be impossible are left out.
  // Errors: unsupported for a condition whose opposite is needed and not known, with its pointer; resource, also where
  // compiling takes longer than the options allow.
  std::vector<Case> expand(const Conjunction& all, JsonType type);

  // Whether no instance meets all of them; false where that takes more to find out.
  bool impossible(const Conjunction& all);

  // The texts in which a pattern is found. Errors: with the pointer.
  TermId pattern(const std::string& text, const std::string& pointer);

  // Whether a language of UTF-8 has the name.
  bool contains(TermId language, const std::string& name);

  // Names that meet the conditions on strings, inside the quotes.
  TermId name_language(SchemaId names, bool negated);

  // The language of a case's numbers. Conditions that contradict give `nothing`.
  TermId number_language(const Case& one, bool canonical);

  // What a name that is not among the case's properties must meet.
  Conjunction value_of(const Case& one, const std::string& name);

  TermId any_text() const { return any_text_; }  // of UTF-8

 private:
  struct Alternative;  // conditions and further schemas
  struct Pending;      // what an expansion has still to look at
  using Alternatives = std::vector<Alternative>;

  void expand(Case one, Pending pending, std::vector<Case>& out);
  bool apply(int32_t literal, Case& one, Pending& pending);
  bool apply_positive(const Schema& schema, Case& one, Pending& pending);
  bool apply_constants(const Schema& schema, Case& one, Pending& pending);
  void apply_numbers(const Schema& schema, Case& one);
  void apply_strings(const Schema& schema, Case& one);
  void apply_array(const Schema& schema, Case& one);
  void apply_object(const Schema& schema, Case& one);
  void apply_names(const Schema& schema, Case& one);
  void combine(const Schema& schema, Pending& pending);
  void one_of(const std::vector<SchemaId>& schemas, Pending& pending);

  // The ways in which an instance of the type can fail a schema (schema_opposites.cpp). False: it does anyway.
  bool opposites(const Schema& schema, Alternatives& out);
  bool opposite_of_constants(const std::vector<Constant>& constants, Alternatives& out);
  void opposite_of_numbers(const Schema& schema, Alternatives& out);
  void opposite_of_strings(const Schema& schema, Alternatives& out);
  void opposite_of_array(const Schema& schema, Alternatives& out);
  void opposite_of_object(const Schema& schema, Alternatives& out);
  void opposite_of_names(const Schema& schema, Alternatives& out);
  void opposite_of_combinations(const Schema& schema, Alternatives& out);

  void check_time() const;
  TermId string_language(const Case& one);
  bool merge(const Case& from, Case& into);
  bool possible(Case& one, JsonType type);
  Case::Property& property(Case& one, const std::string& name);
  void split(Case& one, TermId language, const Conjunction& inside, const Conjunction& outside);
  TermId text_literals(const std::vector<Constant>& constants);

  Automaton& automaton_;
  SchemaSet& schemas_;
  const JsonOptions& options_;
  TermId any_text_;
  std::map<std::string, TermId> patterns_;
  std::map<Conjunction, bool> impossible_;  // found out so far
  JsonType type_ = JsonType::null;          // of the expansion under way
  int depth_ = 0;
  int nested_ = 0;
  int64_t steps_ = 0;
  double until_ = 0;  // by options_.seconds
};

}  // namespace ingot::grammar

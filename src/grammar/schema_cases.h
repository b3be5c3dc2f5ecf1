// Combinations of schemas in disjunctive normal form, for one JSON type at a time: each alternative (Case) is a list of
// conditions without applicators such as anyOf.
//
// All keywords that combine schemas (allOf, anyOf, oneOf, not, if, dependentSchemas, $ref) become "and", "or" and "not"
// over the conditions of single schemas. The conditions of one type are represented so that "and" and "not" can be
// computed: languages for strings and numbers; for arrays and objects, a conjunction of schemas for each position.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/schema.h"

namespace ingot::grammar {

// A conjunction of literals: 2 * id where schema `id` must hold, 2 * id + 1 where it must not. In the order of the
// document.
using Conjunction = std::vector<int32_t>;

inline int32_t holds(SchemaId id) { return 2 * id; }
inline int32_t fails(SchemaId id) { return 2 * id + 1; }

void add_to(Conjunction& all, int32_t literal);
void add_to(Conjunction& all, const Conjunction& more);

// One alternative of a combination, for one type.
struct Case {
  uint8_t booleans = 3;                 // bit 0: false is allowed, bit 1: true is
  TermId language = TermPool::nothing;  // of the numbers' texts, or of the strings without quotes; set by `expand`

  // Numbers: the languages of the conditions (grammar/number.h), to be intersected.
  std::vector<TermId> numbers;
  bool integers_only = false;
  int64_t digits = integer_digits;  // max digits of an integer
  bool is_exact = false;            // max 15 digits in non-integers, so that doubles and decimals compare alike
  bool has_exponents = true;        // exponents are allowed
  std::optional<std::vector<Decimal>> values;  // if set, only these values

  // Strings: languages of the unescaped text, to be intersected.
  std::vector<TermId> texts;
  int64_t min_length = 0, max_length = unlimited;

  // Arrays.
  struct Contained {
    Conjunction items;  // a single literal
    int64_t min, max;
    std::string pointer;
  };
  std::vector<Conjunction> prefix;
  Conjunction rest;
  int64_t min_items = 0, max_items = unlimited;
  std::vector<Contained> contained;
  std::string unique;  // the pointer of uniqueItems; empty: not required

  // Objects: named properties in order, and disjoint classes of all other names.
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
  struct Need {  // some property must exist whose name is in the language and whose value satisfies the schemas
    TermId language;
    Conjunction value;
  };
  std::vector<Need> needs;
};

class DnfExpander {
 public:
  DnfExpander(Automaton& automaton, SchemaSet& schemas, const JsonOptions& options);

  // The alternatives of a combination for instances of one type, without those that are found to be unsatisfiable.
  // Errors: unsupported for a condition whose negation is needed but not supported, with its pointer; resource, also
  // when compiling takes longer than the options allow.
  std::vector<Case> expand(const Conjunction& all, JsonType type);

  // Whether no instance satisfies the conjunction; false also where that is too expensive to decide.
  bool impossible(const Conjunction& all);

  // The texts that contain a match of the pattern. Errors: those of pattern_language, with the pointer.
  TermId pattern(const std::string& text, const std::string& pointer);

  // Whether a language contains the name, in UTF-8.
  bool contains(TermId language, const std::string& name);

  // The language of the property names that, as strings, satisfy the schema `names` (`negated`: violate it). Without
  // quotes.
  TermId name_language(SchemaId names, bool negated);

  // The language of a case's numbers; `nothing` when the conditions contradict each other. `canonical`: with one text
  // for each value.
  TermId number_language(const Case& one, bool canonical);

  // The schemas for the value of a name that is not among the case's named properties.
  Conjunction value_of(const Case& one, const std::string& name);

  TermId any_text() const { return any_text_; }  // any valid UTF-8

 private:
  struct Alternative;  // conditions and further literals
  struct Pending;      // the part of an expansion that is still to be processed
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

  // Appends the alternatives that violate the schema, for instances of type_ (schema_opposites.cpp). Returns false when
  // every instance of the type violates it.
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
  std::map<Conjunction, bool> impossible_;  // results so far
  JsonType type_ = JsonType::null;          // of the current expansion
  int depth_ = 0;
  int nested_ = 0;
  int64_t steps_ = 0;
  double until_ = 0;  // deadline, by options_.seconds
};

}  // namespace ingot::grammar

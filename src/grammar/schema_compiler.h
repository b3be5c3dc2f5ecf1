// Compiles JSON Schemas to rules: one rule for each combination of schemas that a value must satisfy.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "grammar/json_terms.h"
#include "grammar/schema_cases.h"

namespace ingot::grammar {

class SchemaCompiler {
 public:
  SchemaCompiler(Automaton& automaton, SchemaSet& schemas, const JsonOptions& options);

  // The texts of all values that satisfy the schemas. Errors: those of compile_json_schema.
  TermId compile(const Conjunction& all);

 private:
  TermId value(const Conjunction& all);
  TermId body(const Conjunction& all);
  TermId scalar(const Case& one, JsonType type);

  // schema_arrays.cpp
  TermId array(const Case& one);
  TermId elements(const Case& one);
  TermId counted_elements(const Case& one);
  TermId distinct_elements(const Case& one);
  TermId scalar_texts(const Conjunction& all, const std::string& pointer);

  // schema_objects.cpp
  TermId object(const Case& one);
  void add_property(const Case& one, size_t property, ObjectShape& shape);
  void add_others(const Case& one, ObjectShape& shape);

  Automaton& automaton_;
  TermPool& terms_;
  const JsonOptions& options_;
  DnfExpander cases_;
  JsonTerms json_;
  std::map<Conjunction, TermId> rules_;
  std::vector<std::pair<TermId, Conjunction>> waiting_;  // rules without a body yet
};

}  // namespace ingot::grammar

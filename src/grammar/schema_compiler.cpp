#include "grammar/schema_compiler.h"

#include "base/error.h"
#include "grammar/grammar.h"

namespace ingot::grammar {

SchemaCompiler::SchemaCompiler(Automaton& automaton, SchemaSet& schemas, const JsonOptions& options)
    : automaton_(automaton),
      terms_(automaton.terms),
      options_(options),
      cases_(automaton, schemas, options),
      json_(automaton, options.whitespace) {}

TermId SchemaCompiler::compile(const Conjunction& all) {
  const TermId start = value(all);
  while (!waiting_.empty()) {
    const auto [rule, schemas] = std::move(waiting_.back());
    waiting_.pop_back();
    terms_.define(rule, body(schemas));
  }
  return terms_.sequence(json_.space, start);
}

TermId SchemaCompiler::value(const Conjunction& all) {
  const auto [at, is_new] = rules_.try_emplace(all, TermPool::nothing);
  if (!is_new) return at->second;
  if (static_cast<int64_t>(rules_.size()) > options_.max_schemas) {
    throw_hint(ErrorKind::resource, "use fewer combinations of schemas",
               "the schema expands to more than {} combinations of schemas", options_.max_schemas);
  }
  at->second = terms_.declare();
  waiting_.emplace_back(at->second, all);
  return at->second;
}

TermId SchemaCompiler::body(const Conjunction& all) {
  std::vector<TermId> parts;
  for (const JsonType type : json_types) {
    for (const Case& one : cases_.expand(all, type)) {
      if (type == JsonType::array) {
        parts.push_back(array(one));
      } else if (type == JsonType::object) {
        parts.push_back(object(one));
      } else {
        parts.push_back(scalar(one, type));
      }
    }
  }
  return terms_.choice(parts);
}

TermId SchemaCompiler::scalar(const Case& one, JsonType type) {
  if (type == JsonType::null) return terms_.literal("null");
  if (type == JsonType::boolean) {
    return terms_.choice((one.booleans & 1) != 0 ? terms_.literal("false") : TermPool::nothing,
                         (one.booleans & 2) != 0 ? terms_.literal("true") : TermPool::nothing);
  }
  if (type == JsonType::number) return terms_.unit(one.language);
  const bool is_free = one.texts.empty() && one.min_length == 0 && one.max_length == unlimited;
  return is_free ? json_.free_text : json_.quoted(one.language);
}

GrammarPtr compile_json_schema(std::string_view schema, const JsonOptions& options, std::vector<std::string>* unknown) {
  Automaton automaton;
  SchemaSet schemas(schema, options);
  SchemaCompiler compiler(automaton, schemas, options);
  const TermId start = automaton.finish(compiler.compile({holds(schemas.root())}));
  if (unknown) *unknown = schemas.unknown();
  if (start == TermPool::nothing) throw_error(ErrorKind::usage, "no value satisfies the schema");
  return std::make_shared<const Grammar>(std::move(automaton), start);
}

GrammarPtr any_json(const JsonOptions& options) { return compile_json_schema(R"({"type": "object"})", options); }

}  // namespace ingot::grammar

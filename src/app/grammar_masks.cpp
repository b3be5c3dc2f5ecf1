#include "app/grammar_masks.h"

#include <algorithm>

#include "infer/grammar_mask.h"

namespace ingot::app {

std::shared_ptr<infer::TokenMask> GrammarMasks::json_schema(std::string_view schema) {
  {
    const auto kept = kept_.lock();
    const auto found = std::ranges::find(*kept, schema, &Kept::schema);
    if (found != kept->end()) {
      kept->splice(kept->begin(), *kept, found);
      return std::make_shared<infer::GrammarMask>(found->grammar);
    }
  }
  // Not under the lock: others' requests go on meanwhile. Two that ask for the same at once compile it twice.
  auto grammar = std::make_shared<const grammar::TokenGrammar>(grammar::compile_json_schema(schema), vocabulary_);
  const auto kept = kept_.lock();
  kept->push_front({std::string(schema), grammar});
  if (kept->size() > most_kept) kept->pop_back();
  return std::make_shared<infer::GrammarMask>(std::move(grammar));
}

std::shared_ptr<infer::TokenMask> GrammarMasks::any_json_object() { return json_schema(R"({"type": "object"})"); }

}  // namespace ingot::app

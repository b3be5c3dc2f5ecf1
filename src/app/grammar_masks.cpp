#include "app/grammar_masks.h"

#include <algorithm>

#include "infer/grammar_mask.h"

namespace ingot::app {

namespace {

// Whoever may ask may send any schema.
const grammar::JsonOptions limits = {.max_text = 256 << 10, .max_cases = 1024, .max_schemas = 5'000, .max_seconds = 2};

}  // namespace

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
  auto grammar =
      std::make_shared<const grammar::TokenGrammar>(grammar::compile_json_schema(schema, limits), vocabulary_);
  const auto kept = kept_.lock();
  kept->push_front({std::string(schema), grammar});
  size_t bytes = 0;
  for (auto each = kept->begin(); each != kept->end();) {
    bytes += each->schema.size() + each->grammar->bytes();
    const bool fits = each == kept->begin() || bytes <= most_bytes;
    each = fits ? std::next(each) : kept->erase(each);
  }
  if (kept->size() > most_kept) kept->pop_back();
  return std::make_shared<infer::GrammarMask>(std::move(grammar));
}

std::shared_ptr<infer::TokenMask> GrammarMasks::any_json_object() { return json_schema(R"({"type": "object"})"); }

}  // namespace ingot::app

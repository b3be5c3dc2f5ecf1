#include "app/grammar_masks.h"

#include <algorithm>

#include "base/error.h"
#include "infer/grammar_mask.h"

namespace ingot::app {

namespace {

// Whoever may ask may send any schema.
const grammar::JsonOptions limits = {.max_text = 256 << 10, .max_cases = 1024, .max_schemas = 5'000, .max_seconds = 2};

grammar::GrammarPtr compiled(const server::Constraint& constraint) {
  grammar::JsonOptions options = limits;
  options.strict = constraint.strict;
  options.in_order = constraint.in_order;
  using Kind = server::Constraint::Kind;
  switch (constraint.kind) {
    case Kind::json_object: return grammar::any_json(limits);
    case Kind::json_schema: return grammar::compile_json_schema(constraint.text, options);
    case Kind::regex: return grammar::compile_regex(constraint.text);
    case Kind::grammar: return grammar::compile_ebnf(constraint.text);
    case Kind::choice: return grammar::compile_choice(constraint.choices);
    case Kind::none: break;
  }
  throw_error(ErrorKind::internal, "a mask for an output that may be anything");
}

size_t bytes_of(const server::Constraint& constraint) {
  size_t bytes = constraint.text.size();
  for (const std::string& choice : constraint.choices) bytes += choice.size() + sizeof(std::string);
  return bytes;
}

}  // namespace

std::shared_ptr<infer::TokenMask> GrammarMasks::mask(const server::Constraint& constraint) {
  {
    const auto kept = kept_.lock();
    const auto found = std::ranges::find(*kept, constraint, &Kept::constraint);
    if (found != kept->end()) {
      kept->splice(kept->begin(), *kept, found);
      return std::make_shared<infer::GrammarMask>(found->grammar);
    }
  }
  // Not under the lock: others' requests go on meanwhile. Two that ask for the same at once compile it twice.
  auto grammar = std::make_shared<const grammar::TokenGrammar>(compiled(constraint), vocabulary_);
  // What is too large for a mask at its very beginning is refused here, and does not fail in the engine.
  std::vector<uint32_t> bits(vocabulary_->num_words());
  grammar::Matcher(grammar).fill_mask(bits);
  const auto kept = kept_.lock();
  kept->push_front({constraint, bytes_of(constraint), grammar});
  size_t bytes = 0;
  for (auto each = kept->begin(); each != kept->end();) {
    bytes += each->bytes + each->grammar->bytes();
    const bool fits = each == kept->begin() || bytes <= max_bytes;
    each = fits ? std::next(each) : kept->erase(each);
  }
  if (kept->size() > most_kept) kept->pop_back();
  return std::make_shared<infer::GrammarMask>(std::move(grammar));
}

}  // namespace ingot::app

#include "server/grammar_masks.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "infer/grammar_mask.h"

namespace ingot::server {

namespace {

// Clients may send any schema, and all outputs wait while one output's mask is computed. A walk over the whole
// vocabulary takes as many steps as its trie has nodes; for MaskBench's schemas (600 of them, SmolLM2's vocabulary) a
// mask takes at most 4.6 walks and 2,535 rows, an output 152 walks plus a fifth of a walk for each of its tokens.
grammar::StateLimits mask_limits(const grammar::Vocabulary& vocabulary) {
  const auto nodes = std::ssize(vocabulary.nodes());
  return {.mask_visits = 100'000 + 8 * nodes,
          .mask_rows = 10'000,
          .output_visits = 1'000'000 + 300 * nodes,
          .token_visits = 1'000 + nodes / 5};
}

// Limits for compiling a client's schema.
const grammar::JsonOptions limits = {.max_text = 256 << 10, .max_cases = 1024, .max_schemas = 5'000, .max_seconds = 2};

grammar::GrammarPtr compiled(const Constraint& constraint) {
  grammar::JsonOptions options = limits;
  options.strict = constraint.strict;
  options.in_order = constraint.in_order;
  using Kind = Constraint::Kind;
  switch (constraint.kind) {
    case Kind::json_object: return grammar::any_json(limits);
    case Kind::json_schema: return grammar::compile_json_schema(constraint.text, options);
    case Kind::regex: return grammar::compile_regex(constraint.text);
    case Kind::grammar: return grammar::compile_ebnf(constraint.text);
    case Kind::choice: return grammar::compile_choice(constraint.choices);
    case Kind::none: break;
  }
  throw_error(ErrorKind::internal, "a mask was requested for an unconstrained output");
}

size_t bytes_of(const Constraint& constraint) {
  size_t bytes = constraint.text.size();
  for (const std::string& choice : constraint.choices) bytes += choice.size() + sizeof(std::string);
  return bytes;
}

}  // namespace

std::shared_ptr<const grammar::TokenGrammar> GrammarMasks::cached(const Constraint& constraint) {
  const auto cache = cache_.lock();
  const auto found = std::ranges::find(*cache, constraint, &Entry::constraint);
  if (found == cache->end()) return nullptr;
  cache->splice(cache->begin(), *cache, found);
  return found->grammar;
}

// Grammars grow while outputs use them. Their sizes are read without the cache's lock, because the engine may be using
// them.
void GrammarMasks::insert(Entry entry) {
  std::list<Entry> evicted;  // also freed without the lock
  std::vector<std::shared_ptr<const grammar::TokenGrammar>> grammars;
  {
    const auto cache = cache_.lock();
    cache->push_front(std::move(entry));
    if (cache->size() > max_cached) evicted.splice(evicted.end(), *cache, std::prev(cache->end()));
    for (const Entry& each : *cache) grammars.push_back(each.grammar);
  }
  std::map<const grammar::TokenGrammar*, size_t> sizes;
  for (const auto& grammar : grammars) sizes[grammar.get()] = grammar->bytes();
  const auto cache = cache_.lock();
  size_t bytes = 0;
  for (auto each = cache->begin(); each != cache->end();) {
    bytes += each->bytes + sizes[each->grammar.get()];
    const auto next = std::next(each);
    if (each != cache->begin() && bytes > max_bytes) evicted.splice(evicted.end(), *cache, each);
    each = next;
  }
}

std::shared_ptr<infer::TokenMask> GrammarMasks::mask(const Constraint& constraint) {
  if (auto known = cached(constraint)) return std::make_shared<infer::GrammarMask>(std::move(known));
  // Concurrent requests for the same constraint may compile it twice.
  auto grammar =
      std::make_shared<const grammar::TokenGrammar>(compiled(constraint), vocabulary_, mask_limits(*vocabulary_));
  // Computes a first mask here, so that a constraint that is too large is refused now instead of failing in the engine.
  std::vector<uint32_t> bits(vocabulary_->num_words());
  grammar::Matcher(grammar).fill_mask(bits);
  insert({constraint, bytes_of(constraint), grammar});
  return std::make_shared<infer::GrammarMask>(std::move(grammar));
}

}  // namespace ingot::server

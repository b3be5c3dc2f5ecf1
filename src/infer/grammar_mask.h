// A TokenMask that follows a grammar.
#pragma once

#include <memory>
#include <utility>

#include "grammar/matcher.h"
#include "infer/token_mask.h"

namespace ingot::infer {

// The mask of one output. Any number of outputs may share the grammar. Errors: those of grammar::Matcher.
class GrammarMask : public TokenMask {
 public:
  explicit GrammarMask(std::shared_ptr<const grammar::TokenGrammar> grammar) : matcher_(std::move(grammar)) {}

  void fill(std::span<uint32_t> bits) override { matcher_.fill_mask(bits); }
  void accept(int32_t id) override { matcher_.accept(id); }
  void rollback(int64_t tokens) override { matcher_.rollback(tokens); }
  bool finished() const override { return matcher_.finished(); }

  const grammar::Matcher& matcher() const { return matcher_; }

 private:
  grammar::Matcher matcher_;
};

}  // namespace ingot::infer

// Token masks of a grammar over a vocabulary, and the state of one constrained output.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/state_limits.h"
#include "grammar/vocabulary.h"

namespace ingot::grammar {

class Machine;

// A grammar with a vocabulary, and the automaton states and masks computed so far. Thread-safe.
class TokenGrammar {
 public:
  // `limits` apply to the states that all outputs share, to the private states of an output for which the shared ones
  // are full, and to each mask.
  TokenGrammar(GrammarPtr grammar, std::shared_ptr<const Vocabulary> vocabulary, const StateLimits& limits = {});
  ~TokenGrammar();

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const StateLimits& limits() const { return limits_; }

  // The shared machine for a new output. It is replaced by an empty one when it has used up a large share of its
  // limits.
  std::shared_ptr<Machine> machine() const;
  // A new machine for a single output.
  std::shared_ptr<Machine> own_machine() const;
  int32_t start() const { return grammar_->start(); }

  // Approximate host memory of the shared states and masks, in bytes.
  size_t bytes() const;

 private:
  GrammarPtr grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  StateLimits limits_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Machine> machine_;
};

// The state of one output. Not thread-safe; any number of matchers may share a TokenGrammar. Every function that
// computes states throws ErrorKind::resource when this output alone exceeds the grammar's limits; the matcher is then
// unchanged. When all outputs that share the grammar exceed them together, the matcher continues on a private machine.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const TokenGrammar> grammar);

  // Bit t % 32 of word t / 32 is set when token t is allowed next. Words beyond the vocabulary are 0; tokens beyond the
  // words are omitted. The end tokens are allowed when the text is complete. At least one bit is set, unless an end
  // token was accepted or no token of the vocabulary fits.
  void fill_mask(std::span<uint32_t> bits) const;

  // Whether fill_mask would set the token's bit.
  bool allows(int32_t id) const;

  // Appends a token. Errors: usage when the token is not allowed here.
  void accept(int32_t id);

  // Appends bytes that are not tokens. Returns false, with nothing changed, when they are not allowed. Counts as one
  // token for rollback.
  bool accept_bytes(std::string_view bytes);

  // Removes the last `tokens` tokens. Errors: internal for more than were accepted.
  void rollback(int64_t tokens);

  bool may_end() const;   // whether the text is complete
  bool finished() const;  // whether it is complete and cannot be continued, or an end token was accepted
  int64_t accepted() const { return static_cast<int64_t>(positions_.size()) - 1; }

 private:
  struct Position {
    int32_t state;  // a term of the machine; -1 after an end token
    size_t length;  // of the text so far, bytes
  };

  template <class Work>
  auto worked(Work work) const;
  void work_alone() const;
  bool is_ended() const;

  std::shared_ptr<const TokenGrammar> grammar_;
  mutable std::shared_ptr<Machine> machine_;
  mutable bool is_alone_ = false;            // machine_ is private, not the shared one
  mutable std::vector<Position> positions_;  // before the first token and after each token
  std::string text_;                         // accepted so far, to replay it on a private machine
  mutable int64_t visits_ = 0;               // steps of the masks that this output was the first to request
};

}  // namespace ingot::grammar

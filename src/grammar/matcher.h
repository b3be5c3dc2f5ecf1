// Masks for a grammar over a vocabulary, and an output's way through it.
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

// A grammar with a vocabulary, and what was worked out of both so far. Thread-safe.
class TokenGrammar {
 public:
  // `limits` are of the states that its outputs share, and of each output's own where these are full; of masks.
  TokenGrammar(GrammarPtr grammar, std::shared_ptr<const Vocabulary> vocabulary, const StateLimits& limits = {});
  ~TokenGrammar();

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const StateLimits& limits() const { return limits_; }

  // What a new output works on: the states found so far, or none when these take too much memory.
  std::shared_ptr<Machine> machine() const;
  // One for an output alone.
  std::shared_ptr<Machine> own_machine() const;
  int32_t start() const { return grammar_->start(); }

  // Of host memory that states and masks take so far, about.
  size_t bytes() const;

 private:
  GrammarPtr grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  StateLimits limits_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Machine> machine_;
};

// One output. One thread at a time; any number of matchers may share a TokenGrammar. Every function that works out
// states throws ErrorKind::resource when the grammar's limits are passed by this output alone; the matcher is then as
// before. Where the outputs that share the grammar passed them together, the matcher goes on with states of its own.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const TokenGrammar> grammar);

  // Bit t % 32 of word t / 32: token t may come next; words behind the vocabulary are 0, tokens
  // behind the words are left out. The end tokens may come when
  // the text is complete. At least one bit is set, unless an end token was accepted or no token of the vocabulary fits.
  void fill_mask(std::span<uint32_t> bits) const;

  // Whether fill_mask would set the token's bit.
  bool allows(int32_t id) const;

  // Goes on behind a token. Errors: usage when the token may not come.
  void accept(int32_t id);

  // Goes on behind bytes that are not tokens yet. False, and nothing changed, when they may not come. Counts as one
  // token for rollback.
  bool accept_bytes(std::string_view bytes);

  // Takes back the last tokens. Errors: internal for more than were accepted.
  void rollback(int64_t tokens);

  bool may_end() const;   // the text is complete
  bool finished() const;  // it is, and nothing may follow; or an end token was accepted
  int64_t accepted() const { return static_cast<int64_t>(places_.size()) - 1; }

 private:
  struct Place {
    int32_t state;  // of the machine; -1 behind an end token
    size_t length;  // of the text so far
  };

  template <class Work>
  auto worked(Work work) const;
  void work_alone() const;
  bool is_ended() const;

  std::shared_ptr<const TokenGrammar> grammar_;
  mutable std::shared_ptr<Machine> machine_;
  mutable bool is_alone_ = false;      // the machine is not the grammar's
  mutable std::vector<Place> places_;  // before and behind every token
  std::string text_;                   // accepted so far, for other machines
  mutable int64_t visits_ = 0;         // steps of the masks that this output was the first to need
};

}  // namespace ingot::grammar

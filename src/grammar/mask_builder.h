// Token masks: the tokens that a language allows next, found by walking the vocabulary's trie.
//
// A language that begins with a lexeme is walked in two parts: the tokens that stay inside the lexeme, which do not
// depend on the continuation after it and are cached, and the few tokens that extend past its end.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "grammar/automaton.h"
#include "grammar/vocabulary.h"

namespace ingot::grammar {

// Walks of one automaton over one vocabulary; both must outlive it. Not thread-safe.
class MaskBuilder {
 public:
  MaskBuilder(Automaton& automaton, const Vocabulary& vocabulary, const StateLimits& limits)
      : automaton_(automaton), vocabulary_(vocabulary), limits_(limits) {}

  // Sets the bits of the tokens that are allowed next, and clears all others. Errors: resource when that takes more
  // than StateLimits::mask_visits steps or mask_rows new rows.
  void fill(TermId language, std::span<uint32_t> bits);
  int64_t visits() const { return visits_; }  // trie steps of the last mask

 private:
  void collect(TermId language, uint32_t node);
  void collect_sequence(TermId head, TermId rest, uint32_t node);
  void collect_capture(TermId capture, TermId rest, uint32_t node);
  std::shared_ptr<const TrieMatch> match(TermId lexeme, uint32_t node);
  void store(TermId lexeme, uint32_t node, const std::shared_ptr<const TrieMatch>& match);
  std::shared_ptr<const TrieMatch> compute_match(TermId lexeme, uint32_t node);
  void follow(TermId lexeme, std::span<const Vocabulary::Node> nodes, uint32_t node, TrieMatch& match);
  TermId clamped(TermId lexeme);
  bool accepts_all_plain(TermId lexeme);
  bool can_continue(TermId language, uint32_t node);
  int32_t first_token(uint32_t node) const;
  void add(const TrieMatch& match);
  void visit(int64_t nodes);

  Automaton& automaton_;
  const Vocabulary& vocabulary_;
  StateLimits limits_;
  std::span<uint32_t> bits_;
  int64_t visits_ = 0;
  int64_t rows_before_ = 0;  // num_rows() when this mask was started
  int depth_ = 0;
  std::unordered_set<uint64_t> seen_;                                       // (language, node) pairs of this mask
  std::unordered_map<uint64_t, std::shared_ptr<const TrieMatch>> matches_;  // by (lexeme, node): the expensive ones
  size_t cached_bytes_ = 0;                                                 // of matches_, approximately
  std::unordered_map<TermId, TermId> clamped_;  // counted lexemes, to their TermPool::clamped form
};

}  // namespace ingot::grammar

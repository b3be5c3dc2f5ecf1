// Brzozowski derivatives of terms by bytes: a deterministic automaton whose states are terms, built lazily and cached.
//
// Every derivative is either TermPool::nothing or a nonempty language, so an accepted prefix can always be completed.
// Empty intersections and complements are detected by a reachability search over their states.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <vector>

#include "grammar/json_escape.h"
#include "grammar/term.h"

namespace ingot::grammar {

// The transitions of a state: bytes with the same target share a class; the target is to[of[byte]].
struct Row {
  std::array<uint8_t, 256> of{};
  std::vector<TermId> to = {TermPool::nothing};

  TermId next(uint8_t byte) const { return to[of[byte]]; }
};

// Copyable: each user of a compiled grammar works on a copy. Not thread-safe.
class Automaton {
 public:
  TermPool terms;

  // Applies to terms and rows that are created from now on. Errors: functions that create more of them throw
  // ErrorKind::resource.
  void set_limits(const StateLimits& limits) {
    terms.set_max_terms(limits.terms);
    max_rows_ = limits.rows;
  }

  // Whether the empty string is in the language.
  bool nullable(TermId term);

  // The derivative by a byte or by a text. Errors: ErrorKind::resource when the pool is full, or nesting is too deep.
  TermId step(TermId term, uint8_t byte);
  TermId step(TermId term, std::string_view text);
  const Row& row(TermId term);

  // Whether a regular language is nonempty. Errors: resource when the search takes more than `max_search` states.
  bool alive(TermId term);

  // The number of strings of a regular language, or `limit` if there are `limit` or more (also infinitely many).
  // Errors: resource when that takes strings longer than `max_search` or more than `max_count_steps` steps (one for
  // each state at each length); as `alive`.
  int64_t count(TermId term, int64_t limit);

  // The expansion of an object state: the members that are allowed next, each followed by the state after it, or the
  // end.
  TermId object_body(TermId object);

  // The next element of terms.distinct(number) after the list `seen`, and what follows it.
  TermId next_distinct(int32_t number, int32_t seen);
  // `after_capture` is the continuation after a capture whose text is complete. `any_continuation` contains the first
  // byte of every such continuation, whatever the text is.
  TermId after_capture(const Capture& complete);
  TermId any_continuation(const Capture& capture);

  // Called once when all rules are defined: determines which rules are nullable, and removes those with an empty
  // language. `names` are the rules' names by number, for errors; the list may be shorter. Returns the start term
  // without such rules; `nothing` when the whole language is empty. Errors: unsupported for a left-recursive rule.
  TermId finish(TermId start, const std::vector<std::string>& names = {});

  // Whether a complete name is that of a declared property of its object, which may be disallowed here. Every other
  // name is allowed.
  bool is_property(const Capture& name) const;

  // Whether the term is, or may begin with, a capture.
  bool begins_with_capture(TermId term);

  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }

  static constexpr int64_t max_search = 20'000;
  static constexpr int64_t max_count_steps = 200'000;

 private:
  enum class Life : uint8_t { unknown, alive, dead };
  static constexpr int max_depth = 3000;

  Row copied_row(TermId term);
  Row made_row(TermId term);
  Row choice_row(TermId term);
  template <class Change>
  Row mapped(TermId source, Change change);
  template <class Merge>
  Row combined(const std::vector<TermId>& sources, Merge merge);
  Row sequence_row(TermId term);
  Row repeat_row(TermId term);
  Row multiple_row(TermId term);
  Row capture_row(TermId term);

  // automaton_json_text.cpp
  Row json_text_row(TermId term);
  TermId character(TermId text, uint32_t code_point);
  bool takes_any(TermId text, uint32_t first, uint32_t last);
  bool takes_any(TermId text, std::string_view low, std::string_view high);
  bool takes_escape(TermId text, const JsonEscape& escape, bool canonical);

  // automaton_objects.cpp
  using Usable = std::function<bool(TermId after_capture)>;
  struct Remaining;
  bool completable(const ObjectState& state, const Usable& usable);
  Remaining remaining(const ObjectState& state) const;
  ObjectState after(ObjectState state, const ObjectShape::Member& member);
  bool may_come(const ObjectState& state, const ObjectShape::Member& member, const Remaining& remaining);
  TermId with_member(const ObjectState& state, const ObjectShape::Member& member);
  TermId after_name(const Capture& complete);
  TermId after_other_name(const Capture& partial);
  TermId names_left(TermId names, int32_t seen);
  TermId name_capture(TermId object, int32_t member);

  const Row& search_row(TermId term);
  bool is_search_state(TermId term) const;
  void keep_alive(Row& row);
  bool productive(TermId term, const std::vector<bool>& rules);
  bool evaluated_nullable(TermId term, const std::vector<bool>& rules);
  void refuse_left_recursion(const std::vector<std::string>& names);
  void first_rules(TermId term, std::vector<TermId>& out);

  int64_t max_rows_ = StateLimits{}.rows;
  std::deque<Row> rows_;            // a deque, so that references stay valid
  std::vector<int32_t> row_of_;     // by term; -1: no row yet
  std::deque<Row> searches_;        // rows of intersections and complements, dead targets included
  std::vector<int32_t> search_of_;  // by term
  std::vector<Life> life_;          // by term
  std::vector<TermId> body_of_;     // expansions of object states, by term; -1: none yet
  int depth_ = 0;
};

}  // namespace ingot::grammar

// Steps through languages: what may follow a byte, byte by byte, made when asked for and kept.
//
// Every language that a step gives is either TermPool::nothing or has a string in it, so a text that was accepted so
// far can always be completed. Intersections and complements that turn out empty are found by a search over their own
// states.
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

// What follows each byte: to[of[byte]].
struct Row {
  std::array<uint8_t, 256> of{};
  std::vector<TermId> to = {TermPool::nothing};

  TermId next(uint8_t byte) const { return to[of[byte]]; }
};

// Copyable: a compiled grammar is copied where it is used. One thread at a time.
class Automaton {
 public:
  TermPool terms;

  // From here on; what is there already stays. Errors: functions that work out more throw ErrorKind::resource.
  void set_limits(const StateLimits& limits) {
    terms.set_max_terms(limits.terms);
    max_rows_ = limits.rows;
  }

  // Whether the empty string is in the language.
  bool nullable(TermId term);

  // The language behind a byte. Errors: ErrorKind::resource when the pool is full, or nesting is too deep.
  TermId step(TermId term, uint8_t byte);
  TermId step(TermId term, std::string_view text);
  const Row& row(TermId term);

  // Whether a regular language has a string. Errors: resource, when that takes more than `max_search` states.
  bool alive(TermId term);

  // The number of strings of a regular language; `limit` where there are so many or more, also where there is no end of
  // them. Errors: resource, when strings longer than `max_search`, or more than `max_count_steps` steps (one for each
  // state at each length), have to be looked at to tell; those of `alive`.
  int64_t count(TermId term, int64_t limit);

  // What an object's state stands for: the members that may come, each with the state behind it, or the end.
  TermId object_body(TermId object);

  // Elements of terms.distinct(number) behind those seen.
  TermId next_distinct(int32_t number, int32_t seen);
  // What follows a capture whose text is complete; and what the first byte of that is, if it is anything, whatever the
  // text is.
  TermId behind(const Capture& complete);
  TermId first_behind(const Capture& capture);

  // Called once when all rules have their bodies: finds which contain the empty string, and takes out those without any
  // string. `names` are of rules by number, for errors; they may be fewer. Returns the start without such rules;
  // nothing when the whole language is empty. Errors: unsupported for a rule that begins with itself.
  TermId finish(TermId start, const std::vector<std::string>& names = {});

  // Whether a name is a property's of its object, so that it may be one that cannot come. Every other name can.
  bool is_property(const Capture& name) const;

  // Whether the next bytes are, or may be, the text of a capture.
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
  using Usable = std::function<bool(TermId behind)>;
  struct Remaining;
  bool completable(const ObjectState& state, const Usable& usable);
  Remaining remaining(const ObjectState& state) const;
  ObjectState after(ObjectState state, const ObjectShape::Member& member);
  bool may_come(const ObjectState& state, const ObjectShape::Member& member, const Remaining& remaining);
  TermId with_member(const ObjectState& state, const ObjectShape::Member& member);
  TermId behind_name(const Capture& complete);
  TermId behind_other_name(const Capture& partial);
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
  std::deque<Row> rows_;            // stay where they are
  std::vector<int32_t> row_of_;     // by term; -1 for none
  std::deque<Row> searches_;        // rows of intersections and complements before the dead are taken out
  std::vector<int32_t> search_of_;  // by term
  std::vector<Life> life_;          // by term
  std::vector<TermId> body_of_;     // by term: of objects; -1 for none
  int depth_ = 0;
};

}  // namespace ingot::grammar

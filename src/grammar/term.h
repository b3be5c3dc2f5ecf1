// Languages over bytes as terms, equal ones stored once.
//
// A term denotes a set of byte strings. A parser's state is a term, too: the strings that may still come (Brzozowski
// 1964, "Derivatives of regular expressions"; the derivatives are in grammar/automaton.h). Rules make the language
// context-free; intersection and complement are for regular terms, those without rules and captures.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/byte_set.h"
#include "grammar/object_shape.h"
#include "grammar/state_limits.h"

namespace ingot::grammar {

using TermId = int32_t;

enum class TermKind : uint8_t {
  nothing,     // no string at all
  empty,       // the empty string alone
  bytes,       // one byte of a set
  sequence,    // left, then right; left is no sequence
  choice,      // any of the children
  both,        // all of the children at once; regular
  complement,  // every string that is not in left; regular
  repeat,      // left, from min to max times
  unit,        // left, regular, walked as a whole by masks: a lexeme such as a JSON string
  rule,        // the body of rule `min`
  multiple,    // decimals without sign that are multiples of a number: see TermPool::multiple
  json_text,   // left, regular, of UTF-8, as it stands between the quotes of a JSON string: see TermPool::json_text
  capture,     // a regular left whose text decides what follows: see Capture
  object,      // the rest of a JSON object: see ObjectState
};

inline constexpr int64_t unlimited = -1;

struct Term {
  TermKind kind = TermKind::nothing;
  bool regular = true;
  bool is_counted = false;  // has a repeat with a bound other than 0 and 1, or is one
  int8_t nullable = 0;      // contains the empty string: 0 no, 1 yes, -1 that depends on rules
  TermId left = 0;
  TermId right = 0;
  int64_t min = 0;    // repeat; the number of a rule, a byte set, a capture; multiple: the modulus
  int64_t max = 0;    // repeat; multiple: the remainder so far
  int32_t first = 0;  // children [first, first + count) of choice and both
  int32_t count = 0;
  uint64_t hash[2]{};  // of the structure, the same in every pool of this process for regular terms
};

// Elements of an array that must differ. A value has one text only, so equal texts are equal values.
struct Distinct {
  TermId text = 0;  // regular
  TermId separator = 0;
  int64_t min = 0;  // elements
  int64_t max = unlimited;
};

// An element of a Distinct under way, or a name of an object.
struct Capture {
  static constexpr int32_t known_name = -1;  // of a property that may come
  static constexpr int32_t any_name = -2;    // of such a property, or another one
  int32_t distinct = 0;
  TermId object = -1;  // the state in front of a name; -1: an element of a Distinct
  int32_t member = 0;  // of the object's shape: a class of other names; or one of the constants above
  int32_t seen = 0;    // the list of the texts of the elements before it
  std::string text;    // what was read of this one
};

class TermPool {
 public:
  static constexpr TermId nothing = 0;
  static constexpr TermId empty = 1;
  static constexpr TermId anything = 2;  // every string

  TermPool();

  // Most terms of this pool. Errors: every function that makes a term throws ErrorKind::resource beyond it.
  void set_max_terms(int64_t max_terms) { max_terms_ = max_terms; }

  const Term& operator[](TermId id) const { return terms_[static_cast<size_t>(id)]; }
  std::span<const TermId> children(TermId id) const {
    const Term& term = (*this)[id];
    return {children_.data() + term.first, static_cast<size_t>(term.count)};
  }
  const ByteSet& byte_set(TermId id) const { return sets_[static_cast<size_t>((*this)[id].min)]; }
  int64_t size() const { return static_cast<int64_t>(terms_.size()); }
  int64_t used() const { return size() + used_elsewhere_; }  // of the limit: terms, and other memory in units of terms

  TermId bytes(const ByteSet& set);
  TermId byte(char c) { return bytes(ByteSet::of(static_cast<uint8_t>(c))); }
  TermId literal(std::string_view text);
  TermId sequence(TermId left, TermId right);
  TermId sequence(std::initializer_list<TermId> parts);
  TermId choice(const std::vector<TermId>& parts);
  TermId choice(TermId a, TermId b) { return choice(std::vector<TermId>{a, b}); }
  TermId both(const std::vector<TermId>& parts);
  TermId both(TermId a, TermId b) { return both(std::vector<TermId>{a, b}); }
  TermId complement(TermId term);
  TermId without(TermId a, TermId b) { return both(a, complement(b)); }
  TermId repeat(TermId term, int64_t min, int64_t max);
  TermId optional(TermId term) { return choice(empty, term); }
  TermId unit(TermId term);

  // Texts [0-9]+(\.[0-9]+)? (and malformed ones, which an intersection takes out) whose value times 10^places is a
  // multiple of `modulus` (1 to 10^15).
  TermId multiple(int64_t modulus, int places) { return multiple(modulus, 0, places, false); }
  TermId multiple(int64_t modulus, int64_t remainder, int places, bool in_fraction);

  // What may stand between the quotes of a JSON string for a text of `left`: characters as themselves or escaped. With
  // `canonical` in one way only: " and \ and control characters escaped, by \b \f \n \r \t where there is such an
  // escape, by \u00 and two lower-case digits otherwise. `escape` is what was read of an escape
  // (grammar/json_escape.h).
  TermId json_text(TermId left, bool canonical, int64_t escape = 0);

  // A rule without a body yet; `define` gives it one.
  TermId declare();
  void define(TermId rule, TermId body);
  TermId body(TermId rule) const { return bodies_[static_cast<size_t>((*this)[rule].min)]; }
  std::vector<TermId>& bodies() { return bodies_; }
  const std::vector<TermId>& bodies() const { return bodies_; }

  // Elements that differ: a Distinct and the list of texts seen, by number; list 0 is empty. The same text behind the
  // same list gives the same number.
  int32_t add_distinct(const Distinct& elements);
  int32_t add_seen(int32_t before, const std::string& text);
  const Distinct& distinct(int32_t number) const { return distincts_[static_cast<size_t>(number)]; }
  std::vector<std::string> seen(int32_t number) const;
  TermId capture(TermId left, Capture state);
  Capture capture_of(TermId id) const { return captures_[static_cast<size_t>((*this)[id].min)]; }

  // Objects: their shapes, and the states of them as terms. Sets of properties have numbers; 0 is the empty one.
  int32_t add_object(ObjectShape shape);
  const ObjectShape& object(int32_t number) const { return objects_[static_cast<size_t>(number)]; }
  TermId members(const ObjectState& state);
  const ObjectState& object_state(TermId id) const { return object_states_[static_cast<size_t>((*this)[id].min)]; }
  int32_t with_property(int32_t set, int32_t property);
  bool has_property(int32_t set, int32_t property) const;

  // Changes what follows the names of every object.
  void change_objects(const std::function<TermId(TermId)>& change);

  // The term of changed parts: those of a sequence, a choice, a repeat, a unit, a JSON string. Others have none.
  TermId rebuilt(TermId id, const std::function<TermId(TermId)>& change);

  // The term with rules of `dead` (by number) replaced by nothing.
  TermId without_rules(TermId term, const std::vector<bool>& dead);

  // The term for walks over texts of at most `longest` bytes: counts that such a text cannot reach become unlimited.
  TermId clamped(TermId term, int64_t longest);

  void set_nullable(TermId id, bool value) { terms_[static_cast<size_t>(id)].nullable = value ? 1 : 0; }

 private:
  TermId intern(Term term, std::span<const TermId> children = {});
  void hash(Term& term, std::span<const TermId> children) const;
  void add_choice(TermId part, std::vector<TermId>& parts, ByteSet& set);
  int64_t max_terms_ = StateLimits{}.terms;
  int depth_ = 0;  // of a term being rebuilt
  std::vector<Term> terms_;
  std::vector<TermId> children_;
  std::vector<ByteSet> sets_;
  std::vector<TermId> bodies_;
  std::vector<Distinct> distincts_;
  std::vector<Capture> captures_;
  std::deque<ObjectShape> objects_;
  std::vector<ObjectState> object_states_;
  std::vector<std::vector<uint64_t>> sets_of_properties_ = {{}};
  std::map<std::vector<uint64_t>, int32_t> number_of_set_ = {{{}, 0}};
  using Seen = std::pair<int32_t, std::string>;  // the list before, and the text behind it
  std::vector<Seen> seen_ = {{-1, {}}};
  std::map<Seen, int32_t> number_of_seen_;
  int64_t used_elsewhere_ = 0;
  std::unordered_map<uint64_t, TermId> known_;  // by hash[0]
};

}  // namespace ingot::grammar

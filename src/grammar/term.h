// Languages over bytes as hash-consed terms: equal terms are stored once.
//
// A term denotes a set of byte strings. The state of a parser is a term too: the language of the possible continuations
// (Brzozowski 1964, "Derivatives of regular expressions"; the derivatives are in grammar/automaton.h). Rules make the
// language context-free; intersection and complement are only for regular terms, those without rules, captures and
// objects.
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
  nothing,     // the empty language
  empty,       // only the empty string
  bytes,       // one byte of a set
  sequence,    // left, then right; left is not itself a sequence
  choice,      // union of the children
  both,        // intersection of the children; regular
  complement,  // complement of left; regular
  repeat,      // left, min to max times
  unit,        // left, regular: a lexeme such as a JSON string, which mask computation walks as a whole
  rule,        // the nonterminal whose body is rule `min`
  multiple,    // unsigned decimals that are multiples of a number: see TermPool::multiple
  json_text,   // left, regular, UTF-8, as encoded between the quotes of a JSON string: see TermPool::json_text
  capture,     // left, regular; the continuation depends on the matched text: see Capture
  object,      // the rest of a JSON object: see ObjectState
};

inline constexpr int64_t unlimited = -1;

struct Term {
  TermKind kind = TermKind::nothing;
  bool regular = true;
  bool is_counted = false;  // is or contains a repeat with a bound above 1
  int8_t nullable = 0;      // contains the empty string: 0 no, 1 yes, -1 depends on rules
  TermId left = 0;
  TermId right = 0;
  int64_t min = 0;    // repeat; multiple: modulus; json_text: escape; index of a rule, byte set, capture or object
  int64_t max = 0;    // repeat; multiple: the remainder so far; json_text: whether canonical
  int32_t first = 0;  // children [first, first + count) of choice and both
  int32_t count = 0;
  uint64_t hash[2]{};  // of the structure; for regular terms the same in every pool of this process
};

// The elements of an array with uniqueItems. Every value has exactly one text, so two elements are equal exactly when
// their texts are.
struct Distinct {
  TermId text = 0;  // the texts of one element; regular
  TermId separator = 0;
  int64_t min = 0;  // number of elements
  int64_t max = unlimited;
};

// A partly read element of a Distinct, or a partly read name of an object member.
struct Capture {
  static constexpr int32_t known_name = -1;  // member: the name of some property that is allowed here
  static constexpr int32_t any_name = -2;    // member: the name of such a property, or any other name
  int32_t distinct = 0;
  TermId object = -1;  // the object state before the name; -1: an element of a Distinct
  int32_t member = 0;  // index in ObjectShape::members (a class of other names), or one of the constants above
  int32_t seen = 0;    // the list of the texts of the previous elements
  std::string text;    // the bytes read so far
};

class TermPool {
 public:
  static constexpr TermId nothing = 0;
  static constexpr TermId empty = 1;
  static constexpr TermId anything = 2;  // every byte string

  TermPool();

  // The maximum of used(). Errors: every function that creates a term throws ErrorKind::resource beyond it.
  void set_max_terms(int64_t max_terms) { max_terms_ = max_terms; }

  const Term& operator[](TermId id) const { return terms_[static_cast<size_t>(id)]; }
  std::span<const TermId> children(TermId id) const {
    const Term& term = (*this)[id];
    return {children_.data() + term.first, static_cast<size_t>(term.count)};
  }
  const ByteSet& byte_set(TermId id) const { return sets_[static_cast<size_t>((*this)[id].min)]; }
  int64_t size() const { return static_cast<int64_t>(terms_.size()); }
  int64_t used() const { return size() + used_elsewhere_; }  // the amount that max_terms bounds

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

  // Texts [0-9]+(\.[0-9]+)? whose value times 10^places is a multiple of `modulus` (1 to 10^15). The language also
  // contains malformed texts, which the caller removes by intersection. The second overload is a state inside such a
  // text: `remainder` so far, and `places` fraction digits left to count when `in_fraction`.
  TermId multiple(int64_t modulus, int places) { return multiple(modulus, 0, places, false); }
  TermId multiple(int64_t modulus, int64_t remainder, int places, bool in_fraction);

  // The texts of `left` as they may be written between the quotes of a JSON string: characters as themselves or
  // escaped. With `canonical` each character is written in one way only: " and \ and control characters are escaped, by
  // \b \f \n \r \t where such an escape exists, otherwise by \u00 and two lower-case digits. `escape` is a partly read
  // escape sequence, packed (grammar/json_escape.h).
  TermId json_text(TermId left, bool canonical, int64_t escape = 0);

  // Creates a rule without a body; `define` sets the body.
  TermId declare();
  void define(TermId rule, TermId body);
  TermId body(TermId rule) const { return bodies_[static_cast<size_t>((*this)[rule].min)]; }
  std::vector<TermId>& bodies() { return bodies_; }
  const std::vector<TermId>& bodies() const { return bodies_; }

  // uniqueItems: a Distinct, and lists of texts already seen, by number; list 0 is empty. Appending the same text to
  // the same list returns the same number.
  int32_t add_distinct(const Distinct& elements);
  int32_t add_seen(int32_t before, const std::string& text);
  const Distinct& distinct(int32_t number) const { return distincts_[static_cast<size_t>(number)]; }
  std::vector<std::string> seen(int32_t number) const;
  TermId capture(TermId left, Capture state);
  Capture capture_of(TermId id) const { return captures_[static_cast<size_t>((*this)[id].min)]; }

  // Objects: their shapes, and their states as terms. Sets of properties have numbers; set 0 is empty.
  int32_t add_object(ObjectShape shape);
  const ObjectShape& object(int32_t number) const { return objects_[static_cast<size_t>(number)]; }
  TermId members(const ObjectState& state);
  const ObjectState& object_state(TermId id) const { return object_states_[static_cast<size_t>((*this)[id].min)]; }
  int32_t with_property(int32_t set, int32_t property);
  bool has_property(int32_t set, int32_t property) const;

  // Applies `change` to the term after the name (ObjectShape::Member::tail) of every member of every object.
  void change_objects(const std::function<TermId(TermId)>& change);

  // The term with `change` applied to the parts of a sequence, choice, repeat, unit or json_text; other terms are
  // returned unchanged.
  TermId rebuilt(TermId id, const std::function<TermId(TermId)>& change);

  // The term with the rules marked in `dead` (by number) replaced by `nothing`.
  TermId without_rules(TermId term, const std::vector<bool>& dead);

  // An equivalent of the term for texts of at most `longest` bytes: repeat bounds that such a text cannot reach become
  // unlimited (max) or longest + 1 (min).
  TermId clamped(TermId term, int64_t longest);

  void set_nullable(TermId id, bool value) { terms_[static_cast<size_t>(id)].nullable = value ? 1 : 0; }

 private:
  TermId intern(Term term, std::span<const TermId> children = {});
  void hash(Term& term, std::span<const TermId> children) const;
  void add_choice(TermId part, std::vector<TermId>& parts, ByteSet& set);
  int64_t max_terms_ = StateLimits{}.terms;
  int depth_ = 0;  // recursion depth of rebuilt()
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
  using Seen = std::pair<int32_t, std::string>;  // the list that is extended, and the text appended to it
  std::vector<Seen> seen_ = {{-1, {}}};
  std::map<Seen, int32_t> number_of_seen_;
  int64_t used_elsewhere_ = 0;
  std::unordered_map<uint64_t, TermId> known_;  // by hash[0], with linear probing
};

}  // namespace ingot::grammar

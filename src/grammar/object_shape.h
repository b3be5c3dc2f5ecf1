// Objects of JSON whose members may come in any order, or in a fixed one: what a state of them has to know.
//
// There are as many states as there are sets of names that may have been written, so they are made when they are
// visited (Automaton::object_body).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot::grammar {

struct ObjectShape {
  // One way to write a member. A named property can have several, of which one may come once; one of other names may
  // come as often as it likes.
  struct Member {
    int32_t key = 0;        // a term: the name with its quotes; regular
    int32_t behind = 0;     // a term: colon and value; TermPool::nothing: it cannot come
    int32_t names = 0;      // of other names: the regular language of the names themselves
    int32_t property = -1;  // of the named ones; -1: another name
    uint32_t meets = 0;     // the needs that it meets, as bits
    int64_t number = -1;    // of other names: how many there are; -1: at least `min`
  };
  std::vector<Member> members;                              // by property, other names last
  std::vector<bool> required;                               // of each property
  std::vector<int32_t> names;                               // terms: of each property, the literal of its name
  std::vector<std::pair<std::string, int32_t>> properties;  // their names, sorted, with their numbers
  size_t longest = 0;                                       // of their names, bytes
  int32_t open = -1;          // the member of all other names, where there is only that one and no need
  uint32_t needs = 0;         // bits: conditions on name and value, each to be met by some member
  int64_t min = 0, max = -1;  // members; -1: no limit
  bool in_order = false;      // properties come in their order, other names behind them
  bool distinct = false;      // up to `min` members, other names must differ
  bool all_distinct = false;  // other names must differ: which value of a repeated one counts is up to the reader
  int32_t free_text = 0;      // a term: any JSON string
  int32_t colon = 0;          // terms: with the space behind it
  int32_t comma = 0;
  int32_t space = 0;
  int32_t close = 0;

  std::optional<int32_t> property_of(std::string_view name) const;
  std::span<const Member> members_of(int32_t property) const;
  // Whether a property's name may begin with what was read of a JSON string, behind its quote.
  bool may_be_name(std::string_view read) const;
  bool is_simple() const { return needs == 0 && min == 0 && max < 0; }
  // Whether another name behind so many members must differ from those before it.
  bool must_differ(int32_t count) const { return all_distinct || (distinct && count < min); }
};

// An object of which some members are written.
struct ObjectState {
  int32_t shape = 0;
  int32_t seen = 0;   // the set of properties that were written, by number; 0: none. In order: unused
  int32_t next = 0;   // in order: the first property that may still come
  int32_t names = 0;  // the list of other names that were written, by number; 0: none, or not needed
  uint32_t met = 0;
  int32_t count = 0;  // of members, as far as it matters
  bool first = true;  // no member yet
};

}  // namespace ingot::grammar

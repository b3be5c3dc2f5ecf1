// JSON objects whose members may appear in any order or in a fixed one: their shape, and the state of a partly written
// object.
//
// There is one state for every set of names that may have been written, so states are created when they are reached
// (Automaton::object_body).
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
  // One way to write a member. A named property can have several ways, of which one may be used once; a member with
  // another name can be repeated.
  struct Member {
    int32_t key = 0;        // term: the name with its quotes; regular
    int32_t tail = 0;       // term: colon and value; TermPool::nothing: not allowed
    int32_t names = 0;      // of other names: term, the regular language of the names themselves
    int32_t property = -1;  // of a named property: its index; -1: another name
    uint32_t meets = 0;     // the needs that it satisfies, as bits
    int64_t number = -1;    // of other names: how many such names exist; -1: at least `min`
  };
  std::vector<Member> members;                              // sorted by property, other names last
  std::vector<bool> required;                               // by property
  std::vector<int32_t> names;                               // terms: the literal name of each property
  std::vector<std::pair<std::string, int32_t>> properties;  // (name, property), sorted by name
  size_t longest = 0;                                       // longest name of a property, bytes
  int32_t open = -1;          // the member for all other names, if there is only one and no needs
  uint32_t needs = 0;         // bits: conditions on name and value, each to be satisfied by some member
  int64_t min = 0, max = -1;  // number of members; -1: no limit
  bool in_order = false;      // properties appear in their order, other names after them
  bool distinct = false;      // other names must differ within the first `min` members
  bool all_distinct = false;  // other names must always differ: parsers disagree on duplicates
  int32_t free_text = 0;      // term: any JSON string
  int32_t colon = 0;          // terms: with the white space after it
  int32_t comma = 0;
  int32_t space = 0;
  int32_t close = 0;

  std::optional<int32_t> property_of(std::string_view name) const;
  std::span<const Member> members_of(int32_t property) const;
  // Whether `read`, the part of a JSON string read after its opening quote, may be the beginning of a property's name.
  bool may_be_name(std::string_view read) const;
  bool is_simple() const { return needs == 0 && min == 0 && max < 0; }
  // Whether another name after `count` members must differ from the other names before it.
  bool must_differ(int32_t count) const { return all_distinct || (distinct && count < min); }
};

// The state of a partly written object.
struct ObjectState {
  int32_t shape = 0;
  int32_t seen = 0;   // the number of the set of written properties; 0: none. Unused if in_order
  int32_t next = 0;   // if in_order: the first property that is still allowed
  int32_t names = 0;  // the number of the list of other names written; 0: none, or not needed
  uint32_t met = 0;
  int32_t count = 0;  // of members, saturated where larger counts make no difference
  bool first = true;  // no member yet
};

}  // namespace ingot::grammar

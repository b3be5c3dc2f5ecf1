// The states of objects: which members are allowed next, and what follows each.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "grammar/automaton.h"

namespace ingot::grammar {

namespace {

using Member = ObjectShape::Member;

// A written name without its quotes and escapes.
std::string name_of(const std::string& text) {
  if (text.find('\\') == std::string::npos) return text.substr(1, text.size() - 2);
  return try_parse_json(text).get<std::string>();
}

bool is_counted(const ObjectShape& shape) { return shape.min > 0 || shape.max >= 0; }

}  // namespace

// The members that an object can still have after a state.
struct Automaton::Remaining {
  int32_t first_required;         // property index; the number of properties: none is required
  int64_t num_required = 0;       // required properties still missing
  std::vector<int64_t> optional;  // [p]: optional properties still usable among those from p on
  int64_t num_others = 0;         // other names in finite classes; ignored if is_endless
  bool is_endless = false;
};

Automaton::Remaining Automaton::remaining(const ObjectState& state) const {
  const ObjectShape& shape = terms.object(state.shape);
  const auto size = static_cast<int32_t>(shape.required.size());
  Remaining result{.first_required = size};
  const auto is_left = [&](int32_t property) {
    return shape.in_order ? property >= state.next : !terms.has_property(state.seen, property);
  };
  const bool is_counted = grammar::is_counted(shape);
  if (is_counted) result.optional.resize(static_cast<size_t>(size) + 1);
  for (int32_t property = size; property-- > 0;) {
    const bool is_required = shape.required[static_cast<size_t>(property)] && is_left(property);
    if (is_required) {
      result.first_required = property;
      ++result.num_required;
    }
    if (!is_counted || shape.needs != 0) continue;
    const bool is_usable = shape.members[static_cast<size_t>(property)].tail != TermPool::nothing;
    result.optional[static_cast<size_t>(property)] =
        result.optional[static_cast<size_t>(property) + 1] + (is_usable && !is_required && is_left(property) ? 1 : 0);
  }
  if (!is_counted) return result;
  for (auto member = shape.members.rbegin(); member != shape.members.rend() && member->property < 0; ++member) {
    if (member->tail == TermPool::nothing) continue;
    if (member->number < 0) result.is_endless = true;
    result.num_others += std::max<int64_t>(0, member->number);
  }
  return result;
}

// Whether a member is allowed next.
bool Automaton::may_come(const ObjectState& state, const Member& member, const Remaining& remaining) {
  const ObjectShape& shape = terms.object(state.shape);
  const bool is_named = member.property >= 0;
  if (member.tail == TermPool::nothing || (shape.max >= 0 && state.count >= shape.max)) return false;
  if (shape.in_order) {
    const int32_t property = is_named ? member.property : static_cast<int32_t>(shape.required.size());
    if (property < state.next || property > remaining.first_required) return false;
  } else if (is_named && terms.has_property(state.seen, member.property)) {
    return false;
  }
  if (shape.is_simple()) return true;
  ObjectState next = after(state, member);
  if (shape.needs != 0) {
    if (is_named && !shape.in_order) next.seen = terms.with_property(state.seen, member.property);
    const bool is_listed = !is_named && shape.must_differ(state.count) && shape.must_differ(next.count);
    if (is_listed) next.names = terms.add_seen(state.names, "");  // a placeholder: only the list's length matters
    return completable(next, [](TermId tail) { return tail != TermPool::nothing; });
  }
  const bool is_required = is_named && shape.required[static_cast<size_t>(member.property)];
  const int64_t required = remaining.num_required - (is_required ? 1 : 0);
  if (shape.max >= 0 && next.count + required > shape.max) return false;
  if (remaining.is_endless || next.count >= shape.min) return true;
  int64_t optional = remaining.optional[0] - (is_named && !is_required ? 1 : 0);
  if (shape.in_order) optional = remaining.optional[static_cast<size_t>(next.next)];
  int64_t others = remaining.num_others;
  if (shape.must_differ(next.count)) {
    others -= static_cast<int64_t>(terms.seen(state.names).size()) + (is_named ? 0 : 1);
  }
  return next.count + required + optional + others >= shape.min;
}

// The state after a member, regardless of its name: the name is not added to the list of other names.
ObjectState Automaton::after(ObjectState state, const Member& member) {
  const ObjectShape& shape = terms.object(state.shape);
  state.first = false;
  state.met |= member.meets;
  if (shape.in_order) {
    state.next = member.property < 0 ? static_cast<int32_t>(shape.required.size()) : member.property + 1;
  }
  if (is_counted(shape)) {
    ++state.count;
    if (shape.max < 0) state.count = static_cast<int32_t>(std::min<int64_t>(state.count, shape.min));
  }
  if (!shape.must_differ(state.count)) state.names = 0;
  return state;
}

// A member's colon and value, and the rest of the object.
TermId Automaton::with_member(const ObjectState& state, const Member& member) {
  ObjectState next = after(state, member);
  const TermId tail = member.tail;
  if (member.property >= 0 && !terms.object(state.shape).in_order) {
    next.seen = terms.with_property(state.seen, member.property);
  }
  return terms.sequence(tail, terms.members(next));
}

// Whether the object can be completed after a state. `usable` says whether the term after a name is nonempty.
bool Automaton::completable(const ObjectState& state, const Usable& usable) {
  const ObjectShape& shape = terms.object(state.shape);
  const auto size = static_cast<int32_t>(shape.required.size());
  const auto may_come = [&](int32_t property) {
    return shape.in_order ? property >= state.next : !terms.has_property(state.seen, property);
  };
  constexpr int64_t no_way = std::numeric_limits<int64_t>::max() / 4;
  const uint32_t unmet = shape.needs & ~state.met;
  // The fewest members that satisfy each set of needs, by bit set.
  std::vector<int64_t> fewest(size_t{unmet} + 1, no_way);
  fewest[0] = 0;
  int64_t available = 0, others = 0;
  bool is_endless = false;
  size_t at = 0;
  for (int32_t property = 0; property < size; ++property) {
    std::vector<uint32_t> ways;
    for (; at < shape.members.size() && shape.members[at].property == property; ++at) {
      if (may_come(property) && usable(shape.members[at].tail)) ways.push_back(shape.members[at].meets & unmet);
    }
    if (!may_come(property)) continue;
    const bool is_required = shape.required[static_cast<size_t>(property)];
    if (ways.empty() && is_required) return false;
    if (ways.empty()) continue;
    ++available;
    std::vector<int64_t> next = is_required ? std::vector<int64_t>(fewest.size(), no_way) : fewest;
    for (const uint32_t way : ways) {
      for (size_t set = 0; set < fewest.size(); ++set) {
        int64_t& best = next[set | way];
        best = std::min(best, fewest[set] + 1);
      }
    }
    fewest = std::move(next);
  }
  for (; at < shape.members.size(); ++at) {
    const Member& member = shape.members[at];
    if (!usable(member.tail)) continue;
    if (member.number < 0) is_endless = true;
    if (member.meets == 0) others += std::max<int64_t>(0, member.number);
    for (size_t set = 0; set < fewest.size(); ++set) {
      int64_t& best = fewest[set | (member.meets & unmet)];
      best = std::min(best, fewest[set] + 1);
    }
  }
  const int64_t needed = fewest[unmet];
  if (needed >= no_way) return false;
  if (shape.max >= 0 && state.count + needed > shape.max) return false;
  if (is_endless || state.count >= shape.min) return true;
  if (shape.must_differ(state.count)) others -= static_cast<int64_t>(terms.seen(state.names).size());
  return state.count + available + others >= shape.min;
}

// `names` without those on the list.
TermId Automaton::names_left(TermId names, int32_t seen) {
  std::vector<TermId> texts;
  for (const std::string& name : terms.seen(seen)) texts.push_back(terms.literal(name));
  return terms.without(names, terms.choice(texts));
}

// A capture of a name that differs from the other names already written.
TermId Automaton::name_capture(TermId object, int32_t number) {
  const ObjectState state = terms.object_state(object);
  const Member member = terms.object(state.shape).members[static_cast<size_t>(number)];
  const TermId names = names_left(member.names, state.names);
  if (!alive(names)) return TermPool::nothing;
  const TermId key = terms.sequence({terms.byte('"'), terms.json_text(names, false), terms.byte('"')});
  return terms.capture(key, {.object = object, .member = number});
}

TermId Automaton::after_name(const Capture& complete) {
  const ObjectState state = terms.object_state(complete.object);
  const ObjectShape& shape = terms.object(state.shape);
  const std::string name = name_of(complete.text);
  if (complete.member >= 0) {
    const Member& member = shape.members[static_cast<size_t>(complete.member)];
    ObjectState next = after(state, member);
    if (shape.must_differ(next.count)) next.names = terms.add_seen(state.names, name);
    return terms.sequence(member.tail, terms.members(next));
  }
  const auto property = shape.property_of(name);
  if (!property) return with_member(state, shape.members[static_cast<size_t>(shape.open)]);
  const Remaining remaining = this->remaining(state);
  TermId result = TermPool::nothing;
  for (const Member& member : shape.members_of(*property)) {
    if (may_come(state, member, remaining)) result = terms.choice(result, with_member(state, member));
  }
  return result;
}

bool Automaton::is_property(const Capture& name) const {
  return terms.object(terms.object_state(name.object).shape).property_of(name_of(name.text)).has_value();
}

// The continuation after a partly read name that can no longer become a property's name; `nothing` if it still can.
TermId Automaton::after_other_name(const Capture& partial) {
  if (partial.object < 0 || partial.member != Capture::any_name) return TermPool::nothing;
  const ObjectState state = terms.object_state(partial.object);
  const ObjectShape& shape = terms.object(state.shape);
  if (shape.may_be_name(std::string_view(partial.text).substr(1))) return TermPool::nothing;
  return with_member(state, shape.members[static_cast<size_t>(shape.open)]);
}

// Where any other name is allowed, all names are one lexeme, so that all objects share its walk, and after_name()
// looks up the property afterwards. Otherwise the names of all allowed properties form one lexeme, and other names that
// must differ are captured by name_capture().
TermId Automaton::object_body(TermId id) {
  if (static_cast<size_t>(id) >= body_of_.size()) body_of_.resize(static_cast<size_t>(id) + 256, -1);
  if (body_of_[static_cast<size_t>(id)] >= 0) return body_of_[static_cast<size_t>(id)];
  const ObjectState state = terms.object_state(id);
  const ObjectShape& shape = terms.object(state.shape);
  const Remaining remaining = this->remaining(state);
  std::vector<TermId> parts;
  const bool is_open = shape.open >= 0 && !shape.must_differ(state.count) &&
                       may_come(state, shape.members[static_cast<size_t>(shape.open)], remaining);
  if (is_open) {
    parts.push_back(terms.capture(shape.free_text, {.object = id, .member = Capture::any_name}));
  } else {
    std::vector<const Member*> named;
    for (size_t i = 0; i < shape.members.size(); ++i) {
      const Member& member = shape.members[i];
      if (!may_come(state, member, remaining)) continue;
      if (member.property >= 0) {
        named.push_back(&member);
      } else if (shape.must_differ(state.count)) {
        parts.push_back(name_capture(id, static_cast<int32_t>(i)));
      } else {
        parts.push_back(terms.sequence(member.key, with_member(state, member)));
      }
    }
    if (named.size() == 1) {
      parts.push_back(terms.sequence(named[0]->key, with_member(state, *named[0])));
    } else if (!named.empty()) {
      std::vector<TermId> names;
      for (const Member* member : named) names.push_back(shape.names[static_cast<size_t>(member->property)]);
      const TermId key =
          terms.unit(terms.sequence({terms.byte('"'), terms.json_text(terms.choice(names), false), terms.byte('"')}));
      parts.push_back(terms.capture(key, {.object = id, .member = Capture::known_name}));
    }
  }
  const bool may_end = remaining.first_required == static_cast<int32_t>(shape.required.size()) &&
                       (shape.needs & ~state.met) == 0 && state.count >= shape.min;
  TermId body = terms.choice(parts);
  if (state.first) {
    if (may_end) body = terms.choice(body, shape.close);
  } else {
    body = terms.sequence(shape.comma, body);
    if (may_end) body = terms.choice(body, terms.sequence(shape.space, shape.close));
  }
  if (static_cast<size_t>(id) >= body_of_.size()) body_of_.resize(static_cast<size_t>(id) + 256, -1);
  body_of_[static_cast<size_t>(id)] = body;
  return body;
}

}  // namespace ingot::grammar

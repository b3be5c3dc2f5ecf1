// The states of objects: which members may come, and what is behind each.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "grammar/automaton.h"

namespace ingot::grammar {

namespace {

using Member = ObjectShape::Member;

// A name that was written, without quotes and escapes. What is no whole string stands for itself: it is asked for only
// to look at what can follow any name.
std::string name_of(const std::string& text) {
  const auto value = try_parse_json(text);
  return value.is_string() ? value.get<std::string>() : text;
}

bool is_counted(const ObjectShape& shape) { return shape.min > 0 || shape.max >= 0; }

}  // namespace

// The state behind a member, its name not looked at.
ObjectState Automaton::after(const ObjectShape& shape, ObjectState state, const Member& member) {
  state.first = false;
  state.met |= member.meets;
  if (shape.in_order)
    state.next = member.property < 0 ? static_cast<int32_t>(shape.required.size()) : member.property + 1;
  if (is_counted(shape)) {
    ++state.count;
    if (shape.max < 0) state.count = static_cast<int32_t>(std::min<int64_t>(state.count, shape.min));
  }
  if (!shape.must_differ(state.count)) state.names = 0;
  return state;
}

// Whether the object can be completed from a state on. `usable` says whether what follows a name has any text.
bool Automaton::completable(const ObjectState& state, const Usable& usable) {
  const ObjectShape& shape = terms.object(state.shape);
  const auto size = static_cast<int32_t>(shape.required.size());
  const auto may_come = [&](int32_t property) {
    return shape.in_order ? property >= state.next : !terms.has_property(state.seen, property);
  };
  constexpr int64_t no_way = std::numeric_limits<int64_t>::max() / 4;
  const uint32_t unmet = shape.needs & ~state.met;
  // The fewest members that meet each set of the needs.
  std::vector<int64_t> fewest(size_t{unmet} + 1, no_way);
  fewest[0] = 0;
  int64_t available = 0, others = 0;
  bool is_endless = false;
  size_t at = 0;
  for (int32_t property = 0; property < size; ++property) {
    std::vector<uint32_t> ways;
    for (; at < shape.members.size() && shape.members[at].property == property; ++at) {
      if (may_come(property) && usable(shape.members[at].behind)) ways.push_back(shape.members[at].meets & unmet);
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
    if (!usable(member.behind)) continue;
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

// The names that are not on the list.
TermId Automaton::names_left(TermId names, int32_t seen) {
  std::vector<TermId> texts;
  for (const std::string& name : terms.seen(seen)) texts.push_back(terms.literal(name));
  return terms.without(names, terms.choice(texts));
}

// A name that is not among those that were written, with the state in front of it.
TermId Automaton::name_capture(TermId object, int32_t number) {
  const ObjectState state = terms.object_state(object);
  const Member member = terms.object(state.shape).members[static_cast<size_t>(number)];
  const TermId names = names_left(member.names, state.names);
  if (!alive(names)) return TermPool::nothing;
  const TermId key = terms.sequence({terms.byte('"'), terms.json_text(names, false), terms.byte('"')});
  return terms.capture(key, {.object = object, .member = number});
}

TermId Automaton::behind_name(const Capture& complete) {
  const ObjectState state = terms.object_state(complete.object);
  const ObjectShape& shape = terms.object(state.shape);
  const Member& member = shape.members[static_cast<size_t>(complete.member)];
  ObjectState next = after(shape, state, member);
  if (shape.must_differ(next.count)) next.names = terms.add_seen(state.names, name_of(complete.text));
  const TermId behind = member.behind;
  return terms.sequence(behind, terms.members(next));
}

TermId Automaton::object_body(TermId id) {
  if (static_cast<size_t>(id) >= body_of_.size()) body_of_.resize(static_cast<size_t>(id) + 256, -1);
  if (body_of_[static_cast<size_t>(id)] >= 0) return body_of_[static_cast<size_t>(id)];
  const ObjectState state = terms.object_state(id);
  const ObjectShape& shape = terms.object(state.shape);
  const Usable usable = [](TermId behind) { return behind != TermPool::nothing; };
  const auto size = static_cast<int32_t>(shape.required.size());
  const auto is_missing = [&](int32_t property) {
    const bool may_come = shape.in_order ? property >= state.next : !terms.has_property(state.seen, property);
    return may_come && shape.required[static_cast<size_t>(property)];
  };
  int32_t first_missing = 0;
  while (first_missing < size && !is_missing(first_missing)) ++first_missing;
  std::vector<TermId> parts;
  const bool is_full = shape.max >= 0 && state.count >= shape.max;
  for (size_t i = 0; i < shape.members.size() && !is_full; ++i) {
    const Member& member = shape.members[i];
    if (member.behind == TermPool::nothing) continue;
    const int32_t property = member.property;
    if (shape.in_order) {
      if (property < 0 ? first_missing < size : property < state.next || property > first_missing) continue;
    } else if (property >= 0 && terms.has_property(state.seen, property)) {
      continue;
    }
    ObjectState next = after(shape, state, member);
    if (!shape.in_order && property >= 0) next.seen = terms.with_property(state.seen, property);
    const bool must_differ = property < 0 && shape.must_differ(state.count);
    if (must_differ && shape.must_differ(next.count)) {
      next.names = terms.add_seen(state.names, "");  // one more, whatever it is
    }
    if (!shape.is_simple() && !completable(next, usable)) continue;
    parts.push_back(must_differ ? name_capture(id, static_cast<int32_t>(i))
                                : terms.sequence({member.key, member.behind, terms.members(next)}));
  }
  const bool may_end = first_missing == size && (shape.needs & ~state.met) == 0 && state.count >= shape.min;
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

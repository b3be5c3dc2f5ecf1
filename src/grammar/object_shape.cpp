#include "grammar/object_shape.h"

#include <algorithm>

namespace ingot::grammar {

namespace {

// The first of the sorted names that is not less than `text`.
auto first_from(const ObjectShape& shape, std::string_view text) {
  return std::partition_point(shape.properties.begin(), shape.properties.end(),
                              [&](const auto& property) { return property.first < text; });
}

}  // namespace

std::optional<int32_t> ObjectShape::property_of(std::string_view name) const {
  const auto at = first_from(*this, name);
  if (at == properties.end() || at->first != name) return std::nullopt;
  return at->second;
}

bool ObjectShape::may_be_name(std::string_view read) const {
  constexpr size_t longest_escape = 6;  // bytes of an escaped byte: \u0061
  const std::string_view unescaped = read.substr(0, read.find('\\'));
  const auto at = first_from(*this, unescaped);
  if (at == properties.end() || !at->first.starts_with(unescaped)) return false;
  return unescaped.size() == read.size() || read.size() <= longest_escape * longest;
}

std::span<const ObjectShape::Member> ObjectShape::members_of(int32_t property) const {
  const auto from = [&](int32_t first) {
    return std::partition_point(members.begin(), members.end(),
                                [&](const Member& member) { return member.property >= 0 && member.property < first; });
  };
  return {from(property), from(property + 1)};
}

}  // namespace ingot::grammar

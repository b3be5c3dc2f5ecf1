#include "spec/layout.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::spec {

namespace {

template <class Numbers>
auto& along(Numbers& numbers, Axis axis) {
  switch (axis) {
    case Axis::tp: return numbers.tp;
    case Axis::cp: return numbers.cp;
    case Axis::dp: return numbers.dp;
    case Axis::pp: return numbers.pp;
    case Axis::replicas:
    case Axis::ep: break;
  }
  throw_error(ErrorKind::internal, "'{}' is no axis of a layout", name_of(axis));
}

}  // namespace

std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, 6> names = {"tp", "cp", "dp", "pp", "replicas", "ep"};
  return names.at(static_cast<size_t>(axis));
}

std::string text_of(const AxisOrder& order) {
  std::string text;
  for (const Axis axis : order) text.append(text.empty() ? "" : "-").append(name_of(axis));
  return text;
}

AxisOrder axis_order(std::string_view text) {
  AxisOrder order = default_order;
  std::ranges::sort(order);
  do {
    if (text_of(order) == text) return order;
  } while (std::ranges::next_permutation(order).found);
  throw_hint(ErrorKind::usage, fmt::format("the default is {}", text_of(default_order)),
             "'{}' is not tp, cp, dp and pp in some order, with '-' between them", text);
}

int64_t Layout::extent(Axis axis) const { return along(*this, axis); }

Place place_of(const Layout& layout, int64_t rank) {
  Place place;
  for (const Axis axis : layout.order) {
    along(place, axis) = rank % layout.extent(axis);
    rank /= layout.extent(axis);
  }
  return place;
}

int64_t rank_of(const Layout& layout, const Place& place) {
  int64_t rank = 0, step = 1;
  for (const Axis axis : layout.order) {
    rank += along(place, axis) * step;
    step *= layout.extent(axis);
  }
  return rank;
}

}  // namespace ingot::spec

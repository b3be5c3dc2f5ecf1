// Which ranks share what, as data: how many ranks each axis has, and their order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::spec {

enum class Axis : uint8_t {
  tp,        // ranks that share the tensors of a layer
  cp,        // ranks with some tokens each of the same sequences
  dp,        // ranks with sequences of their own
  pp,        // stages of a pipeline
  replicas,  // part of dp: with shard groups (hybrid sharding), the ranks with the same share of the state
  ep,        // part of dp and cp: neighbours that divide the experts of a mixture among them
};
std::string_view name_of(Axis axis);

// From the axis whose ranks are neighbours to that whose ranks are farthest from each other: tp, cp, dp and pp, each
// once.
using AxisOrder = std::array<Axis, 4>;
inline constexpr AxisOrder default_order = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
// "tp-cp-dp-pp". axis_order: ErrorKind::usage for other texts.
std::string text_of(const AxisOrder& order);
AxisOrder axis_order(std::string_view text);

struct Layout {
  int64_t dp = 1, cp = 1, pp = 1, tp = 1;
  int64_t shard = 0;  // of the dp x cp ranks with the same part of the model, those that divide its state; 0: all
  int64_t ep = 1;     // of those, the ranks that divide the experts
  AxisOrder order = default_order;

  int64_t extent(Axis axis) const;  // of the axes in `order`
  int64_t ranks() const { return dp * cp * pp * tp; }
};

// A rank's number along each axis.
struct Place {
  int64_t dp = 0, cp = 0, pp = 0, tp = 0;
  bool operator==(const Place&) const = default;
  // Its number among the ranks with the same part of the model, where context-parallel ranks are neighbours.
  int64_t replica(const Layout& layout) const { return dp * layout.cp + cp; }
  int64_t ep_rank(const Layout& layout) const { return replica(layout) % layout.ep; }
};
Place place_of(const Layout& layout, int64_t rank);
int64_t rank_of(const Layout& layout, const Place& place);

}  // namespace ingot::spec

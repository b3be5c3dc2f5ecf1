#include "comm/grid.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace ingot::comm {

double Grid::waited_s() const {
  std::vector<const Group*> counted;
  double sum = 0;
  for (const Group* group : {&world, &dp, &shard, &replicas, &ep, &expert_shard, &cp, &pp, &tp, &model, &messages,
                             &weights, &expert_weights, &ends}) {
    if (std::ranges::any_of(counted, [&](const Group* other) { return group->is(*other); })) continue;
    counted.push_back(group);
    sum += group->waited_s();
  }
  return sum;
}

namespace {

std::vector<int> in_order_of_sequences(const spec::Layout& layout) {
  std::vector<int> ranks(static_cast<size_t>(layout.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::sort(ranks, {}, [&](int rank) { return std::pair(spec::place_of(layout, rank).replica(layout), rank); });
  return ranks;
}

}  // namespace

Grid data_parallel(const Group& world) {
  Grid grid;
  grid.world = grid.dp = grid.shard = grid.expert_shard = world;
  grid.by_sequences = in_order_of_sequences({.dp = world.size()});
  if (world.size() > 1) grid.weights = grid.expert_weights = world.split(0, world.rank(), "weights");
  return grid;
}

Grid make_grid(const Group& world, const spec::Layout& layout) {
  if (std::min({layout.dp, layout.cp, layout.pp, layout.tp}) < 1 || layout.ranks() != world.size()) {
    throw_hint(ErrorKind::usage, "start dp x cp x pp x tp ranks, or change the parallel layout",
               "dp {} x cp {} x pp {} x tp {} does not equal the number of ranks, {}", layout.dp, layout.cp, layout.pp,
               layout.tp, world.size());
  }
  const auto number = [](int64_t each) { return static_cast<int>(each); };
  const int cp = number(layout.cp), pp = number(layout.pp), tp = number(layout.tp), dp = number(layout.dp) * cp;
  const int shard = layout.shard == 0 ? dp : number(layout.shard);
  const int ep = number(layout.ep);
  if (shard < 1 || dp % shard != 0 || ep < 1 || shard % ep != 0) {
    throw_error(ErrorKind::internal, "shard groups of {} among {} ranks, and {} expert-parallel ranks in each", shard,
                dp, ep);
  }
  const spec::Place place = spec::place_of(layout, world.rank());
  const int dp_rank = number(place.replica(layout)), pp_rank = number(place.pp), tp_rank = number(place.tp);
  const auto along = [&](int extent, int color, int key, const char* name) {
    // The same branch on every rank. In the default order a group of all ranks has their order.
    const bool is_world = extent == world.size() && layout.order == spec::default_order;
    return extent == 1 ? Group() : is_world ? world : world.split(color, key, name);
  };
  Grid grid;
  grid.world = world;
  grid.by_sequences = in_order_of_sequences(layout);
  grid.dp = along(dp, pp_rank * tp + tp_rank, dp_rank, "dp");
  // A group of its own also where it has all ranks: exchanges and synchronisation of gradients overlap.
  if (cp > 1) grid.cp = world.split((pp_rank * dp + dp_rank / cp) * tp + tp_rank, dp_rank % cp, "cp");
  grid.pp = along(pp, dp_rank * tp + tp_rank, pp_rank, "pp");
  grid.tp = along(tp, pp_rank * dp + dp_rank, tp_rank, "tp");
  grid.shard = shard == dp ? grid.dp : shard == 1 ? Group() : grid.dp.split(dp_rank / shard, dp_rank, "shard");
  grid.replicas = shard == dp ? Group() : shard == 1 ? grid.dp : grid.dp.split(dp_rank % shard, dp_rank, "replicas");
  if (shard > 1) grid.weights = grid.shard.split(0, dp_rank, "weights");
  grid.expert_shard = grid.shard;
  grid.expert_weights = grid.weights;
  const int ep_rank = number(place.ep_rank(layout));
  if (ep > 1) {
    grid.ep = grid.shard.split(dp_rank / ep, dp_rank, "ep");
    grid.expert_shard = ep == shard ? Group() : grid.shard.split(ep_rank, dp_rank, "expert shard");
    grid.expert_weights = ep == shard ? Group() : grid.expert_shard.split(0, dp_rank, "expert weights");
    grid.model = world.split(dp_rank / ep, (pp_rank * ep + ep_rank) * tp + tp_rank, "model");
  } else {
    grid.model = tp == 1 ? grid.pp : pp == 1 ? grid.tp : along(pp * tp, dp_rank, pp_rank * tp + tp_rank, "model");
  }
  if (pp == 1) return grid;
  grid.messages = grid.pp.split(0, pp_rank, "messages of pp");
  const bool is_end = pp_rank == 0 || pp_rank == pp - 1;
  grid.ends = grid.pp.split(is_end ? 0 : pp_rank, pp_rank, "ends of pp");
  return grid;
}

}  // namespace ingot::comm

#include "comm/grid.h"

namespace ingot::comm {

double Grid::waited_s() const {
  double sum = world.waited_s() + forward.waited_s() + backward.waited_s() + ends.waited_s() + weights.waited_s() +
               cp.waited_s();
  for (const Group* group : {&dp, &pp, &tp}) {
    if (group->size() != world.size()) sum += group->waited_s();  // else it is the same group
  }
  for (const Group* group : {&shard, &replicas}) {
    if (group->size() != dp.size()) sum += group->waited_s();
  }
  if (pp.size() > 1 && tp.size() > 1 && model.size() != world.size()) sum += model.waited_s();
  return sum;
}

Grid data_parallel(const Group& world) {
  Grid grid;
  grid.world = grid.dp = grid.shard = world;
  if (world.size() > 1) grid.weights = world.split(0, world.rank(), "weights");
  return grid;
}

Grid make_grid(const Group& world, const Extents& extents) {
  const auto [data, cp, pp, tp, wanted] = extents;
  if (data < 1 || cp < 1 || pp < 1 || tp < 1 || int64_t{data} * cp * pp * tp != world.size()) {
    throw_hint(ErrorKind::usage, "start dp x cp x pp x tp ranks, or change the parallel layout",
               "dp {} x cp {} x pp {} x tp {} does not equal the number of ranks, {}", data, cp, pp, tp, world.size());
  }
  const int dp = data * cp;
  const int shard = wanted == 0 ? dp : wanted;
  if (shard < 1 || dp % shard != 0) throw_error(ErrorKind::internal, "shard groups of {} among {} ranks", shard, dp);
  const int tp_rank = world.rank() % tp;
  const int dp_rank = world.rank() / tp % dp;
  const int pp_rank = world.rank() / tp / dp;
  const auto along = [&](int extent, int color, int key, const char* name) {
    // The same branch on every rank.
    return extent == 1 ? Group() : extent == world.size() ? world : world.split(color, key, name);
  };
  Grid grid;
  grid.world = world;
  grid.dp = along(dp, pp_rank * tp + tp_rank, dp_rank, "dp");
  // A group of its own also where it has all ranks: exchanges and synchronisation of gradients overlap.
  if (cp > 1) grid.cp = world.split((pp_rank * data + dp_rank / cp) * tp + tp_rank, dp_rank % cp, "cp");
  grid.pp = along(pp, dp_rank * tp + tp_rank, pp_rank, "pp");
  grid.tp = along(tp, pp_rank * dp + dp_rank, tp_rank, "tp");
  grid.shard = shard == dp ? grid.dp : shard == 1 ? Group() : grid.dp.split(dp_rank / shard, dp_rank, "shard");
  grid.replicas = shard == dp ? Group() : shard == 1 ? grid.dp : grid.dp.split(dp_rank % shard, dp_rank, "replicas");
  if (shard > 1) grid.weights = grid.shard.split(0, dp_rank, "weights");
  grid.model = tp == 1 ? grid.pp : pp == 1 ? grid.tp : along(pp * tp, dp_rank, pp_rank * tp + tp_rank, "model");
  if (pp == 1) return grid;
  grid.forward = grid.pp.split(0, pp_rank, "pp forward");
  grid.backward = grid.pp.split(0, pp_rank, "pp backward");
  const bool is_end = pp_rank == 0 || pp_rank == pp - 1;
  grid.ends = grid.pp.split(is_end ? 0 : pp_rank, pp_rank, "ends of pp");
  return grid;
}

}  // namespace ingot::comm

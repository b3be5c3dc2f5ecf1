#include "comm/grid.h"

namespace ingot::comm {

double Grid::waited_s() const {
  double sum = world.waited_s() + pp.waited_s() + tp.waited_s();
  if (dp.size() != world.size()) sum += dp.waited_s();  // else it is the same group
  return sum;
}

Grid data_parallel(const Group& world) { return {world, world, {}, {}}; }

Grid make_grid(const Group& world, const Extents& extents) {
  const auto [dp, pp, tp] = extents;
  if (dp < 1 || pp < 1 || tp < 1 || int64_t{dp} * pp * tp != world.size()) {
    throw_hint(ErrorKind::usage, "start dp x pp x tp ranks, or change the parallel layout",
               "dp {} x pp {} x tp {} does not equal the number of ranks, {}", dp, pp, tp, world.size());
  }
  const int tp_rank = world.rank() % tp;
  const int dp_rank = world.rank() / tp % dp;
  const int pp_rank = world.rank() / tp / dp;
  const auto along = [&](int extent, int color, int key, const char* name) {
    // The same branch on every rank.
    return extent == 1 ? Group() : extent == world.size() ? world : world.split(color, key, name);
  };
  return {world, along(dp, pp_rank * tp + tp_rank, dp_rank, "dp"), along(pp, dp_rank * tp + tp_rank, pp_rank, "pp"),
          along(tp, pp_rank * dp + dp_rank, tp_rank, "tp")};
}

}  // namespace ingot::comm

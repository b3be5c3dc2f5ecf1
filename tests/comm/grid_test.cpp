#include "comm/grid.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/in_process.h"

namespace ingot::comm {
namespace {

TEST(Group, OfOneRankIsANoOp) {
  const Group group;
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.all_sum(3.5), 3.5);
  const std::vector<float> all = {1, 2};
  std::vector<float> own(2);
  group.begin_reduce_scatter<float>(own, all, std::vector<size_t>{2}, ReduceOp::sum).wait();
  EXPECT_EQ(own, all);
  EXPECT_EQ(group.gather("here"), std::vector<std::string>{"here"});
  EXPECT_EQ(group.split(1, 2, "part").size(), 1);
  group.barrier();
  std::byte one{};
  EXPECT_THROW(group.begin_send({&one, 1}, 0), Error);
  EXPECT_THROW(group.begin_receive({&one, 1}, 0), Error);
}

TEST(Grid, GroupsByCoordinate) {
  run_in_process({.ranks = 12}, [](const Group& world) {
    const Grid grid = make_grid(world, {.dp = 3, .pp = 2, .tp = 2});
    EXPECT_EQ(grid.world.size(), 12);
    EXPECT_EQ(grid.dp.size(), 3);
    EXPECT_EQ(grid.pp.size(), 2);
    EXPECT_EQ(grid.tp.size(), 2);
    EXPECT_EQ((grid.pp.rank() * 3 + grid.dp.rank()) * 2 + grid.tp.rank(), world.rank());
    // The ranks of a group differ only in their coordinate along its axis.
    EXPECT_EQ(grid.tp.all_sum<int64_t>(world.rank()), 2 * (world.rank() - grid.tp.rank()) + 1);
    EXPECT_EQ(grid.dp.all_sum<int64_t>(world.rank()), 3 * (world.rank() - 2 * grid.dp.rank()) + 6);
    EXPECT_EQ(grid.pp.all_sum<int64_t>(world.rank()), 2 * (world.rank() - 6 * grid.pp.rank()) + 6);
    EXPECT_EQ(grid.model.rank(), grid.pp.rank() * 2 + grid.tp.rank());
    const std::vector<int> model = grid.model.gather_one(world.rank());
    const int first = 2 * grid.dp.rank();
    EXPECT_EQ(model, (std::vector{first, first + 1, first + 6, first + 7}));
  });
  for (const spec::Layout& extents : {spec::Layout{.dp = 3, .pp = 2}, {.dp = 3, .tp = 2}, {.dp = 6}}) {
    run_in_process({.ranks = 6}, [&](const Group& world) {
      const Grid grid = make_grid(world, extents);
      EXPECT_EQ(grid.model.size(), extents.pp * extents.tp);
      EXPECT_EQ(grid.model.rank(), grid.pp.rank() * extents.tp + grid.tp.rank());
    });
  }
}

// Context-parallel ranks are neighbours, and data-parallel ones for all that concerns gradients.
TEST(Grid, DividesSequencesAmongContextParallelRanks) {
  run_in_process({.ranks = 24}, [](const Group& world) {
    const Grid grid = make_grid(world, {.dp = 3, .cp = 2, .pp = 2, .tp = 2});
    EXPECT_EQ(grid.dp.size(), 6);
    EXPECT_EQ(grid.cp.size(), 2);
    EXPECT_EQ(grid.data_ranks(), 3);
    const int rank = ((grid.pp.rank() * 3 + grid.data_rank()) * 2 + grid.cp.rank()) * 2 + grid.tp.rank();
    EXPECT_EQ(rank, world.rank());
    const int first = rank - 2 * grid.cp.rank();
    EXPECT_EQ(grid.cp.gather_one(rank), (std::vector{first, first + 2}));
    EXPECT_EQ(grid.model.size(), 4);
  });
  run_in_process({.ranks = 2}, [](const Group& world) {
    const Grid grid = make_grid(world, {.cp = 2});
    EXPECT_EQ(grid.dp.size(), 2);
    EXPECT_EQ(grid.data_ranks(), 1);
    const double before = grid.waited_s();
    grid.cp.barrier();  // of its own, and counted
    EXPECT_GT(grid.waited_s(), before);
  });
}

// Ranks of another order have the same groups, at other places in the world.
TEST(Grid, HasAnyOrderOfAxes) {
  run_in_process({.ranks = 24}, [](const Group& world) {
    const spec::Layout layout{.dp = 3, .cp = 2, .pp = 2, .tp = 2, .order = spec::axis_order("pp-dp-tp-cp")};
    const Grid grid = make_grid(world, layout);
    const spec::Place place{.dp = grid.data_rank(), .cp = grid.cp.rank(), .pp = grid.pp.rank(), .tp = grid.tp.rank()};
    EXPECT_EQ(spec::rank_of(layout, place), world.rank());
    const auto ranks_along = [&](int64_t spec::Place::* axis, int count) {
      std::vector<int> ranks;
      for (int i = 0; i < count; ++i) {
        spec::Place other = place;
        other.*axis = i;
        ranks.push_back(static_cast<int>(spec::rank_of(layout, other)));
      }
      return ranks;
    };
    EXPECT_EQ(grid.cp.gather_one(world.rank()), ranks_along(&spec::Place::cp, 2));
    EXPECT_EQ(grid.pp.gather_one(world.rank()), ranks_along(&spec::Place::pp, 2));
    EXPECT_EQ(grid.tp.gather_one(world.rank()), ranks_along(&spec::Place::tp, 2));
    EXPECT_EQ(grid.dp.rank(), place.replica(layout));
    EXPECT_EQ(grid.model.rank(), grid.pp.rank() * 2 + grid.tp.rank());
  });
  // Groups of all ranks, which have another order than the world.
  run_in_process({.ranks = 4}, [](const Group& world) {
    const int swapped = world.rank() % 2 * 2 + world.rank() / 2;
    const Grid data = make_grid(world, {.dp = 2, .cp = 2, .order = spec::axis_order("dp-cp-tp-pp")});
    EXPECT_EQ(data.dp.rank(), swapped);
    EXPECT_EQ(data.data_rank(), world.rank() % 2);
    EXPECT_EQ(data.by_sequences, (std::vector{0, 2, 1, 3}));
    const double before = data.waited_s();
    data.dp.barrier();
    EXPECT_GT(data.waited_s(), before);
    const Grid model = make_grid(world, {.pp = 2, .tp = 2, .order = spec::axis_order("pp-tp-cp-dp")});
    EXPECT_EQ(model.model.rank(), swapped);
    EXPECT_EQ(model.pp.rank(), world.rank() % 2);
  });
}

// Shard groups are neighbours among the data-parallel ranks.
TEST(Grid, DividesDataParallelRanksIntoShardGroups) {
  run_in_process({.ranks = 8}, [](const Group& world) {
    const Grid grid = make_grid(world, {.dp = 4, .tp = 2, .shard = 2});
    const int dp = grid.dp.rank(), tp = grid.tp.rank();
    EXPECT_EQ(grid.shard.rank(), dp % 2);
    EXPECT_EQ(grid.replicas.rank(), dp / 2);
    const int first = dp / 2 * 4 + tp;  // world rank of the shard group's first
    EXPECT_EQ(grid.shard.gather_one(world.rank()), (std::vector{first, first + 2}));
    EXPECT_EQ(grid.replicas.gather_one(world.rank()), (std::vector{dp % 2 * 2 + tp, dp % 2 * 2 + tp + 4}));
    EXPECT_EQ(grid.weights.gather_one(world.rank()), (std::vector{first, first + 2}));
    const Grid whole = make_grid(world, {.dp = 8});
    EXPECT_EQ(whole.shard.size(), 8);
    EXPECT_EQ(whole.replicas.size(), 1);
    const Grid alone = make_grid(world, {.dp = 8, .shard = 1});
    EXPECT_EQ(alone.shard.size(), 1);
    EXPECT_EQ(alone.replicas.size(), 8);
  });
}

// Expert-parallel ranks are neighbours in a shard group; together with stages and tensor-parallel ranks they have one
// copy of the model.
TEST(Grid, DividesShardGroupsIntoExpertParallelRanks) {
  run_in_process({.ranks = 16}, [](const Group& world) {
    const spec::Layout layout{.dp = 4, .cp = 2, .tp = 2, .shard = 4, .ep = 2};
    const Grid grid = make_grid(world, layout);
    const int dp = grid.dp.rank(), tp = grid.tp.rank();
    const auto at = [&](int each) { return 2 * each + tp; };  // world rank of a data-parallel one
    EXPECT_EQ(grid.ep.rank(), spec::place_of(layout, world.rank()).ep_rank(layout));
    EXPECT_EQ(grid.ep.gather_one(world.rank()), (std::vector{at(dp / 2 * 2), at(dp / 2 * 2 + 1)}));
    const int first = dp / 4 * 4 + dp % 2;
    EXPECT_EQ(grid.expert_shard.gather_one(world.rank()), (std::vector{at(first), at(first + 2)}));
    EXPECT_EQ(grid.expert_weights.gather_one(world.rank()), (std::vector{at(first), at(first + 2)}));
    EXPECT_FALSE(grid.expert_weights.is(grid.expert_shard));
    const int pair = dp / 2 * 4;
    EXPECT_EQ(grid.model.gather_one(world.rank()), (std::vector{pair, pair + 1, pair + 2, pair + 3}));
    const Grid all = make_grid(world, {.dp = 16, .shard = 4, .ep = 4});
    EXPECT_EQ(all.ep.size(), 4);
    EXPECT_EQ(all.expert_shard.size(), 1);
    EXPECT_EQ(all.expert_weights.size(), 1);
    EXPECT_EQ(all.replicas.size(), 4);
    EXPECT_THROW(make_grid(world, {.dp = 16, .shard = 2, .ep = 4}), Error);
  });
  run_in_process({.ranks = 8}, [](const Group& world) {
    const Grid grid = make_grid(world, {.dp = 4, .pp = 2, .ep = 2});
    EXPECT_EQ(grid.model.rank(), 2 * grid.pp.rank() + grid.ep.rank());
  });
}

TEST(Grid, OneAxisLayoutsWorkAndOtherSizesAreErrors) {
  run_in_process({.ranks = 3}, [](const Group& world) {
    const Grid grid = make_grid(world, {.dp = 3});
    EXPECT_EQ(grid.dp.rank(), world.rank());
    EXPECT_EQ(grid.tp.size(), 1);
    try {
      make_grid(world, {.dp = 2, .tp = 2});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(error.message(), "dp 2 x cp 1 x pp 1 x tp 2 does not equal the number of ranks, 3");
    }
  });
}

}  // namespace
}  // namespace ingot::comm

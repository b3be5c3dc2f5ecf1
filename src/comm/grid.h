// The process grid: the rank of each world rank in its data-parallel, pipeline and tensor-parallel groups.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "comm/device_communicator.h"
#include "comm/group.h"
#include "spec/layout.h"

namespace ingot::comm {

struct Grid {
  Group world;
  Group dp;  // ranks with the same part of the model, dp x cp of them, which add up their gradients
  // Of `dp`: those that divide the state of that part among them, which are neighbours, and those that have the same
  // share of it, ordered by their numbers in `dp`.
  Group shard, replicas;
  Group ep;            // of `shard`: neighbours, which divide the experts of mixtures among them
  Group expert_shard;  // of `shard`: the ranks with the same experts, which divide the experts' state among them
  Group cp;            // ranks with the same sequences and part of the model
  Group pp;            // ranks with the same tokens and tp rank, ordered by stage
  Group tp;            // ranks with the same tokens and stage
  Group model;         // ranks that have one copy of the model together: pp x ep x tp, by stage
  Group messages;      // the same ranks as `pp`, for activations and their gradients
  // The same ranks as `shard` and `expert_shard`: between devices of different kinds, gathering of weights and
  // synchronisation of gradients may begin in different orders.
  Group weights, expert_weights;
  Group ends;  // the first and the last stage; a group of one on the others

  std::vector<int> by_sequences = {0};  // the world's ranks in the order of their sequences

  // What a pipeline's rank sends to another one and receives from it by. The two directions have communicators of their
  // own, so that a message waits for no other but those before it from the same rank.
  struct Link {
    std::shared_ptr<DeviceCommunicator> send, receive;
    int peer = 0;  // the other rank's number in both
  };
  // For device memory: of the ranks of the group of that name, null where it goes through host memory; and, by the
  // other's rank in `messages`, of the ranks that exchange these, none where they go through host memory.
  struct OnDevice {
    std::shared_ptr<DeviceCommunicator> shard, expert_shard, replicas, weights, expert_weights, cp, ep, pp, tp, ends;
    std::map<int, Link> links;
  };
  OnDevice on_device;

  // The ranks that have sequences of their own, and the number of this one among them.
  int data_ranks() const { return dp.size() / cp.size(); }
  int data_rank() const { return dp.rank() / cp.size(); }

  // Group::waited_s() of all of them.
  double waited_s() const;
};

// All ranks are data-parallel. Collective.
Grid data_parallel(const Group& world);

// Collective. ErrorKind::usage when dp * cp * pp * tp is not the world size, naming both; internal when `shard` does
// not divide dp * cp, or ep `shard`.
Grid make_grid(const Group& world, const spec::Layout& layout);

}  // namespace ingot::comm

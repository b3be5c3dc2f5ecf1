// Weights that the device has only while they are used. Each data-parallel rank stores a share of them: ZeRO stage 3
// (Rajbhandari et al. 2019, arXiv 1910.02054), as PyTorch's FSDP does it (Zhao et al. 2023, arXiv 2304.11277); and a
// share may be in host memory (`parallel.offload: weights`). A block's weights are gathered before the model computes
// with them, while the block before it computes, into memory that the next block but one uses too.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/load.h"
#include "comm/device_communicator.h"
#include "nn/weight_gatherer.h"
#include "spec/traffic.h"
#include "tensor/arena.h"
#include "tensor/staging.h"
#include "tensor/weight_set.h"
#include "train/action_log.h"
#include "train/optimizer_state.h"

namespace ingot::train {

// Weights that are gathered by one operation, in an order in which the ranks' parts follow each other. Sizes, offsets
// and ranges are in bytes.
struct WeightBucket {
  struct Member {
    ParameterForm form;
    int64_t offset = 0;  // in the bucket's memory
    Range own;           // what this rank stores of it
  };
  // Of experts that only some ranks have (spec::ModelShard::divides): gathered among the ranks that have them.
  bool divided = false;
  std::vector<Member> members;
  int64_t begin = 0;  // where the bucket begins in the memory that its unit is gathered into
  int64_t total = 0;
  // By rank, of those that divide the bucket (ShardSpec::ranks_of): what it stores, with what is between its parts.
  std::vector<size_t> sections;
};

// Weights that are needed together (nn::WeightGatherer): those that all ranks have, and after them its experts where
// expert-parallel ranks divide these.
using WeightUnit = std::vector<WeightBucket>;

// The units of a model whose parameters have these forms, those of spec::held_parameters(model, share.shards). In full
// training `trained` is divide_parameters(), so that each rank stores the weights that it updates; else it is empty,
// and each bucket is divided evenly.
std::vector<WeightUnit> weight_units(const spec::ModelSpec& model, std::span<const ParameterForm> forms,
                                     std::span<const DividedBucket> trained, const ShardSpec& share);

// Bytes of each bucket of a unit that several ranks gather.
std::vector<size_t> gathered_bytes(const WeightUnit& unit);

// The units that the ranks gather in a step whose passes need these units, where the step before was the same: a unit
// that is still in its place is not gathered again. `kept`: also not by the next step's first pass, since no update has
// changed the weights.
std::vector<int> gathered_units(const spec::ModelSpec& model, std::span<const int> needed, bool kept);

struct ShardedWeightBytes {
  size_t own = 0;        // this rank's share, on the device
  size_t offloaded = 0;  // or in host memory
  size_t gathered = 0;   // the memory that weights are gathered into
  size_t staging = 0;    // other host memory that shares are exchanged in
};
// `staged`: ranks exchange them through other host memory (comm::DeviceCommunicator::staging_bytes).
ShardedWeightBytes sharded_weight_bytes(const spec::ModelSpec& model, std::span<const WeightUnit> units,
                                        const ShardSpec& share, bool staged);

// One rank's share, and the gathering of all. All memory is allocated at once. The ranks go through the same units in
// the same order. Experts that a rank has alone, where all ranks of a shard group are expert-parallel ones, are not
// gathered: the model computes with the share itself, unless that is in host memory.
class ShardedWeights : public nn::WeightGatherer {
 public:
  // `ranks`: of the data-parallel ranks (comm::Grid::weights); `expert_ranks`: of those with the same experts
  // (Grid::expert_weights), which may be null where one rank has them. With share.offload_weights own() is host memory,
  // and the device one that the host cannot access. Errors: internal where `ranks` or `expert_ranks` are others than
  // those that divide the units.
  ShardedWeights(Device& device, const spec::ModelSpec& model, std::vector<WeightUnit> units, const ShardSpec& share,
                 std::shared_ptr<comm::DeviceCommunicator> ranks,
                 std::shared_ptr<comm::DeviceCommunicator> expert_ranks = nullptr);

  // What a model computes with, by index of spec::parameters. They are there from need() on.
  const WeightSet& weights() const { return weights_; }

  // This rank's share: by index of spec::parameters; no bytes where it stores nothing of a parameter.
  const std::vector<checkpoint::KeptBytes>& own() const { return own_; }
  // That of parameter `number`, as elements of `type`. ErrorKind::internal for offloaded weights, which are not on the
  // device.
  Tensor own(size_t number, DType type) const;
  const std::vector<WeightUnit>& units() const { return units_; }

  void begin_pass(std::vector<int> units) override;
  void need(int unit) override;
  // Whether the parameter's weight is in memory now.
  bool is_there(size_t number) const;

  // The share was written: what has been gathered is out of date.
  void changed();
  // What is exchanged is added to `traffic`, which outlives this.
  void set_traffic(spec::Traffic* traffic) { traffic_ = traffic; }
  // What is gathered is recorded in `log`, which outlives this or its next call; null: none.
  void set_log(ActionLog* log) { log_ = log; }
  // While set, nothing is exchanged with other ranks: weights have any values. For memory probes.
  void set_local_only(bool local_only);
  // After an error: abandons the pending operations.
  void abandon();

 private:
  // Memory that one unit after another is gathered into.
  struct Place {
    std::byte* memory = nullptr;
    std::array<comm::DeviceCommunicator::Workspace, 2> workspaces;  // by WeightBucket::divided
    std::unique_ptr<Event> used;      // the work so far when gathering began: the place is free after it
    std::unique_ptr<Event> uploaded;  // of offloaded weights
    int unit = -1;                    // which it holds, or will hold after `operations`; -1: none
    bool pending = false;
    std::array<comm::DeviceCommunicator::PendingOperation, 2> operations;  // by WeightBucket::divided
  };
  Place& place_of(int unit);
  void begin_gather(int unit);
  void upload(Place& place, int unit);
  bool is_gathered(const WeightBucket& bucket) const { return offloaded_ || bucket.sections.size() > 1; }
  size_t rank_in(const WeightBucket& bucket) const { return static_cast<size_t>(share_.rank_of(bucket.divided)); }
  size_t section_start(const WeightBucket& bucket) const;  // of this rank, in bytes

  Device& device_;
  std::vector<WeightUnit> units_;
  bool tied_;
  ShardSpec share_;
  std::array<std::shared_ptr<comm::DeviceCommunicator>, 2> ranks_;  // by WeightBucket::divided
  bool offloaded_;
  spec::Traffic* traffic_ = nullptr;
  ActionLog* log_ = nullptr;
  bool local_only_ = false;
  Arena store_, gathered_;
  PinnedBuffer host_store_;
  std::vector<std::vector<std::byte*>> sections_;  // by unit and bucket: this rank's
  std::array<Place, 4> places_;
  std::vector<checkpoint::KeptBytes> own_;
  std::vector<int> unit_of_;        // by parameter; -1 where it is not held
  std::vector<bool> always_there_;  // by parameter: it is not gathered
  WeightSet weights_;
  std::vector<int> pass_;  // the units of the pass
  size_t next_ = 0;        // index in it of the next unit that is needed
};

}  // namespace ingot::train

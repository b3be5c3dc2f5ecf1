// Gradient synchronisation of data-parallel ranks, bucket by bucket while backward runs, and the all-gather of the
// weights that ranks have updated; also what the stages of a pipeline and tensor-parallel ranks exchange about
// gradients.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "comm/device_communicator.h"
#include "comm/grid.h"
#include "ops/context.h"
#include "spec/traffic.h"
#include "train/action_log.h"
#include "train/optimizer_state.h"

namespace ingot::train {

class GradientSync {
 public:
  // For one rank all calls do nothing, and no buffers are allocated. The arguments must outlive it.
  GradientSync(ops::Context& context, OptimizerState& optimizer_state, const comm::Grid& grid);

  // Whether buckets are synchronised after every micro-batch (where ranks divide gradients) instead of once at the end
  // of a step.
  bool every_micro_batch() const { return optimizer_state_.share().divides_gradients(); }

  void begin_step();
  // Starts the synchronisation of the bucket's memory, which holds this rank's gradients, after adding up what
  // tensor-parallel ranks have of one gradient (spec::TensorPlacement::partial, spec::CopiedRows). All ranks call it
  // for the same buckets in the same order. `empty`: this rank has computed nothing and contributes zeros in place of
  // the memory's contents. With every_micro_batch(), buckets share memory; when this returns, backward may overwrite
  // that of the bucket that it computes next.
  void begin(size_t bucket, bool empty);
  // Called after the last bucket of a micro-batch, or of a step if not every_micro_batch(). Records this rank's largest
  // contributions to fixed-point sums. `empty` as above.
  void record_largest(bool empty);
  // Waits for everything. The totals are then in shard_gradient, and OptimizerState::largest() is the maximum over all
  // ranks.
  void finish();
  // Of a split bucket: replaces the total of tensors()[index] by its sum over the two stages that compute its uses.
  // They call it together.
  void sum_uses(size_t index) const;
  // After an error: abandons the pending operations.
  void abandon();
  // What is exchanged is added to `traffic`, which outlives this.
  void set_traffic(spec::Traffic* traffic) { traffic_ = traffic; }
  // Reductions and gathers are recorded in `log`, which outlives this or its next call; null: none.
  void set_log(ActionLog* log) { log_ = log; }
  // How tensor-parallel ranks add up on the device; without it, by way of host memory.
  void set_tp_sum(nn::DeviceSum* sum) { tp_sum_ = sum; }
  // While set, nothing is exchanged with other ranks: for memory probes.
  void set_local_only(bool local_only) { local_only_ = local_only; }

  // Replaces x [n] f64, on the device, by its sum over all ranks: over the data-parallel ranks in order, then over the
  // stages, all but one of which have zeros.
  void sum(const Tensor& x) const;
  // squares [num_trainable()] f64, output: for each trainable tensor of the model, the sum of squares of its gradient.
  // `blocks` f64: for each of tensors() in order, this rank's sum of squares of each block (ops::sum_squares_block
  // elements) of its shard_gradient. With ShardSpec::sum_slices above 1: for those that this rank counts, of each of
  // TrainedParameter::square_blocks in its shard.
  void gather_squares(const Tensor& squares, const Tensor& blocks) const;
  // The same without shards: `squares` has this rank's sums of the tensors that it counts
  // (TrainedParameter::is_counted), and zeros for other tensors.
  void gather_squares(const Tensor& squares) const;
  // Starts all-gathering the bucket's weights (Bucket::runs), of which every rank has updated a part, after the work
  // submitted so far to the stream `after`. Nothing where they are gathered when they are used
  // (OptimizerState::has_whole_weights). All ranks call it for the same buckets in ascending order.
  void begin_gather(size_t bucket, Stream after);
  // Waits for the weights of buckets [0, buckets), of those that are being gathered: they are there for later work of
  // the compute stream.
  void finish_gathers(size_t buckets);
  // All-gathers the master of tensors()[index], of which several ranks have parts, into `whole` [n], on the device, of
  // the same dtype.
  void gather_master(size_t index, const Tensor& whole);

 private:
  // The ranks that have a gradient's parts; all are null where no other rank has any.
  struct Reduction {
    std::shared_ptr<comm::DeviceCommunicator> between;  // those that it is reduced over first
    std::shared_ptr<comm::DeviceCommunicator> across;   // those that it is reduced over then
    spec::Axis axis = spec::Axis::dp;                   // of `between`
  };
  // State of a bucket's synchronisation.
  struct BucketTransfer {
    comm::DeviceCommunicator::Workspace workspace, across;
    comm::DeviceCommunicator::PendingOperation operation;
    comm::DeviceCommunicator::PendingOperation gather;  // in `workspace`, which is for at least as many bytes
    bool has_sum = false;                               // Bucket::shard_sum has something of this step
  };
  bool alone() const { return ranks_.size() == 1 || local_only_; }
  bool one_stage() const { return stages_.size() == 1 || local_only_; }
  bool one_tp_rank() const { return tp_.size() == 1 || local_only_; }
  // The sums of squares of blocks, by TrainedParameter::divided and rank of the group that divides such tensors; a
  // rank's are in the order of the tensors.
  using RankBlocks = std::array<std::vector<std::vector<double>>, 2>;
  std::vector<double> sum_blocks(const RankBlocks& all) const;
  std::vector<double> sum_sliced_blocks(const RankBlocks& all) const;
  const Reduction& reduction(bool divided) const { return divided ? divided_ : whole_; }
  // Whether no other rank has other parts of the model.
  bool has_whole_model() const { return local_only_ || model_.size() == 1; }
  void sum_over_model(std::span<double> values) const;
  void sum_partial(const Bucket& bucket);
  void sum_partial_fixed(const Bucket& bucket);
  void sum_copied(const Bucket& bucket);
  void accumulate_pending();
  void finish_buckets();
  void wait(size_t bucket);
  void reduce_across(size_t bucket, const Tensor& section);  // where there are such ranks
  // This rank's section of the bucket.
  Tensor section_of(const Bucket& bucket) const;
  void count(spec::Axis axis, spec::Collective collective, size_t bytes) const {
    if (traffic_ != nullptr) traffic_->add({axis, collective}, static_cast<int64_t>(bytes));
  }

  ops::Context& context_;
  Device& device_;
  OptimizerState& optimizer_state_;
  comm::Group ranks_;                 // data-parallel
  comm::Group shard_, expert_shard_;  // as in comm::Grid
  comm::Group stages_;                // of the pipeline
  comm::Group tp_;                    // tensor-parallel
  nn::DeviceSum* tp_sum_ = nullptr;
  spec::Traffic* traffic_ = nullptr;
  ActionLog* log_ = nullptr;
  comm::Group model_;                               // comm::Grid::model
  Reduction whole_, divided_;                       // by TrainedParameter::divided
  std::shared_ptr<comm::DeviceCommunicator> uses_;  // of the stages that use a split tied embedding
  mutable comm::DeviceCommunicator::Workspace uses_workspace_;
  bool local_only_ = false;
  std::vector<BucketTransfer> transfers_;  // by bucket
  std::vector<size_t> in_flight_;          // buckets whose synchronisation has started
  std::deque<size_t> gathering_;           // buckets whose weights are being gathered
  std::vector<float> largest_;  // [num_trainable()]: largest contributions to fixed-point sums in this step so far
  std::optional<size_t> pending_bucket_;  // with every_micro_batch(): the bucket not yet added to Bucket::shard_sum
};

}  // namespace ingot::train

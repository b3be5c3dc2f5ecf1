// Context parallelism by a ring of keys and values (ring attention: Liu et al. 2023, arXiv 2310.01889): a rank has two
// chunks of the rows of every batch, one from the beginning and one from the end, so that causal work is even (Brandon
// et al. 2023, arXiv 2311.09431; spec/context_rows.h). In each of C steps it computes attention of their queries over
// the keys and values of one rank, its own first, and meanwhile sends these to the next rank and receives those of the
// previous one, so that it never has those of more than two. Letters: C ranks; T rows of a rank, two chunks of T / 2; Q
// heads, G key/value heads, D head size.
#pragma once

#include <cstddef>
#include <memory>

#include "base/function_ref.h"
#include "comm/device_communicator.h"
#include "ops/attention.h"
#include "spec/model.h"
#include "spec/traffic.h"

namespace ingot::nn {

class KeyValueRing {
 public:
  // `ranks`: if it works in a stream other than `compute`, and on CPUs, keys and values pass on during computations.
  // `bytes`: of the largest message.
  KeyValueRing(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes);
  // Of a model, for `tokens` of a rank, one of `tp` tensor-parallel ones: of gradients of keys and values, in f32.
  static size_t largest_bytes(const spec::ModelSpec& model, int64_t tp, int64_t tokens);
  // Bytes of make_workspace() for these.
  static size_t workspace_bytes(size_t bytes) { return 2 * bytes; }

  // What a rank has of a batch.
  struct Rows {
    Tensor q;        // [T, Q D], f32 or bf16
    Tensor k, v;     // [T, G D]
    Tensor offsets;  // as in ops::attention, of all rows
  };
  // out [T, Q D], of q's type, receives attention over the rows of all ranks: results over those of each are joined by
  // their log-sum-exps in fp32, and rounded once. lse, f32: the log-sum-exps, a matrix [Q, T / 2] for each chunk; may
  // be absent.
  void attend(ops::Context& context, const Tensor& out, const Tensor& lse, const Rows& rows,
              const ops::AttentionAttributes& attributes);
  struct Gradients {
    Tensor dq;      // [T, Q D]: assigned
    Tensor dk, dv;  // [T, G D]: assigned, of the queries of all ranks
  };
  // The same of the gradients, from dout [T, Q D] and what attend() has returned. Those of keys and values pass round
  // the ring with these, are added in fp32 in the order of the ranks that they reach, their own first, and are rounded
  // once.
  void attend_backward(ops::Context& context, const Gradients& gradients, const Tensor& dout, const Tensor& out,
                       const Tensor& lse, const Rows& rows, const ops::AttentionAttributes& attributes);

  // Scratch bytes of each, where `op` is what ops::attention or ops::attention_backward needs for T / 2 queries, and
  // T = `tokens`.
  static size_t forward_bytes(const spec::Attention& spec, int64_t tokens, DType activation, size_t op);
  static size_t backward_bytes(const spec::Attention& spec, int64_t tokens, DType activation, size_t op);

  // What is sent is added to `traffic`, which outlives this.
  void set_traffic(spec::Traffic* traffic) { traffic_ = traffic; }
  // While set, nothing is sent, and zeros are received: for memory probes.
  void set_local_only(bool local_only) { local_only_ = local_only; }

 private:
  // Some of the work of a step.
  struct ChunkPair {
    int64_t queries, keys;                // 0 or 1: of this rank's chunks, and of those whose keys are here
    ops::AttentionAttributes attributes;  // with the first rows of both
  };
  // In each step, calls `compute` with the keys and values [2, T, G D] that are here, for each pair of chunks of which
  // a query attends to a key; then `end_step`, while nothing is being sent.
  void turn(ops::Context& context, const Rows& rows, const ops::AttentionAttributes& attributes,
            FunctionRef<void(const Tensor& keys, const ChunkPair& pair)> compute, FunctionRef<void()> end_step);
  // Starts to send to the next rank and to receive from the previous one, as many bytes. Null where nothing is sent.
  comm::DeviceCommunicator::PendingOperation pass_on(ops::Context& context, const Tensor& received, const Tensor& sent);

  std::shared_ptr<comm::DeviceCommunicator> ranks_;
  comm::DeviceCommunicator::Workspace workspace_;
  spec::Traffic* traffic_ = nullptr;
  bool local_only_ = false;
};

}  // namespace ingot::nn

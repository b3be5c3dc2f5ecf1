// Time of a step by op, compared with a lower bound of each: the time of its arithmetic and of its memory
// traffic at the device's rates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/context.h"
#include "runtime/device_rates.h"

namespace ingot::bench {

class OpProfile : public ops::OpObserver {
 public:
  // Time, FLOPs and traffic of an op's calls; for gemms, of the calls with one shape.
  struct Row {
    std::string op;
    std::string shape;  // "MxNxK" of a gemm; empty for other ops
    bool wide = false;  // computes in f32
    int64_t calls = 0;
    double seconds = 0;  // without the time of nested ops
    // Only for gemms and attention (ops/work.h). Zero, as is `bytes`, for an op that calls gemms, which have rows of
    // their own.
    double flops = 0;
    double bytes = 0;  // each operand counted once (ops/work.h)

    // A lower bound in seconds: the larger of arithmetic time and traffic time. Operands in a cache may be faster.
    double floor(const runtime::PeakRates& most) const;
  };

  // `attention`: FLOPs per token of attention in one block, forward, mean over all blocks. A GPU is synchronised after
  // every op, so the ops of a step do not overlap here.
  OpProfile(Device& device, double attention) : done_(device.make_event()), attention_(attention) {}

  void begins(const char* op) override;
  void ran(const char* op, std::span<const Tensor> tensors, const ops::OpWork& work) override;

  // The mean over `steps` steps of the same calls, sorted by descending time.
  std::vector<Row> rows(int64_t steps = 1) const;

 private:
  struct RunningOp {
    double at;               // start time in seconds
    double inside = 0;       // seconds of nested ops
    bool has_gemms = false;  // whether a nested op is a gemm
  };
  double now();  // time in seconds after all queued device work has finished
  std::unique_ptr<Event> done_;
  double attention_;
  std::vector<RunningOp> running_;
  std::map<std::pair<std::string, std::string>, Row> rows_;  // by op and shape
};

// Time of a step by op.
struct StepProfile {
  double seconds = 0;
  std::vector<OpProfile::Row> rows;
  runtime::PeakRates most;
};

}  // namespace ingot::bench

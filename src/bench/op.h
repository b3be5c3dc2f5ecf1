// Correctness and speed of every op of the op table: `ingot bench op`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/context.h"
#include "ops/testing/op_table.h"
#include "runtime/device_rates.h"
#include "runtime/runtime.h"
#include "tensor/arena.h"

namespace ingot::bench {

struct OpOptions {
  std::vector<std::string> ops;  // names; empty: all
  std::string device = "cpu";
  std::optional<int64_t> threads;
  double seconds = 0.2;  // of timing per case
  bool check = false;    // a wrong result is reported and does not stop
  bool small = false;    // times the compared cases, as on a simulated GPU
};

// The names of all ops, in the order of the op table.
std::vector<std::string> op_names();

// A case that did not pass.
struct OpVerdict {
  std::string op, name;  // of the case
  std::string text;
  bool failed = false;  // false: declined
};

struct OpVerdicts {
  std::vector<std::string> ops;  // those of which all cases that ran are correct
  int64_t passed = 0;
  std::vector<OpVerdict> declined, failed;
};

struct OpTime {
  std::string op, name;            // of the case
  double seconds = 0;              // per call
  double flops = 0, bytes = 0;     // per second
  std::optional<double> share;     // of the limiting peak rate; absent where it is above 1
  bool exceeds_bandwidth = false;  // the operands were in a cache, so that the share means nothing
};

// Nanoseconds of processor time per call, over the cases of an op that reach an implementation.
struct OpHostTime {
  std::string op;
  size_t cases = 0;
  double min_ns = 0, mean_ns = 0, max_ns = 0;
};

class OpBench {
 public:
  // Errors: usage for seconds outside (0, 60] and unknown ops; those of open_runtime.
  explicit OpBench(const OpOptions& options);

  const runtime::Runtime& runtime() const { return runtime_; }

  // Compares each case with its reference. `report` gets each case that did not pass. Errors: internal for a wrong
  // result, without OpOptions::check.
  OpVerdicts verify(const std::function<void(const OpVerdict&)>& report);

  // Times cases: on a CPU those of CPU size, on a GPU large ones, and on a simulated GPU, whose times mean nothing, the
  // compared cases. Their shares are of `most`. `report` gets each.
  std::vector<OpTime> time(const runtime::PeakRates& most, const std::function<void(const OpTime&)>& report);

  // The host's part of a call: argument checks and dispatch.
  std::vector<OpHostTime> time_host();

 private:
  bool wanted(const std::string& op) const;
  ops::testing::Verdict compare(const ops::testing::OpCase& each);

  OpOptions options_;
  runtime::Runtime runtime_;
  Arena scratch_;  // empty: cases allocate their own
  ops::Context context_;
};

}  // namespace ingot::bench

// Compares every case of the op table, on every vector kernel of this CPU, with its double-precision reference, as
// tests/ops/op_table_test.cpp does, without a test framework that would have to be compiled for another architecture.
// Only that test compares gradients with finite differences, too. Arguments: I N: share I (from 0) of N shares of the
// ops. The exit code is 1, and the reason is printed, when a comparison fails, an implementation accepts no case, or
// the share is empty.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "backend/cpu/cpu_device.h"
#include "base/thread_pool.h"
#include "ops/testing/op_table.h"

namespace {

using namespace ingot;

struct Counts {
  int compared = 0;
  int failed = 0;

  void add(const ops::testing::Verdict& verdict) {
    if (verdict.outcome == ops::testing::Outcome::declined) return;
    ++compared;
    if (verdict.outcome == ops::testing::Outcome::passed) return;
    ++failed;
    std::printf("FAILED: %s\n", verdict.text.c_str());
  }
};

Counts check(const std::string& op, const std::string& implementation) {
  const std::unique_ptr<Device> device = cpu::make_device();
  ops::Registry registry;
  cpu::register_ops(registry);
  registry.select_implementation(op, implementation);
  Arena scratch;
  ThreadPool threads(2);
  ops::Context context{*device, registry, scratch, &threads};
  Counts counts;
  for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
    if (op_case.op != op || op_case.timing_only) continue;
    counts.add(ops::testing::compare(context, op_case));
  }
  return counts;
}

}  // namespace

int main(int count, char** arguments) {
  const int share = count == 3 ? std::atoi(arguments[1]) : 0;
  const int shares = count == 3 ? std::atoi(arguments[2]) : 1;
  if (share < 0 || share >= shares) {
    std::printf("FAILED: there is no share %d of %d\n", share, shares);
    return 1;
  }
  ops::Registry registry;
  cpu::register_ops(registry);
  int number = 0, status = 0, compared = 0, kernels = 0;
  for (const ops::Registry::Listing& listing : registry.listings()) {
    if (number++ % shares != share) continue;
    for (const std::string& implementation : listing.implementations) {
      if (implementation == "reference") continue;
      const Counts counts = check(listing.op, implementation);
      compared += counts.compared;
      ++kernels;
      if (counts.failed > 0) status = 1;
      if (counts.compared > 0) continue;
      std::printf("FAILED: no case of the table runs on %s=%s\n", listing.op.c_str(), implementation.c_str());
      status = 1;
    }
  }
  std::printf("share %d of %d: %d implementations, %d comparisons\n", share, shares, kernels, compared);
  return kernels > 0 ? status : 1;
}

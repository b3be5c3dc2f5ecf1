// Records the gemms that a computation asks for, by implementations that decline every call.
#pragma once

#include <vector>

#include "backend/cpu/ops.h"
#include "ops/linear_group.h"
#include "ops/matmul.h"
#include "ops/registry.h"

namespace ingot {

struct RecordedGemm {
  bool weight_gradient;  // a matmul with transpose_a
  int64_t columns;       // of the weight (in) or, for matmul, of c
  int64_t rows;          // of the weight (out) or, for matmul, of c
  ops::Invariance invariance;
};

inline std::vector<RecordedGemm> recorded_gemms;

// The CPU's implementations, after those that record.
inline ops::Registry recording_registry() {
  recorded_gemms.clear();
  ops::Registry registry;
  registry.add<ops::Matmul>(
      DeviceKind::cpu, "recorder",
      [](ops::Context&, const Tensor&, const Tensor&, const Tensor&, ops::MatmulAttributes) {},
      [](const ops::Context&, const Tensor& c, const Tensor&, const Tensor&, ops::MatmulAttributes attributes,
         ops::Refusal refuse) {
        recorded_gemms.push_back({attributes.transpose_a, c.shape[1], c.shape[0], attributes.invariance});
        return refuse("records");
      });
  const auto decline_linear = [](const ops::Context&, const Tensor&, const Tensor&, const Weight& weight,
                                 ops::LinearAttributes attributes, ops::Refusal refuse) {
    recorded_gemms.push_back({false, weight.in, weight.out, attributes.invariance});
    return refuse("records");
  };
  const auto run_linear = [](ops::Context&, const Tensor&, const Tensor&, const Weight&, ops::LinearAttributes) {};
  registry.add<ops::Linear>(DeviceKind::cpu, "recorder", run_linear, decline_linear);
  registry.add<ops::LinearBackwardInput>(DeviceKind::cpu, "recorder", run_linear, decline_linear);
  registry.add<ops::LinearGroup>(
      DeviceKind::cpu, "recorder",
      [](ops::Context&, std::span<const Tensor>, const Tensor&, std::span<const Weight>, ops::LinearGroupAttributes) {},
      [](const ops::Context&, std::span<const Tensor>, const Tensor&, std::span<const Weight> weights,
         ops::LinearGroupAttributes attributes, ops::Refusal refuse) {
        for (const Weight& weight : weights)
          recorded_gemms.push_back({false, weight.in, weight.out, attributes.linear.invariance});
        return refuse("records");
      });
  cpu::register_ops(registry);
  return registry;
}

}  // namespace ingot

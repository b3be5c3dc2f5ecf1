#include "ops/testing/host_time.h"

#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/columns.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/fixed_sum.h"
#include "ops/glu.h"
#include "ops/layer_norm.h"
#include "ops/linear_fp8.h"
#include "ops/linear_low_rank.h"
#include "ops/lora.h"
#include "ops/matmul.h"
#include "ops/moe.h"
#include "ops/op_list.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/sampling.h"

namespace ingot::ops::testing {
namespace {

template <class Signature>
struct Nothing;
template <class... Args>
struct Nothing<void(ops::Context&, Args...)> {
  static void run(ops::Context&, Args...) {}
};

template <class Op>
void copy(const ops::Registry& from, ops::Registry& to) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::hip, DeviceKind::sim}) {
    for (const ops::Registry::Entry& entry : from.list(Op::name, kind)) {
      to.add<Op>(kind, entry.name, Nothing<typename Op::Signature>::run,
                 reinterpret_cast<ops::DeclineOf<Op>>(entry.decline));
    }
  }
}

}  // namespace

ops::Registry without_kernels(const ops::Registry& registry) {
  ops::Registry copied;
#define INGOT_COPY(Op) copy<ops::Op>(registry, copied);
  INGOT_OP_STRUCTS(INGOT_COPY)
#undef INGOT_COPY
  return copied;
}

}  // namespace ingot::ops::testing

// Kernels with one fault each that the simulated GPU must detect.
#include "backend/gpu/gpu.h"

namespace ingot::gpu {

struct FaultArgs {
  float* out;  // [128]
};

}  // namespace ingot::gpu

GPU_KERNEL(fault_none, FaultArgs, 128)
GPU_KERNEL(fault_no_barrier, FaultArgs, 128)
GPU_KERNEL(fault_no_warp_barrier, FaultArgs, 128)
GPU_KERNEL(fault_divergent_shuffle, FaultArgs, 128)
GPU_KERNEL(fault_barrier_not_reached, FaultArgs, 128)
GPU_KERNEL(fault_lanes_left, FaultArgs, 128)
GPU_KERNEL(fault_two_shared, FaultArgs, 128)
GPU_KERNEL(fault_width_32, FaultArgs, 128)
GPU_KERNEL(fault_unset_shared, FaultArgs, 128)
GPU_KERNEL_WARPS(fault_none_copied, FaultArgs, 2)
GPU_KERNEL_WARPS(fault_copy_not_ended, FaultArgs, 2)
GPU_KERNEL_WARPS(fault_copy_too_young, FaultArgs, 2)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

struct Values {
  float at[128];
};

// Each of 32 threads copies four neighbouring elements of `out` asynchronously and adds 1, after it waited for all but
// `waits` copies (not at all when negative).
template <int waits>
GPU_FN void copied(const FaultArgs& a) {
  GPU_SHARED(Values, shared);
  if (thread_index() >= 32) return;
  const int at = thread_index() * 4;
  AsyncCopies<1> copies;
  copies.begin(0, shared.at + at, a.out + at, at < 120);
  copies.commit();
  if constexpr (waits >= 0) copies.wait<waits>();
  for (int i = 0; i < 4; ++i) a.out[at + i] = shared.at[at + i] + 1.0F;
}

}  // namespace

// out[i] = (i + 1) % 128, read from the neighbour's element.
GPU_KERNEL_BODY(fault_none, FaultArgs) {
  GPU_SHARED(Values, shared);
  const int i = thread_index();
  shared.at[i] = static_cast<float>(i);
  block_barrier();
  a.out[i] = shared.at[(i + 1) % 128];
}

GPU_KERNEL_BODY(fault_no_barrier, FaultArgs) {
  GPU_SHARED(Values, shared);
  const int i = thread_index();
  shared.at[i] = static_cast<float>(i);
  a.out[i] = shared.at[(i + 1) % 128];
}

GPU_KERNEL_BODY(fault_no_warp_barrier, FaultArgs) {
  GPU_SHARED(Values, shared);
  const int i = thread_index();
  shared.at[i] = static_cast<float>(i);
  block_barrier();
  const float next = shared.at[i / 32 * 32 + (i + 1) % 32];
  shared.at[i] = next + 1.0F;  // other threads may not have read `shared` yet
  a.out[i] = shared.at[i / 32 * 32 + (i + 31) % 32];
}

GPU_KERNEL_BODY(fault_divergent_shuffle, FaultArgs) {
  const int i = thread_index();
  float value = static_cast<float>(i);
  if (i % 2 == 0) {
    value = shuffle_xor(value, 2);
  } else {
    value = shuffle_xor(value, 4);
  }
  a.out[i] = value;
}

GPU_KERNEL_BODY(fault_barrier_not_reached, FaultArgs) {
  if (thread_index() == 77) return;
  block_barrier();
  a.out[thread_index()] = 1.0F;
}

GPU_KERNEL_BODY(fault_lanes_left, FaultArgs) {
  if (thread_index() % 8 == 3) return;
  a.out[thread_index()] = warp_sum(1.0F);
}

GPU_KERNEL_BODY(fault_two_shared, FaultArgs) {
  GPU_SHARED(Values, shared);
  float* other = dynamic_shared<float>();
  shared.at[thread_index()] = 0.0F;
  a.out[thread_index()] = other[0];
}

// Assumes that a sum of 1 over the lanes is 32.
GPU_KERNEL_BODY(fault_width_32, FaultArgs) {
  float sum = 1.0F;
  for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
  GPU_SHARED(Values, shared);
  if (lane_index() == 0) shared.at[thread_index() / 32] = sum;
  block_barrier();
  a.out[thread_index()] = shared.at[0] + shared.at[1] + shared.at[2] + shared.at[3];
}

GPU_KERNEL_BODY(fault_unset_shared, FaultArgs) {
  GPU_SHARED(Values, shared);
  a.out[thread_index()] = shared.at[thread_index()];
}

GPU_KERNEL_BODY(fault_none_copied, FaultArgs) { copied<0>(a); }
GPU_KERNEL_BODY(fault_copy_not_ended, FaultArgs) { copied<-1>(a); }
GPU_KERNEL_BODY(fault_copy_too_young, FaultArgs) { copied<1>(a); }

}  // namespace ingot::gpu::GPU_TARGET
#else
#include "tests/backend/gpu/faulty.h"

namespace ingot::gpu {

std::vector<KernelInfo> faulty_kernels() {
  return {fault_none.info,
          fault_no_barrier.info,
          fault_no_warp_barrier.info,
          fault_divergent_shuffle.info,
          fault_barrier_not_reached.info,
          fault_lanes_left.info,
          fault_two_shared.info,
          fault_width_32.info,
          fault_unset_shared.info,
          fault_none_copied.info,
          fault_copy_not_ended.info,
          fault_copy_too_young.info};
}

}  // namespace ingot::gpu
#endif

// Peak rates of a device, to which runs, `ingot devices` and `ingot bench` relate their speed.
#pragma once

#include <string>

#include "backend/cpu/row_order.h"
#include "ops/context.h"
#include "runtime/rate_cache.h"
#include "runtime/runtime.h"
#include "tensor/device_rates.h"

namespace ingot::runtime {

// Dense bf16 FLOP/s of a GPU according to its vendor's data sheet; 0 for an unknown GPU. `model` is the driver's name
// of it, "NVIDIA H200".
double datasheet_bf16(const std::string& model);

// A GPU's rates with the implementations that would run (the vendor's library takes precedence over our kernels), on
// random numbers.
struct GpuRates {
  double gemm;    // FLOP/s of bf16 matrix multiplication, up to 8192-cubes
  double copied;  // bytes/s, read plus written, of a copy of up to 512 MiB
};
// Both are measured at the smallest size whose call takes a millisecond; on a simulated device that says nothing about
// a real one. Allocates at most 1 GiB of the device's memory during the call.
GpuRates measure_gpu(Device& device, const ops::Registry& registry);

// The key of a CPU's rates in the cache. `ranks`: number of ranks on this machine, which compute at the same time.
RatesKey rates_key(const Runtime& runtime, int64_t ranks = 1);
// The cache under the home folder; without a home folder nothing is cached.
RateCache rate_cache(const RatesKey& key);

// Scratch of the context that measures: 2048-cubes are three matrices of four bytes per element, and the op has its
// own.
constexpr size_t measuring_bytes = size_t{256} << 20;

struct CpuRates {
  DeviceRates rates;
  std::string not_cached;  // error message when the rates could not be cached
};
// A CPU's rates in bf16 or fp32: from the cache, or measured now, for about `seconds`.
CpuRates cpu_rates(const RateCache& cache, ops::Context& context, DType dtype, Measure when = Measure::if_missing,
                   double seconds = 0.4);
// The same for the memory read bandwidth in bytes/s, one value.
MeasuredRates cpu_read_rate(const RateCache& cache, ops::Context& context, Measure when = Measure::if_missing,
                            double seconds = 0.4);

// The order of reading weights: the one known for the processor, else from the cache, else from `measure`.
struct CpuRowOrder {
  cpu::RowOrder order;
  std::string date;        // when it was measured; empty if it is known
  std::string not_cached;  // error message when it could not be cached
};
CpuRowOrder cpu_row_order(const ProcessorId& processor, const RateCache& cache, FunctionRef<cpu::RowOrder()> measure,
                          Measure when = Measure::if_missing);

// FLOP/s of matrix products in bf16, measured now. On a CPU for about `seconds`; on a GPU as measure_gpu.
double measured_gemm(const Runtime& runtime, double seconds = 0.4);

// Upper bounds for an op's speed, on any device; 0 where unknown.
struct PeakRates {
  double bf16_flops = 0, f32_flops = 0;  // FLOP/s: register loops on a CPU, gemms on a GPU
  double bytes = 0;                      // bytes/s of memory: reading on a CPU, copying on a GPU
  double datasheet_bf16_flops = 0;       // FLOP/s
};
// On a CPU: cached rates, or measured in about two seconds with at most 512 MiB of memory; on a GPU: measure_gpu.
PeakRates find_peak_rates(const Runtime& runtime);

// Rates for a training run in `activation` on a GPU, before the run allocates its memory: the data sheet's peak and
// measured gemms, both in bf16; zeros in fp32, and for simulated devices.
DeviceRates gpu_training_rates(const Runtime& runtime, DType activation);

}  // namespace ingot::runtime

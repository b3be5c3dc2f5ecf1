// What a device reaches, for shares of peak in runs, `ingot devices` and `ingot bench`.
#pragma once

#include <string>

#include "app/rate_cache.h"
#include "app/runtime.h"
#include "ops/context.h"
#include "train/utilisation.h"

namespace ingot::app {

// Dense bf16 FLOP/s of a GPU by its vendor's data sheet (specs: flops.md); 0 for one that is not in that list. `model`
// is the driver's name of it, "NVIDIA H200".
double datasheet_bf16(const std::string& model);

// A GPU's rates, by the implementations that would run (the vendor's library before our kernels), on random numbers.
struct GpuRates {
  double products;  // FLOP/s of bf16 matrix products, 8192-cubes
  double copied;    // bytes/s, read and written, far beyond the caches
};
// Takes 1.5 GiB of the device's memory for the time of the call. A simulated device multiplies 64-cubes: its rates say
// nothing.
GpuRates measure_gpu(Device& device, const ops::Registry& registry);

// What a CPU's rates are cached for. `ranks`: of this machine, which compute at the same time.
RatesKey rates_key(const Runtime& runtime, int64_t ranks = 1);
// Under the home folder; where there is none, nothing is cached.
RateCache rate_cache(const RatesKey& key);

struct CpuRates {
  train::DeviceRates rates;
  std::string not_cached;  // why they could not be cached
};
// A CPU's, in bf16 or fp32: those that are cached, or measured now, for about `seconds`.
CpuRates cpu_rates(const RateCache& cache, ops::Context& context, DType dtype, Measure when = Measure::if_missing,
                   double seconds = 0.4);
// The same of bytes a second read from memory, one value.
MeasuredRates cpu_read_rate(const RateCache& cache, ops::Context& context, Measure when = Measure::if_missing,
                            double seconds = 0.4);

// What an op's time is compared with, on any device; 0 where it is not known.
struct Ceilings {
  double bf16_flops = 0, f32_flops = 0;  // FLOP/s: a CPU's register loops, products that a GPU reaches
  double bytes = 0;                      // bytes/s of memory: a CPU's read, a GPU's copied
  double datasheet_bf16_flops = 0;       // FLOP/s
};
// A CPU's that are cached, else measured in about two seconds with at most 512 MiB of memory; a GPU's by measure_gpu.
Ceilings find_ceilings(const Runtime& runtime);

// Of a training run in `activation` on a GPU, before it takes its memory: the datasheet's peak and measured products,
// both in bf16; zeros in fp32, and for simulated devices.
train::DeviceRates gpu_training_rates(const Runtime& runtime, DType activation);

}  // namespace ingot::app

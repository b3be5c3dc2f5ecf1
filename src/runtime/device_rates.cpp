#include "runtime/device_rates.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "backend/cpu/cpu_device.h"
#include "base/cpu_list.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/machine.h"
#include "checkpoint/registry.h"
#include "ops/context.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "runtime/random_pool.h"

namespace ingot::runtime {

namespace {

// Minimum time in seconds of five calls of `body`, which must leave the device idle.
template <class Body>
double seconds_of(Body body) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (int call = 0; call < 5; ++call) {
    const auto start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

double datasheet_bf16(const std::string& model) {
  // A name that is a prefix of another comes after it.
  constexpr std::pair<const char*, double> sheets[] = {{"A100", 312e12},    {"H100 PCIe", 756e12}, {"H100 NVL", 835e12},
                                                       {"H100", 989e12},    {"H200", 989e12},      {"B200", 2250e12},
                                                       {"MI250X", 383e12},  {"MI250", 362e12},     {"MI300X", 1307e12},
                                                       {"MI325X", 1307e12}, {"MI350X", 2307e12},   {"MI355X", 2517e12}};
  for (const auto& [name, flops] : sheets) {
    if (model.find(name) != std::string::npos) return flops;
  }
  return 0;
}

GpuRates measure_gpu(Device& device, const ops::Registry& registry) {
  // Sizes grow from small ones until a call takes this long, so that a simulated device is not given an hour's work.
  constexpr double long_call = 1e-3;  // seconds
  constexpr int64_t max_side = 8192;
  constexpr int64_t max_copied = int64_t{1} << 28;
  Arena scratch;
  ops::Context context{device, registry, scratch, nullptr};
  RandomPool random(1, max_copied);
  const auto timed = [&](const Tensor& result, int calls, auto op) {
    op();
    const double seconds = seconds_of([&] {
      for (int call = 0; call < calls; ++call) op();
      uint16_t one = 0;
      device.copy_to_host(&one, result.data, sizeof one);  // synchronises with the kernels
    });
    return seconds / calls;
  };
  GpuRates rates{};
  double seconds = 0;
  for (int64_t side = 64; side <= max_side && seconds < long_call; side *= 2) {
    Arena memory(device, 3 * Arena::footprint(DType::bf16, {side, side}), "measuring");
    const auto allocate = [&] {
      const Tensor tensor = memory.allocate(DType::bf16, {side, side});
      random.fill(device, tensor, 1);
      return tensor;
    };
    const Tensor a = allocate();
    const Tensor b = allocate();
    const Tensor c = allocate();
    seconds = timed(c, 10, [&] { ops::matmul(context, c, a, b, {.transpose_b = true}); });
    rates.gemm = 2.0 * static_cast<double>(side * side * side) / seconds;
  }
  seconds = 0;
  for (int64_t copied = 4096; copied <= max_copied && seconds < long_call; copied *= 4) {
    Arena memory(device, 2 * Arena::footprint(DType::bf16, {copied}), "measuring");
    const Tensor from = memory.allocate(DType::bf16, {copied});
    const Tensor to = memory.allocate(DType::bf16, {copied});
    random.fill(device, from, 1);
    seconds = timed(to, 20, [&] { ops::scale(context, to, from, 1.0F); });
    rates.copied = 2.0 * static_cast<double>(from.bytes()) / seconds;
  }
  return rates;
}

RatesKey rates_key(const Runtime& runtime, int64_t ranks) {
  const char* operations = environment("INGOT_OPS");
  return {.processor = cpu_name(),
          .cores = std::ssize(usable_cpus()),
          .isa = runtime.device->arch(),
          .threads = runtime.threads->threads(),
          .ranks = ranks,
          .version = INGOT_VERSION,
          .operations = operations != nullptr ? operations : ""};
}

RateCache rate_cache(const RatesKey& key) {
  std::filesystem::path folder;
  try {
    folder = checkpoint::ingot_home() / "rates";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;  // there is no home folder
  }
  return {std::move(folder), key};
}

CpuRates cpu_rates(const RateCache& cache, ops::Context& context, DType dtype, Measure when, double seconds) {
  const MeasuredRates found = cached_or_measured(cache, name(dtype), 2, when, [&] {
    const cpu::GemmRates rates = cpu::measure_gemm(context, dtype, seconds);
    return std::vector<double>{rates.arithmetic, rates.matmul};
  });
  return {{found.values[0], found.values[1], found.date}, found.not_cached};
}

MeasuredRates cpu_read_rate(const RateCache& cache, ops::Context& context, Measure when, double seconds) {
  return cached_or_measured(cache, "read", 1, when,
                            [&] { return std::vector<double>{cpu::measure_read(context, seconds)}; });
}

CpuRowOrder cpu_row_order(const ProcessorId& processor, const RateCache& cache, FunctionRef<cpu::RowOrder()> measure,
                          Measure when) {
  if (const auto known = cpu::known_row_order(processor)) return {*known, "", ""};
  // Cached as one more than its number, since rates are above 0.
  const auto measured = [&] { return std::vector<double>{1 + static_cast<double>(measure())}; };
  MeasuredRates found = cached_or_measured(cache, "row-order", 1, when, measured);
  const double last = static_cast<double>(cpu::row_orders.size());
  if (found.values[0] > last) found = cached_or_measured(cache, "row-order", 1, Measure::again, measured);
  return {cpu::row_orders[static_cast<size_t>(std::clamp(found.values[0], 1.0, last)) - 1], found.date,
          found.not_cached};
}

double measured_gemm(const Runtime& runtime, double seconds) {
  if (runtime.device->kind() != DeviceKind::cpu) return measure_gpu(*runtime.device, runtime.registry).gemm;
  Arena scratch(*runtime.device, size_t{256} << 20, "scratch");
  ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
  return cpu_rates(RateCache({}, {}), context, DType::bf16, Measure::if_missing, seconds).rates.gemm;
}

PeakRates find_peak_rates(const Runtime& runtime) {
  if (runtime.device->kind() == DeviceKind::cpu) {
    Arena scratch(*runtime.device, size_t{256} << 20, "scratch");
    ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
    const RateCache cache = rate_cache(rates_key(runtime));
    PeakRates rates{cpu_rates(cache, context, DType::bf16).rates.peak, cpu_rates(cache, context, DType::f32).rates.peak,
                    cpu_read_rate(cache, context).values[0], 0};
    // Without bf16 dot products both types use the same arithmetic, measured twice: the higher rate is used.
    if (!cpu::has_bf16_dot_products()) rates.bf16_flops = rates.f32_flops = std::max(rates.bf16_flops, rates.f32_flops);
    return rates;
  }
  const GpuRates rates = measure_gpu(*runtime.device, runtime.registry);
  return {rates.gemm, 0, rates.copied, datasheet_bf16(runtime.model)};
}

DeviceRates gpu_training_rates(const Runtime& runtime, DType activation) {
  if (activation != DType::bf16 || runtime.device->kind() == DeviceKind::sim) return {};
  return {datasheet_bf16(runtime.model), measure_gpu(*runtime.device, runtime.registry).gemm};
}

}  // namespace ingot::runtime

// ingot devices: the available devices, with measured rates.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/attention_library.h"
#include "backend/gpu/runtime/code_objects.h"
#include "backend/gpu/runtime/driver_device.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "backend/gpu/runtime/nccl.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/machine.h"
#include "base/processor.h"
#include "base/strings.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "runtime/device_rates.h"
#include "runtime/gemm_report.h"
#include "runtime/runtime.h"

namespace ingot::cli {

namespace {

double tera(double per_second) { return per_second / 1e12; }

using Json = nlohmann::ordered_json;

// The targets of this build: the CPU, the simulated GPUs, and the GPU architectures with compiled code.
Json built_for() {
  Json all = {"cpu", "sim32", "sim64"};
  for (const gpu::CodeObject& code : gpu::code_objects()) {
    if (std::find(all.begin(), all.end(), code.architecture) == all.end()) all.push_back(code.architecture);
  }
  return all;
}

// Prints how the device runs the gemms of training and serving. `fastest`: FLOP/s of its square gemms.
Json gemms_of(const Output& output, gpu::GpuDevice& device, const ops::Registry& registry, double fastest) {
  std::vector<runtime::GemmReport> reports;
  for (const runtime::GemmJob& job : runtime::gemm_jobs())
    reports.push_back(runtime::report_gemm(device, registry, job, fastest));
  for (const runtime::GemmReport& report : reports) fastest = std::max(fastest, report.flops_per_s);
  Json all = Json::array();
  output.print(fmt::format("     gemms of bf16; shares are of {:.3f} TFLOP/s, the fastest of them\n", tera(fastest)));
  for (size_t i = 0; i < reports.size(); ++i) {
    const runtime::GemmJob& job = runtime::gemm_jobs()[i];
    const auto& [plan, flops, not_measured] = reports[i];
    const bool library = plan.reason.empty();
    const auto or_null = [&](bool known, const auto& value) { return known ? Json(value) : Json(); };
    all.push_back({{"name", job.name},
                   {"m", job.m},
                   {"n", job.n},
                   {"k", job.k},
                   {"declined", or_null(!library, plan.reason)},
                   {"algorithm", or_null(library, plan.algorithm)},
                   {"tile", or_null(!plan.tile.empty(), plan.tile)},
                   {"split_k", or_null(library && plan.split_k > 0, plan.split_k)},
                   {"waves", or_null(library && plan.waves > 0, plan.waves)},
                   {"workspace_bytes", or_null(library, plan.workspace_bytes)},
                   {"tflops", or_null(flops > 0, tera(flops))},
                   {"share", or_null(flops > 0, flops / fastest)},
                   {"not_measured", or_null(flops == 0, not_measured)}});
    const std::string how = library ? fmt::format("{}, tile {}, split-k {}, waves {}, workspace {}", plan.algorithm,
                                                  plan.tile.empty() ? "unknown" : plan.tile,
                                                  plan.split_k > 0 ? fmt::to_string(plan.split_k) : "unknown",
                                                  plan.waves > 0 ? fmt::format("{:.2f}", plan.waves) : "unknown",
                                                  format_bytes(plan.workspace_bytes))
                                    : fmt::format("our kernels: {}", plan.reason);
    const std::string speed = flops > 0 ? fmt::format("{:.3f} TFLOP/s, {:.1f} %", tera(flops), 100 * flops / fastest)
                                        : fmt::format("not measured: {}", not_measured);
    output.print(fmt::format("       {} ({} x {}, k {}): {}; {}\n", job.name, job.m, job.n, job.k, how, speed));
  }
  return all;
}

class Devices : public Command {
 public:
  const char* name() const override { return "devices"; }
  const char* summary() const override {
    return "list devices with memory and measured speed, and why others are unavailable";
  }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.option("threads", threads_, "CPU threads (default: all)");
    arguments.option("seconds", seconds_, "duration of a measurement");
    arguments.flag("measure", measure_, "measure the CPU again, even if its rates are cached");
    arguments.flag("products", products_,
                   "GPUs: for the gemms of training and serving, the vendor library's algorithm and the speed");
    arguments.example("ingot devices --measure");
  }

  int run(const Output& output) override {
    if (!(seconds_ > 0) || seconds_ > 600)
      throw_error(ErrorKind::usage, "--seconds {}; must be above 0 and at most 600", seconds_);
    exit_on_interrupt();
    const runtime::Runtime runtime = runtime::open_runtime("cpu", threads_);
    Device& device = *runtime.device;
    Arena scratch(device, runtime::measuring_bytes, "scratch");
    ops::Context context{device, runtime.registry, scratch, runtime.threads.get()};
    const runtime::RateCache cache = runtime::rate_cache(runtime::rates_key(runtime));
    const runtime::Measure when = measure_ ? runtime::Measure::again : runtime::Measure::if_missing;
    const runtime::CpuRates bf16 = runtime::cpu_rates(cache, context, DType::bf16, when, seconds_ * 2 / 5);
    const runtime::CpuRates f32 = runtime::cpu_rates(cache, context, DType::f32, when, seconds_ * 2 / 5);
    const runtime::MeasuredRates read = runtime::cpu_read_rate(cache, context, when, seconds_ / 5);

    runtime::WeightOrder order = runtime.weight_order;
    if (measure_) {
      const auto again = [&] { return cpu::measure_row_order(context); };
      const runtime::CpuRowOrder found = runtime::cpu_row_order(processor_id(), cache, again, when);
      order = {cpu::name(found.order), found.date, found.not_cached};
    }

    std::string not_cached;
    for (const std::string& why : {bf16.not_cached, f32.not_cached, read.not_cached, order.not_cached}) {
      if (!why.empty()) not_cached = why;
    }

    Json devices = Json::array();
    const Json cpu = {{"name", device.name()},
                      {"kind", ingot::name(device.kind())},
                      {"arch", device.arch()},
                      {"model", cpu_name()},
                      {"threads", runtime.threads->threads()},
                      {"memory_bytes", device.memory_bytes()},
                      {"memory_available_bytes", device.memory_available()},
                      {"peak_tflops", tera(std::max(bf16.rates.peak, f32.rates.peak))},
                      {"peak_bf16_tflops", tera(bf16.rates.peak)},
                      {"peak_f32_tflops", tera(f32.rates.peak)},
                      {"gemm_bf16_tflops", tera(bf16.rates.gemm)},
                      {"gemm_f32_tflops", tera(f32.rates.gemm)},
                      {"read_gb_s", read.values[0] / 1e9},
                      {"row_order", order.name},
                      {"row_order_measured", order.date.empty() ? Json() : Json(order.date)},
                      {"measured", {{"bf16", bf16.rates.date}, {"f32", f32.rates.date}, {"read", read.date}}},
                      {"cached", not_cached.empty()},
                      {"not_cached", not_cached.empty() ? Json() : Json(not_cached)}};
    output.print(fmt::format("cpu  {}, {} threads, {}\n", cpu_name(), runtime.threads->threads(), device.arch()));
    output.print(fmt::format("     memory {} ({} free), read at {:.1f} GB/s\n", format_bytes(device.memory_bytes()),
                             format_bytes(device.memory_available()), read.values[0] / 1e9));
    for (const auto& [name, measured] : {std::pair("bf16", bf16), std::pair("fp32", f32)}) {
      output.print(fmt::format("     {}: peak {:.3f} TFLOP/s, matrix product {:.3f}, as measured {}\n", name,
                               tera(measured.rates.peak), tera(measured.rates.gemm), measured.rates.date));
    }
    output.print(fmt::format("     rows of weights are read in the order '{}', {}\n", order.name,
                             order.date.empty() ? "known for this processor" : "as measured " + order.date));
    if (!not_cached.empty()) output.print(fmt::format("     these rates are not cached: {}\n", not_cached));
    devices.push_back(cpu);
    Json unavailable = Json::array();
    add_gpus(output, "cuda", gpu::find_cuda_driver(), products_, devices, unavailable);
    add_gpus(output, "hip", gpu::find_hip_driver(), products_, devices, unavailable);
    for (const Json& each : unavailable) {
      output.print(fmt::format("{}  {}\n", each["backend"].get<std::string>(), each["reason"].get<std::string>()));
    }
    Json libraries = Json::array();
    for (const gpu::LibraryInfo& info : {gpu::info_of_cublaslt(), gpu::info_of_cudnn(), gpu::info_of_hipblaslt(),
                                         gpu::info_of_nccl(), gpu::info_of_rccl()}) {
      libraries.push_back(
          {{"name", info.name}, {"path", info.path}, {"version", info.version}, {"reason", info.reason}});
      if (info.path.empty()) {
        output.print(fmt::format("{}  {}\n", info.name, info.reason));
      } else {
        output.print(
            fmt::format("{}  {} ({})\n", info.name, info.path,
                        info.version.empty() ? "version known only on a machine with a device" : info.version));
      }
    }
    output.print(fmt::format("built for {}\n", fmt::join(built_for().get<std::vector<std::string>>(), ", ")));
    output.print_json(json_line(Json{
        {"built_for", built_for()}, {"devices", devices}, {"unavailable", unavailable}, {"libraries", libraries}}));
    return 0;
  }

 private:
  // Adds the devices of one driver, or why it has no usable one. `products`: also how they run gemms.
  static void add_gpus(const Output& output, const std::string& kind, gpu::FoundDriver found, bool products,
                       Json& devices, Json& unavailable) {
    const auto missing = [&](const std::string& reason) {
      unavailable.push_back({{"backend", kind}, {"reason", reason}});
    };
    if (!found.driver) return missing(found.reason);
    const std::shared_ptr<gpu::Driver> driver = std::move(found.driver);
    try {
      const int count = driver->num_devices();
      if (count == 0) missing(fmt::format("{} ({}) found no device", driver->version(), driver->library()));
      for (int index = 0; index < count; ++index) {
        const std::unique_ptr<gpu::GpuDevice> device = gpu::make_device(driver, index);
        ops::Registry registry;
        gpu::register_ops(registry, device->kind());
        const runtime::GpuRates rates = runtime::measure_gpu(*device, registry);
        const double sheet = runtime::datasheet_bf16(driver->device_name(index));
        devices.push_back({{"name", device->name()},
                           {"kind", kind},
                           {"arch", device->arch()},
                           {"model", driver->device_name(index)},
                           {"driver", driver->version()},
                           {"library", driver->library()},
                           {"memory_bytes", device->memory_bytes()},
                           {"memory_available_bytes", device->memory_available()},
                           {"peak_tflops", sheet > 0 ? Json(tera(sheet)) : Json()},
                           {"gemm_bf16_tflops", tera(rates.gemm)},
                           {"copy_gb_s", rates.copied / 1e9}});
        output.print(fmt::format("{}  {}, {}, {}\n", device->name(), driver->device_name(index), device->arch(),
                                 driver->version()));
        output.print(fmt::format("     memory {} ({} free), copy at {:.1f} GB/s; bf16 matrix product {:.3f} TFLOP/s\n",
                                 format_bytes(device->memory_bytes()), format_bytes(device->memory_available()),
                                 rates.copied / 1e9, tera(rates.gemm)));
        if (products) devices.back()["products"] = gemms_of(output, *device, registry, rates.gemm);
      }
    } catch (const Error& error) {
      missing(error.message());
    }
  }

  std::optional<int64_t> threads_;
  double seconds_ = 2;
  bool measure_ = false;
  bool products_ = false;
};

}  // namespace

std::unique_ptr<Command> devices_command() { return std::make_unique<Devices>(); }

}  // namespace ingot::cli

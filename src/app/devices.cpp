// ingot devices: what there is to compute with, measured.
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/interrupt.h"
#include "app/json_text.h"
#include "app/runtime.h"
#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/strings.h"

namespace ingot::app {

namespace {

// measure_peaks multiplies 2048-cubes: three matrices of four bytes an element, and the op's own scratch.
constexpr size_t measuring_bytes = size_t{256} << 20;

double tera(double per_second) { return per_second / 1e12; }

class Devices : public Command {
 public:
  const char* name() const override { return "devices"; }
  const char* summary() const override { return "devices, their memory and measured speed; why others are missing"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.option("threads", threads_, "CPU threads; all there are without it");
    arguments.option("seconds", seconds_, "how long to measure");
    arguments.example("ingot devices");
  }

  int run(const Output& output) override {
    if (!(seconds_ > 0) || seconds_ > 600) throw_error(ErrorKind::usage, "--seconds {}; above 0, to 600", seconds_);
    exit_on_interrupt();
    const Runtime runtime = open_runtime("cpu", threads_);
    Device& device = *runtime.device;
    Arena scratch(device, measuring_bytes, "scratch");
    ops::Context context{device, runtime.registry, scratch, runtime.threads.get()};
    const cpu::Peaks peaks = cpu::measure_peaks(context, seconds_);

    using Json = nlohmann::ordered_json;
    const Json cpu = {{"name", device.name()},
                      {"kind", ingot::name(device.kind())},
                      {"arch", device.arch()},
                      {"model", cpu_name()},
                      {"threads", runtime.threads->threads()},
                      {"memory_bytes", device.memory_bytes()},
                      {"memory_available_bytes", device.memory_available()},
                      {"peak_tflops", tera(std::max(peaks.bf16_flops, peaks.f32_flops))},
                      {"peak_bf16_tflops", tera(peaks.bf16_flops)},
                      {"peak_f32_tflops", tera(peaks.f32_flops)},
                      {"gemm_bf16_tflops", tera(peaks.gemm_bf16_flops)},
                      {"gemm_f32_tflops", tera(peaks.gemm_f32_flops)},
                      {"read_gb_s", peaks.read_bytes / 1e9}};
    Json unavailable = Json::array();
    for (const auto& [backend, vendor] : {std::pair{"cuda", "CUDA"}, {"hip", "HIP"}}) {
      unavailable.push_back({{"backend", backend}, {"reason", fmt::format("this build has no {} backend", vendor)}});
    }
    output.print(fmt::format("cpu  {}, {} threads, {}\n", cpu_name(), runtime.threads->threads(), device.arch()));
    output.print(fmt::format("     memory {} ({} free), read at {:.1f} GB/s\n", format_bytes(device.memory_bytes()),
                             format_bytes(device.memory_available()), peaks.read_bytes / 1e9));
    output.print(fmt::format("     bf16: peak {:.3f} TFLOP/s, matrix product {:.3f}\n", tera(peaks.bf16_flops),
                             tera(peaks.gemm_bf16_flops)));
    output.print(fmt::format("     fp32: peak {:.3f} TFLOP/s, matrix product {:.3f}\n", tera(peaks.f32_flops),
                             tera(peaks.gemm_f32_flops)));
    for (const Json& each : unavailable) {
      output.print(fmt::format("{}  {}\n", each["backend"].get<std::string>(), each["reason"].get<std::string>()));
    }
    output.print_json(
        json_line(Json{{"built_for", {"cpu"}}, {"devices", Json::array({cpu})}, {"unavailable", unavailable}}));
    return 0;
  }

 private:
  std::optional<int64_t> threads_;
  double seconds_ = 2;
};

}  // namespace

std::unique_ptr<Command> devices_command() { return std::make_unique<Devices>(); }

}  // namespace ingot::app

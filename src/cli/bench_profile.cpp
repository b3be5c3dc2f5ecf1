#include "cli/bench_profile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ingot::cli {

void print_profile(const bench::StepProfile& profile, const Output& output) {
  const double seconds = profile.seconds;
  const runtime::PeakRates& most = profile.most;
  output.print(fmt::format("\n{:<32}{:<20}{:>7}{:>10}{:>8}{:>10}{:>8}{:>10}{:>10}\n", "op", "MxNxK", "calls", "ms",
                           "of step", "GFLOP/s", "GB/s", "floor ms", "of floor"));
  double inside = 0;
  for (const bench::OpProfile::Row& row : profile.rows) {
    inside += row.seconds;
    const double floor = row.floor(most);
    output.print(fmt::format("{:<32}{:<20}{:>7}{:>10.2f}{:>8.1f}{:>10}{:>8.1f}{:>10.2f}{:>10}\n", row.op, row.shape,
                             row.calls, 1e3 * row.seconds, 100 * row.seconds / seconds,
                             row.flops > 0 ? fmt::format("{:.1f}", row.flops / row.seconds / 1e9) : std::string(),
                             row.bytes / row.seconds / 1e9, 1e3 * floor,
                             floor > row.seconds ? "cache" : fmt::format("{:.0f} %", 100 * floor / row.seconds)));
  }
  output.print(
      fmt::format("{:<59}{:>10.2f}{:>8.1f}\n", "outside ops", 1e3 * (seconds - inside), 100 * (1 - inside / seconds)));
  output.print(fmt::format("products {:.0f} GFLOP/s in bf16, {:.0f} in fp32, memory {:.1f} GB/s; a step of {:.3f} s\n",
                           most.bf16_flops / 1e9, most.f32_flops / 1e9, most.bytes / 1e9, seconds));
}

nlohmann::ordered_json profile_json(const bench::StepProfile& profile) {
  const runtime::PeakRates& most = profile.most;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const bench::OpProfile::Row& row : profile.rows) {
    list.push_back({{"op", row.op},
                    {"shape", row.shape},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"flops", row.flops},
                    {"bytes", row.bytes},
                    {"floor_seconds", row.floor(most)}});
  }
  return {{"seconds", profile.seconds},
          {"rows", list},
          {"bf16_gflops", most.bf16_flops / 1e9},
          {"f32_gflops", most.f32_flops / 1e9},
          {"gb_s", most.bytes / 1e9}};
}

}  // namespace ingot::cli

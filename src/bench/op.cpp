#include "bench/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"

namespace ingot::bench {

namespace {

using ops::testing::OpCase;
using ops::testing::Outcome;
using ops::testing::Verdict;

bool is_timed(const OpCase& each, DeviceKind kind, bool small) {
  if (each.flops + each.bytes <= 0) return false;
  if (small || kind == DeviceKind::sim) return !each.timing_only;
  return each.timing_only && each.large == (kind != DeviceKind::cpu);
}

OpOptions checked(const OpOptions& options) {
  if (!(options.seconds > 0) || options.seconds > 60) {
    throw_error(ErrorKind::usage, "--seconds {}; must be above 0 and at most 60", options.seconds);
  }
  return options;
}

}  // namespace

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpCase& each : ops::testing::op_cases()) {
    if (std::find(names.begin(), names.end(), each.op) == names.end()) names.push_back(each.op);
  }
  return names;
}

OpBench::OpBench(const OpOptions& options)
    : options_(checked(options)),
      runtime_(runtime::open_runtime(options.device, options.threads)),
      context_{*runtime_.device, runtime_.registry, scratch_, runtime_.threads.get()} {
  const std::vector<std::string> names = op_names();
  for (const std::string& op : options_.ops) {
    if (std::find(names.begin(), names.end(), op) != names.end()) continue;
    throw_hint(ErrorKind::usage, "docs/support-matrix.md lists the ops", "there is no op '{}'", op);
  }
}

bool OpBench::wanted(const std::string& op) const {
  return options_.ops.empty() || std::find(options_.ops.begin(), options_.ops.end(), op) != options_.ops.end();
}

// A kernel error on a GPU fails its case; later calls on that device fail too.
Verdict OpBench::compare(const OpCase& each) {
  if (!options_.check) return ops::testing::compare(context_, each);
  try {
    return ops::testing::compare(context_, each);
  } catch (const Error& error) {
    return {Outcome::failed, fmt::format("{} {}: {}", each.op, each.name, error.message())};
  }
}

OpVerdicts OpBench::verify(const std::function<void(const OpVerdict&)>& report) {
  OpVerdicts verdicts;
  std::map<std::string, bool> right;  // by op, of ops that have run
  for (const OpCase& each : ops::testing::op_cases()) {
    if (each.timing_only || !wanted(each.op)) continue;
    const Verdict verdict = compare(each);
    const bool wrong = verdict.outcome == Outcome::failed;
    if (wrong && !options_.check) throw_error(ErrorKind::internal, "{}, {}: {}", each.op, each.name, verdict.text);
    if (verdict.outcome != Outcome::declined) {
      bool& all = right.try_emplace(each.op, true).first->second;
      all = all && !wrong;
    }
    if (verdict.outcome == Outcome::passed) {
      ++verdicts.passed;
      continue;
    }
    std::vector<OpVerdict>& list = wrong ? verdicts.failed : verdicts.declined;
    list.push_back({each.op, each.name, verdict.text, wrong});
    report(list.back());
  }
  for (const auto& [op, all] : right) {
    if (all) verdicts.ops.push_back(op);
  }
  return verdicts;
}

std::vector<OpTime> OpBench::time(const runtime::PeakRates& most, const std::function<void(const OpTime&)>& report) {
  const bool on_cpu = runtime_.device->kind() == DeviceKind::cpu;
  std::vector<OpTime> times;
  for (const OpCase& each : ops::testing::op_cases()) {
    if (!wanted(each.op) || !is_timed(each, runtime_.device->kind(), options_.small)) continue;
    OpTime time{.op = each.op, .name = each.name};
    time.seconds = ops::testing::time_case(context_, each, options_.seconds);
    time.flops = each.flops / time.seconds;
    time.bytes = each.bytes / time.seconds;
    const bool bf16 = !each.operands.empty() && each.operands.back().dtype == DType::bf16;
    const double max_flops = bf16 || !on_cpu ? most.bf16_flops : most.f32_flops;
    // The limiting resource is the one with the larger share. Above the memory bandwidth the operands were in a cache;
    // above the arithmetic peak, the peak was measured while the machine was busy. In both cases the share means
    // nothing.
    const double share = std::max(time.flops / max_flops, time.bytes / most.bytes);
    time.exceeds_bandwidth = time.bytes > most.bytes;
    if (share <= 1) time.share = share;
    report(time);
    times.push_back(time);
  }
  return times;
}

std::vector<OpHostTime> OpBench::time_host() {
  const ops::Registry registry = context_.registry.without_kernels();
  ops::Context host{context_.device, registry, context_.scratch, context_.threads};
  std::map<std::string, std::vector<double>> times;
  for (const OpCase& each : ops::testing::op_cases()) {
    const bool empty = std::any_of(each.operands.begin(), each.operands.end(),
                                   [](const ops::testing::Operand& operand) { return operand.shape.elements() == 0; });
    if (each.timing_only || empty || !wanted(each.op)) continue;
    try {
      times[each.op].push_back(1e9 * ops::testing::host_seconds(host, each, options_.seconds / 100));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;  // else no implementation supports the case here
    }
  }
  std::vector<OpHostTime> rows;
  for (const auto& [op, ns] : times) {
    const auto [least, most] = std::minmax_element(ns.begin(), ns.end());
    const double mean = std::accumulate(ns.begin(), ns.end(), 0.0) / static_cast<double>(ns.size());
    rows.push_back({op, ns.size(), *least, mean, *most});
  }
  return rows;
}

}  // namespace ingot::bench

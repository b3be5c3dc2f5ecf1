#include "bench/op_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"

namespace ingot::bench {

double OpProfile::Row::floor(const runtime::PeakRates& most) const {
  const double peak = wide ? most.f32_flops : most.bf16_flops;
  const double arithmetic = peak > 0 ? flops / peak : 0;
  const double traffic = most.bytes > 0 ? bytes / most.bytes : 0;
  return std::max(arithmetic, traffic);
}

double OpProfile::now() {
  done_->record(Stream::compute);
  done_->wait();
  return steady_seconds();
}

void OpProfile::begins(const char*) { running_.push_back({now()}); }

void OpProfile::ran(const char* op, std::span<const Tensor>, const ops::OpWork& work) {
  const RunningOp running = running_.back();
  running_.pop_back();
  const double seconds = now() - running.at;
  if (!running_.empty()) {
    running_.back().inside += seconds;
    running_.back().has_gemms |= work.is_gemm();
  }
  const auto [m, n, k] = work.gemm;
  const std::string shape = work.is_gemm() ? fmt::format("{}x{}x{}", m, n, k) : std::string();
  Row& row = rows_.try_emplace({op, shape}, Row{.op = op, .shape = shape, .wide = work.wide}).first->second;
  ++row.calls;
  row.seconds += seconds - running.inside;
  if (running.has_gemms) return;
  row.flops += work.gemm_flops() + attention_ * work.attention_tokens;
  row.bytes += work.bytes;
}

std::vector<OpProfile::Row> OpProfile::rows(int64_t steps) const {
  const auto count = static_cast<double>(steps);
  std::vector<Row> rows;
  for (const auto& [key, row] : rows_) {
    Row& mean = rows.emplace_back(row);
    mean.calls /= steps;
    mean.seconds /= count;
    mean.flops /= count;
    mean.bytes /= count;
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

}  // namespace ingot::bench

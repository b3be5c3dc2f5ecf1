#include "bench/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/clock.h"

namespace ingot::bench {

namespace {

// These ops have two more operands last: low [m, rank] and the matrix it is multiplied with.
bool has_term(std::string_view op) { return op == "linear_low_rank" || op == "linear_low_rank_backward_input"; }

bool is_product(std::string_view op) {
  return op == "matmul" || op == "linear" || op == "linear_backward_input" || op == "linear_fp8" ||
         op == "linear_fp8_backward_input" || has_term(op);
}

}  // namespace

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

void OpProfile::ran(const char* op, std::span<const Tensor> tensors) {
  const RunningOp running = running_.back();
  running_.pop_back();
  const double seconds = now() - running.at;
  if (!running_.empty()) running_.back().inside += seconds;

  Row work = work_of(op, tensors);
  if (running.has_gemms) work.flops = work.bytes = 0;
  if (!running_.empty() && is_product(op)) running_.back().has_gemms = true;
  Row& row = rows_.try_emplace({work.op, work.shape}, work).first->second;
  if (row.calls > 0) {
    row.flops += work.flops;
    row.bytes += work.bytes;
  }
  ++row.calls;
  row.seconds += seconds - running.inside;
}

OpProfile::Row OpProfile::work_of(const char* op, std::span<const Tensor> tensors) const {
  Row row{.op = op};
  if (tensors.size() < 2) return row;
  for (const Tensor& tensor : tensors) row.bytes += static_cast<double>(tensor.bytes());
  const Tensor& result = tensors[0];
  const Tensor& operand = tensors[1];
  row.wide = operand.dtype == DType::f32;
  if (is_product(op)) {
    // A linear layer's operand has as many rows as the result; a plain matmul's may be transposed.
    const int64_t m = result.shape[0], n = result.shape[1];
    int64_t k = operand.elements() / m;
    if (has_term(op)) k += tensors[tensors.size() - 2].shape[1];
    row.shape = fmt::format("{}x{}x{}", m, n, k);
    row.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  } else if (row.op == "attention" || row.op == "attention_backward") {
    row.flops = attention_ * static_cast<double>(result.shape[0]) * (row.op == "attention" ? 1 : 2.5);
    row.wide = result.dtype == DType::f32;
  } else if (row.op == "embedding") {
    row.bytes = 2.0 * static_cast<double>(result.bytes());  // of the table only the looked-up rows
  } else if (row.op == "embedding_backward") {
    row.bytes = std::min(row.bytes, 3.0 * static_cast<double>(operand.bytes()));  // at least the touched rows
  }
  return row;
}

std::vector<OpProfile::Row> OpProfile::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, row] : rows_) rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

}  // namespace ingot::bench

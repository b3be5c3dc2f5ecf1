#include "tests/bench/job_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"

namespace ingot::bench {

namespace {

constexpr const char* header =
    "# What a step of each job asks of its GPU, recorded without one (tests/bench/dry_gpu.h). A test of tests/bench "
    "writes it and\n"
    "# fails where a job becomes worse; tests/bench/job_budget.h says what the columns are.\n"
    "op\tkernel\tshape\tthreads\tshared\tlaunches\tbytes\tflops\n";

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

template <class Number>
Number number_of(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw_error(ErrorKind::corrupt, "gpu_budgets.tsv: '{}' is not a number", text);
  }
  return value;
}

double sum_of(const std::vector<BudgetRow>& rows, double BudgetRow::* member) {
  return std::accumulate(rows.begin(), rows.end(), 0.0,
                         [&](double sum, const BudgetRow& row) { return sum + row.*member; });
}

}  // namespace

int64_t JobBudget::launches() const {
  int64_t sum = 0;
  for (const BudgetRow& row : rows) sum += row.is_copy() ? 0 : row.launches;
  return sum;
}

int64_t JobBudget::copies() const {
  int64_t sum = 0;
  for (const BudgetRow& row : rows) sum += row.is_copy() ? row.launches : 0;
  return sum;
}

double JobBudget::bytes() const { return sum_of(rows, &BudgetRow::bytes); }
double JobBudget::flops() const { return sum_of(rows, &BudgetRow::flops); }

std::vector<BudgetRow> budget_rows(std::span<const Launch> launches) {
  std::vector<BudgetRow> rows;
  for (const Launch& launch : launches) {
    const BudgetRow one{launch.op.empty() ? "-" : launch.op,
                        launch.kernel,
                        launch.shape.empty() ? "-" : launch.shape,
                        launch.threads,
                        launch.shared,
                        1,
                        launch.bytes,
                        launch.flops};
    const auto at = std::lower_bound(rows.begin(), rows.end(), one,
                                     [](const BudgetRow& a, const BudgetRow& b) { return a.key() < b.key(); });
    if (at == rows.end() || at->key() != one.key()) {
      rows.insert(at, one);
      continue;
    }
    ++at->launches;
    at->bytes += one.bytes;
    at->flops += one.flops;
  }
  return rows;
}

std::string text_of(const BudgetTable& table) {
  std::string text = header;
  for (const auto& [name, job] : table) {
    text += fmt::format("job\t{}\t{}\t{}\t{}\t{:.0f}\n", name, job.gpu, job.target, job.tokens, job.memory);
    for (const BudgetRow& row : job.rows) {
      text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{:.0f}\t{:.0f}\n", row.op, row.kernel, row.shape, row.threads,
                          row.shared, row.launches, row.bytes, row.flops);
    }
  }
  return text;
}

BudgetTable read_budgets(const std::string& text) {
  BudgetTable table;
  JobBudget* job = nullptr;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line.starts_with('#') || line.starts_with("op\t")) continue;
    const std::vector<std::string> f = fields_of(line);
    if (f.size() == 6 && f[0] == "job") {
      job = &table[f[1]];
      *job = {f[1], f[2], f[3], number_of<int64_t>(f[4]), number_of<double>(f[5]), {}};
    } else if (f.size() == 8 && job != nullptr) {
      job->rows.push_back({f[0], f[1], f[2], number_of<int>(f[3]), number_of<size_t>(f[4]), number_of<int64_t>(f[5]),
                           number_of<double>(f[6]), number_of<double>(f[7])});
    } else {
      throw_error(ErrorKind::corrupt, "gpu_budgets.tsv: '{}' is no line of the table", line);
    }
  }
  return table;
}

std::string worse(const JobBudget& now, const JobBudget& then) {
  std::string text;
  const auto compare = [&](const char* what, double value, double budget) {
    if (value > budget * (1 + 1e-9)) text += fmt::format("{}: {} {:.0f} -> {:.0f}\n", now.job, what, budget, value);
  };
  compare("launches", static_cast<double>(now.launches()), static_cast<double>(then.launches()));
  compare("copies between host and device", static_cast<double>(now.copies()), static_cast<double>(then.copies()));
  compare("bytes", now.bytes(), then.bytes());
  compare("FLOPs", now.flops(), then.flops());
  compare("bytes of memory", now.memory, then.memory);
  if (now.tokens != then.tokens) text += fmt::format("{}: tokens {} -> {}\n", now.job, then.tokens, now.tokens);
  return text;
}

}  // namespace ingot::bench

#include "bench/tokenizer.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "base/file.h"

namespace ingot::bench {

namespace {

using Seconds = TokenizerReport::Seconds;

Seconds now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

}  // namespace

TokenizerReport bench_tokenizer(const text::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                int64_t repeats) {
  TokenizerReport report;
  for (const std::string& text : texts) report.bytes += text.size();
  std::vector<std::vector<int32_t>> ids(texts.size());
  for (int64_t i = 0; i < repeats; ++i) {
    for (std::vector<int32_t>& list : ids) list = {};
    const Seconds start = now();
    for (size_t t = 0; t < texts.size(); ++t) ids[t] = tokenizer.encode(texts[t], {.add_special_tokens = false});
    const Seconds end = now();
    const Seconds taken{end.wall - start.wall, end.cpu - start.cpu};
    if (i == 0) report.first = report.best = taken;
    report.best = {std::min(report.best.wall, taken.wall), std::min(report.best.cpu, taken.cpu)};
  }
  std::vector<int32_t> all;  // the ids of all texts, concatenated
  for (size_t t = 0; t < texts.size(); ++t) {
    all.insert(all.end(), ids[t].begin(), ids[t].end());
    report.same_text = report.same_text && tokenizer.decode(ids[t]) == texts[t];
  }
  report.tokens = all.size();
  report.ids_sha256 = sha256_hex(std::as_bytes(std::span(all)));
  return report;
}

}  // namespace ingot::bench

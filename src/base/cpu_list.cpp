#include "base/cpu_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/error.h"
#include "base/strings.h"

namespace ingot {
namespace {

using Mask = std::array<cpu_set_t, max_cpus / CPU_SETSIZE>;

Mask mask_of(int cpu) {
  Mask mask{};
  CPU_SET_S(static_cast<size_t>(cpu), sizeof mask, mask.data());
  return mask;
}

[[noreturn]] void fail(std::string_view list, const std::string& why) {
  throw_hint(ErrorKind::usage, "use numbers and ranges of logical CPUs, such as 0-3,8", "CPU list '{}': {}", list, why);
}

int parse_number(std::string_view list, std::string_view text) {
  int number = -1;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  const bool digits = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || stop != end) fail(list, fmt::format("'{}' is not a CPU number", text));
  if (error != std::errc() || number >= max_cpus) {
    fail(list, fmt::format("CPU {} is out of range; Linux supports 0 to {}", text, max_cpus - 1));
  }
  return number;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string& piece : split(text, ',')) {
    const std::string_view range = piece;
    const size_t dash = range.find('-');
    const int first = parse_number(text, range.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : parse_number(text, range.substr(dash + 1));
    if (last < first) fail(text, fmt::format("the range '{}' is descending", range));
    for (int cpu = first; cpu <= last; ++cpu) {
      if (std::ranges::find(cpus, cpu) != cpus.end()) fail(text, fmt::format("CPU {} is listed twice", cpu));
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

std::string format_cpu_list(std::span<const int> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  Mask mask{};
  if (sched_getaffinity(0, sizeof mask, mask.data()) != 0) return cpus;
  for (int cpu = 0; cpu < max_cpus; ++cpu) {
    if (CPU_ISSET_S(static_cast<size_t>(cpu), sizeof mask, mask.data())) cpus.push_back(cpu);
  }
  return cpus;
}

void require_cpus(std::span<const int> cpus, int64_t threads) {
  if (cpus.empty()) return;
  const std::vector<int> usable = usable_cpus();
  for (const int cpu : cpus) {
    if (std::ranges::binary_search(usable, cpu)) continue;
    throw_hint(ErrorKind::usage, "a container, taskset or a launcher may restrict the CPUs (mpirun: --bind-to none)",
               "CPU {} of the list {} is not available to this process, which may use {}", cpu, format_cpu_list(cpus),
               format_cpu_list(usable));
  }
  if (std::ssize(cpus) < threads) {
    throw_hint(ErrorKind::usage, "list more CPUs, or use fewer threads (auto: one per CPU)",
               "cannot bind {} threads to {} CPUs ({})", threads, cpus.size(), format_cpu_list(cpus));
  }
}

std::vector<int> share_of_cpus(std::span<const int> cpus, int64_t threads, int pool) {
  if (cpus.empty()) return {};
  const std::span<const int> share = cpus.subspan(static_cast<size_t>(threads * pool), static_cast<size_t>(threads));
  return {share.begin(), share.end()};
}

void bind_thread(pthread_t thread, int cpu) {
  const Mask mask = mask_of(cpu);
  if (const int error = pthread_setaffinity_np(thread, sizeof mask, mask.data()); error != 0) {
    throw_hint(ErrorKind::resource, "check whether the process's cpuset has changed",
               "cannot bind a thread to CPU {}: {}", cpu, errno_message(error));
  }
}

BoundThread::BoundThread(int cpu) {
  if (sched_getaffinity(0, sizeof before_, before_.data()) != 0) {
    throw_error(ErrorKind::resource, "cannot tell which CPUs a thread may use: {}", errno_message(errno));
  }
  bind_thread(pthread_self(), cpu);
}

BoundThread::~BoundThread() { sched_setaffinity(0, sizeof before_, before_.data()); }

}  // namespace ingot

#include "base/machine.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/processor.h"
#include "base/strings.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t unlimited = std::numeric_limits<uint64_t>::max();

// Contents, or empty when the file does not exist: which files exist depends on the kernel.
std::string read_if_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? read_file(path, uint64_t{1} << 22) : std::string();
}

// The text after "key:" or "key " at the start of a line; empty when there is none.
std::string_view line_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key) && line.size() > key.size()) {
      const size_t colon = line.find_first_not_of(" \t", key.size());
      if (colon != std::string_view::npos && (line[colon] == ':' || colon > key.size())) {
        return trim(line.substr(line[colon] == ':' ? colon + 1 : colon));
      }
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

uint64_t number_or(std::string_view text, uint64_t otherwise) {
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? value : otherwise;
}

uint64_t kibibytes(std::string_view text, std::string_view key) { return number_or(line_value(text, key), 0) * 1024; }

// Empty when there is no such process, or when /proc hides it.
std::string stat_of_process(int64_t pid, const fs::path& root) {
  try {
    return read_file(root / "proc" / std::to_string(pid) / "stat", uint64_t{1} << 16);
  } catch (const Error&) {
    return "";
  }
}

// A field of /proc/PID/stat, numbered as in proc(5), from the third on. The second one, the name, may contain anything,
// but ends at the last parenthesis.
std::string_view stat_field(std::string_view stat, int field) {
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return {};
  std::string_view rest = trim(stat.substr(name_end + 1));
  for (int at = 3; at < field && !rest.empty(); ++at) rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
  return rest.substr(0, rest.find(' '));
}

struct CgroupMemory {
  uint64_t limit = unlimited;
  uint64_t left = unlimited;
};

void narrow(const fs::path& folder, const char* limit_name, const char* use_name, const char* cache_name,
            CgroupMemory* memory) {
  const uint64_t limit = number_or(trim(read_if_there(folder / limit_name)), unlimited);
  if (limit == unlimited) return;
  const uint64_t used = number_or(trim(read_if_there(folder / use_name)), 0);
  const uint64_t cache = number_or(line_value(read_if_there(folder / "memory.stat"), cache_name), 0);
  const uint64_t held = used - std::min(used, cache);
  memory->limit = std::min(memory->limit, limit);
  memory->left = std::min(memory->left, limit - std::min(limit, held));
}

// Walks from this process's cgroup up to the root of each hierarchy that is mounted in the usual place.
CgroupMemory cgroup_memory(const fs::path& root) {
  CgroupMemory memory;
  for (const std::string& line : split(read_if_there(root / "proc/self/cgroup"), '\n')) {
    const std::vector<std::string> parts = split(line, ':');  // hierarchy : controllers : path
    if (parts.size() < 3) continue;
    const bool v2 = parts[1].empty();
    const bool v1 = ("," + parts[1] + ",").find(",memory,") != std::string::npos;
    if (!v1 && !v2) continue;
    const fs::path top = root / (v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    // In a container the path may be the host's; walking up its parents still reaches the mounted root.
    fs::path group = fs::path(parts[2]).relative_path();
    for (;;) {
      if (v2) {
        narrow(top / group, "memory.max", "memory.current", "inactive_file", &memory);
      } else {
        narrow(top / group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", &memory);
      }
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return memory;
}

uint64_t system_memory(const fs::path& root, std::string_view key) {
  const uint64_t bytes = kibibytes(read_if_there(root / "proc/meminfo"), key);
  if (bytes == 0) throw_error(ErrorKind::unavailable, "/proc/meminfo has no {}", key);
  return bytes;
}

}  // namespace

MemoryUse memory_use() {
  const std::string status = read_if_there("/proc/self/status");
  return {kibibytes(status, "VmRSS"), kibibytes(status, "VmHWM"), kibibytes(status, "RssAnon")};
}

uint64_t available_memory(const fs::path& root) {
  return std::min(system_memory(root, "MemAvailable"), cgroup_memory(root).left);
}

uint64_t total_memory(const fs::path& root) {
  return std::min(system_memory(root, "MemTotal"), cgroup_memory(root).limit);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string cpu_name(const fs::path& root) {
  const std::string info = read_if_there(root / "proc/cpuinfo");
  std::string name(line_value(info, "model name"));
  if (name.empty()) {
    utsname system{};
    name = ::uname(&system) == 0 ? system.machine : "unknown";
  }
  const ProcessorId id = processor_id(root);
  if (id.family < 0 || id.model < 0) return name;
  if (id.family == 0) return fmt::format("{} (implementer {}, part {:#x})", name, id.vendor, id.model);
  return fmt::format("{} (family {}, model {})", name, id.family, id.model);
}

std::string process_start(int64_t pid, const fs::path& root) {
  return std::string(stat_field(stat_of_process(pid, root), 22));
}

bool process_alive(int64_t pid, const std::string& start, const fs::path& root) {
  if (pid < 1 || pid > std::numeric_limits<pid_t>::max()) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;  // EPERM: another user's
  const std::string stat = stat_of_process(pid, root);
  if (stat_field(stat, 3) == "Z") return false;
  const std::string_view now = stat_field(stat, 22);
  return now.empty() || start.empty() || now == start;
}

}  // namespace ingot

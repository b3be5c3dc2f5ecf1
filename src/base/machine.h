// What the kernel reports about this process's memory, other processes and the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ingot {

// Bytes, from /proc/self/status.
struct MemoryUse {
  uint64_t resident = 0;   // VmRSS
  uint64_t peak = 0;       // VmHWM
  uint64_t anonymous = 0;  // RssAnon: the part of `resident` that no file backs
};
MemoryUse memory_use();

// Bytes that this process can still allocate: the system's MemAvailable, bounded by what is left in each enclosing
// cgroup (v2, or v1's memory controller). File cache that can be dropped counts as available. `root` replaces "/" in
// tests. Errors: unavailable when the kernel does not report it.
uint64_t available_memory(const std::filesystem::path& root = "/");

// Total memory of the machine, bounded by the cgroups' limits.
uint64_t total_memory(const std::filesystem::path& root = "/");

// Host name of the machine.
std::string host_name();

// "AMD EPYC 9R45 (family 26, model 2)": processors of different generations may have the same name. The architecture
// when the kernel reports no name.
std::string cpu_name(const std::filesystem::path& root = "/");

// Start time of the process with this PID, in clock ticks since boot (/proc/PID/stat, field 22): it
// distinguishes processes that reuse a PID. Empty when the kernel does not report it: no such process, or /proc hides
// other users' (hidepid).
std::string process_start(int64_t pid, const std::filesystem::path& root = "/");

// Whether the process with this PID and start time is alive. A zombie is not. When a start time is unknown, now or when
// it was recorded (empty), any process with this PID counts.
bool process_alive(int64_t pid, const std::string& start, const std::filesystem::path& root = "/");

}  // namespace ingot

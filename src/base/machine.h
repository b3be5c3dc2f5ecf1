// What the kernel says about this process's memory, other processes and the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ingot {

// Bytes, from /proc/self/status.
struct MemoryUse {
  uint64_t resident = 0;   // VmRSS
  uint64_t peak = 0;       // VmHWM
  uint64_t anonymous = 0;  // RssAnon: of what is resident, what no file has
};
MemoryUse memory_use();

// Bytes that this process could still take: the system's MemAvailable, bounded by what is left in each cgroup (v2, or
// v1's memory controller) around it. File cache that can be dropped counts as available. `root` stands for "/" in
// tests. Errors: unavailable when the kernel does not tell.
uint64_t available_memory(const std::filesystem::path& root = "/");

// All memory of the machine, bounded by the cgroups' limits.
uint64_t total_memory(const std::filesystem::path& root = "/");

// Name of the machine in its network.
std::string host_name();

// "AMD EPYC 9R45", or the architecture when the kernel gives no model.
std::string cpu_name(const std::filesystem::path& root = "/");

// When the process of this number was started, in clock ticks since boot (/proc/PID/stat, field 22): numbers are given
// again, with another start. Empty when the kernel does not tell: there is none, or /proc hides other users' (hidepid).
std::string process_start(int64_t pid, const std::filesystem::path& root = "/");

// Whether the process that has this number and start lives. One that has ended and was not waited for does not. Where
// a start is not known, now or when it was noted down (empty), whether any process of that number does.
bool process_lives(int64_t pid, const std::string& start, const std::filesystem::path& root = "/");

}  // namespace ingot

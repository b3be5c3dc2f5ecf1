#include "base/machine.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/processor.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  write_file(path, text);
}

const uint64_t gib = uint64_t{1} << 30;

TEST(Machine, DescribesThisMachine) {
  const MemoryUse use = memory_use();
  EXPECT_GT(use.resident, 0U);
  EXPECT_GE(use.peak, use.resident);
  EXPECT_GT(available_memory(), 0U);
  EXPECT_GE(total_memory(), available_memory());
  EXPECT_FALSE(host_name().empty());
  EXPECT_FALSE(cpu_name().empty());
}

TEST(Machine, PeakFollowsAllocation) {
  const uint64_t size = uint64_t{64} << 20;
  const uint64_t before = memory_use().resident;
  std::vector<char> held(size, 1);
  EXPECT_GE(memory_use().resident, before + size / 2);
  EXPECT_EQ(held[size - 1], 1);
}

TEST(Machine, MemoryWithoutCgroupsIsTheMachines) {
  const Scratch root;
  put(root / "proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
  EXPECT_EQ(total_memory(root.folder()), 16 * gib);
  EXPECT_EQ(available_memory(root.folder()), 8 * gib);
}

TEST(Machine, CgroupV2UsesTheTightestAncestor) {
  const Scratch root;
  put(root / "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  put(root / "proc/self/cgroup", "0::/job/step\n");
  put(root / "sys/fs/cgroup/job/step/memory.max", "max\n");
  put(root / "sys/fs/cgroup/job/memory.max", std::to_string(4 * gib) + "\n");
  put(root / "sys/fs/cgroup/job/memory.current", std::to_string(3 * gib) + "\n");
  put(root / "sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file " + std::to_string(gib) + "\nactive_file 7\n");
  EXPECT_EQ(total_memory(root.folder()), 4 * gib);
  EXPECT_EQ(available_memory(root.folder()), 2 * gib);
}

TEST(Machine, CgroupV1LimitsAreRead) {
  const Scratch root;
  put(root / "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  put(root / "proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/box\n");
  put(root / "sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(2 * gib));
  put(root / "sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(3 * gib));
  EXPECT_EQ(total_memory(root.folder()), 2 * gib);
  EXPECT_EQ(available_memory(root.folder()), 0U);
}

TEST(Machine, MissingKernelFilesGiveUnknown) {
  const Scratch root;
  EXPECT_THROW(available_memory(root.folder()), Error);
  EXPECT_FALSE(cpu_name(root.folder()).empty());
  put(root / "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU 9000\n");
  EXPECT_EQ(cpu_name(root.folder()), "Some CPU 9000");
  EXPECT_EQ(processor_id(root.folder()).vendor, "");
}

TEST(Machine, ProcessorsOfTheSameNameAreToldApart) {
  const Scratch root;
  put(root / "proc/cpuinfo",
      "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n");
  EXPECT_EQ(cpu_name(root.folder()), "AMD EPYC (family 25, model 17)");
  const ProcessorId genoa = processor_id(root.folder());
  EXPECT_EQ(genoa.vendor, "AuthenticAMD");
  EXPECT_EQ(genoa.family, 25);
  EXPECT_EQ(genoa.model, 17);

  put(root / "proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n");
  const ProcessorId neoverse = processor_id(root.folder());
  EXPECT_EQ(neoverse.vendor, "0x41");
  EXPECT_EQ(neoverse.family, 0);
  EXPECT_EQ(neoverse.model, 0xd4f);
  EXPECT_NE(cpu_name(root.folder()).find("(implementer 0x41, part 0xd4f)"), std::string::npos);
}

TEST(Clock, FormatsTime) {
  const std::string now = utc_timestamp();
  EXPECT_EQ(now.size(), 20U);
  EXPECT_EQ(now[10], 'T');
  EXPECT_TRUE(now.ends_with('Z'));
  const double a = steady_seconds();
  EXPECT_GE(steady_seconds(), a);
}

TEST(Machine, ProcessAliveDetectsReuseAndHiddenProcesses) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const std::string start = process_start(child);
  EXPECT_FALSE(start.empty());
  EXPECT_TRUE(process_alive(child, start));
  EXPECT_FALSE(process_alive(child, start + "0")) << "the process number was reused";
  EXPECT_TRUE(process_alive(child, "")) << "the start time is unknown";
  const Scratch hidden;
  EXPECT_EQ(process_start(child, hidden.folder()), "");
  EXPECT_TRUE(process_alive(child, start, hidden.folder())) << "/proc hides the process";
  EXPECT_TRUE(process_alive(1, "")) << "a process of another user";
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(process_alive(child, start)) << "the process has ended";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(process_alive(child, start));
  EXPECT_FALSE(process_alive(child, start, hidden.folder()));
  for (const int64_t number : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) EXPECT_FALSE(process_alive(number, ""));
}

}  // namespace
}  // namespace ingot

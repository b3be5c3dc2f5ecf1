#include "base/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/sanitized.h"

namespace ingot {
namespace {

TEST(HostMemory, IsAlignedAndMovable) {
  EXPECT_EQ(HostMemory().bytes(), 0U);
  for (const size_t bytes : {size_t{1}, size_t{100}, (size_t{2} << 20) - 1, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    const HostMemory small(bytes, HostMemory::Pages::small, "a test");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % 64, 0U);
    HostMemory memory(bytes, HostMemory::Pages::huge, "a test");
    EXPECT_EQ(memory.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % (bytes >= size_t{2} << 20 ? size_t{2} << 20 : 64), 0U);
    memory.data()[bytes - 1] = std::byte{7};
    const HostMemory moved = std::move(memory);
    EXPECT_EQ(moved.data()[bytes - 1], std::byte{7});
  }
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Memory is returned to the system whatever was allocated between the blocks and still lives.
TEST(HostMemory, SmallBlocksAreReturnedToTheSystem) {
  constexpr size_t bytes = 40000, count = 2000;
  std::vector<HostMemory> blocks;
  std::vector<std::unique_ptr<std::string>> between;
  for (size_t i = 0; i < count; ++i) {
    blocks.emplace_back(bytes, HostMemory::Pages::small, "a test");
    std::memset(blocks.back().data(), 1, bytes);
    between.push_back(std::make_unique<std::string>(100, 'x'));
  }
  const size_t before = resident_bytes();
  blocks.clear();
  EXPECT_LT(resident_bytes() + bytes * count * 9 / 10, before);
}

bool is_resident(void* page) {
  unsigned char in_memory = 0;
  return mincore(page, 1, &in_memory) == 0 && (in_memory & 1U) != 0;
}

// The kernel merges adjacent mappings. Freeing one in the middle splits it, which needs one more mapping.
TEST(HostMemory, IsReturnedAtTheLimitOfMappings) {
  if (sanitized) return;  // sanitizers need mappings of their own
  constexpr size_t bytes = size_t{1} << 20, count = 16;
  std::vector<HostMemory> blocks;
  std::vector<std::byte*> places;
  for (size_t i = 0; i < count; ++i) {
    places.push_back(blocks.emplace_back(bytes, HostMemory::Pages::small, "a test").data());
    std::memset(places.back(), 1, bytes);
  }
  // Alternating pages with and without read access use up the remaining mappings.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::ifstream limit("/proc/sys/vm/max_map_count");
  size_t mappings = 0;
  ASSERT_TRUE(limit >> mappings);
  const size_t fillers = (mappings + 1000) * page;  // each becomes a mapping of its own
  void* filler = mmap(nullptr, fillers, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(filler, MAP_FAILED);
  bool full = false;
  for (size_t at = 0; at < fillers && !full; at += 2 * page) {
    full = mprotect(static_cast<std::byte*>(filler) + at, page, PROT_READ) != 0;
  }
  for (size_t i = 1; i + 1 < count; i += 2) blocks[i] = HostMemory();
  const size_t still = static_cast<size_t>(std::ranges::count_if(places, is_resident));
  ASSERT_EQ(munmap(filler, fillers), 0);
  EXPECT_TRUE(full);
  EXPECT_EQ(still, count - (count - 1) / 2);
}

TEST(HostMemory, OutOfMemoryErrorsNameThePurpose) {
  if (sanitized) return;  // sanitizers end a program that requests too much
  try {
    const HostMemory memory(std::numeric_limits<size_t>::max() / 2, HostMemory::Pages::huge, "a test");
    FAIL() << "the allocation succeeded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(error.what()).find("a test"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ingot

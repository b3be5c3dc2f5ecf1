#include "base/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "tests/sanitized.h"

namespace ingot {
namespace {

TEST(HostMemory, IsAlignedAndMoves) {
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

TEST(HostMemory, SaysWhatThereIsNoMemoryFor) {
  if (sanitized) return;  // sanitizers end a program that asks for too much
  try {
    const HostMemory memory(std::numeric_limits<size_t>::max() / 2, HostMemory::Pages::huge, "a test");
    FAIL() << "there was memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(error.what()).find("a test"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ingot

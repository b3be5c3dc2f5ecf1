// The default size of the KV cache, and what a server prints about its memory.
#include "infer/serve_memory.h"

#include <gtest/gtest.h>

#include "tests/infer/small_model.h"

namespace ingot::infer {
namespace {

constexpr size_t mib = size_t{1} << 20;

struct DefaultCacheLimit : testing::Test {
  spec::ModelSpec model = infer::SmallModel("a").spec();
  infer::EngineSettings requested;
  DefaultCacheLimit() {
    requested.activation = DType::f32;
    requested.sequences = 4;
  }
  size_t limit(bool on_host, size_t available, size_t mapped = 0) const {
    return default_cache_limit(model, requested, 2, on_host, available, mapped);
  }
};

TEST_F(DefaultCacheLimit, IsAQuarterOfHostMemoryBesideMappedWeights) {
  EXPECT_EQ(limit(true, 1000 * mib), 250 * mib);
  EXPECT_EQ(limit(true, 1000 * mib, 200 * mib), 200 * mib);
  EXPECT_EQ(limit(true, 1000 * mib, 1000 * mib), 0U);
  EXPECT_EQ(limit(true, 1000 * mib, 1001 * mib), 0U) << "more weights than memory";
}

// For a context that needs all memory, and for a short one that leaves some.
TEST_F(DefaultCacheLimit, LimitsTheEngineToNineTenthsOfAGpu) {
  model.context = (int64_t{1} << 31) - 1;
  const size_t most = 256 * mib / 10 * 9;
  for (const int64_t context : {int64_t{0}, int64_t{64}}) {
    requested.context = context;
    const size_t found = limit(false, 256 * mib, 1000 * mib);  // the host cannot read these weights in place
    const infer::CachePlan plan = infer::plan_cache(model, requested, found);
    const infer::EngineBytes bytes = infer::engine_bytes(model, plan.settings, 2, false);
    const size_t rest = bytes.scratch + bytes.batch + bytes.adapters + bytes.library_workspace;
    EXPECT_GT(rest, 0U);
    EXPECT_LE(bytes.kv + rest, most);
    if (context != 0) EXPECT_EQ(found, most - rest);
    if (context == 0) EXPECT_GT(bytes.kv, most / 2) << "page tables exceed this small model's cache";
  }
}

TEST_F(DefaultCacheLimit, IsZeroOnAFullGpu) {
  requested.context = 16;
  const size_t page = spec::kv_bytes(model, 1, requested.page_tokens, 4);
  EXPECT_EQ(limit(false, 2 * page), 0U) << "the rest of the engine needs more";
}

TEST(ServeMemoryLines, WarnOfMissingMemory) {
  ServeMemory memory;
  memory.device = "cpu";
  memory.weights = memory.mapped_weights = 100 * mib;
  memory.engine.kv = 50 * mib;
  memory.program = 10 * mib;
  memory.requests = {.adapters = 1 * mib, .bodies = 2 * mib, .prompts = 3 * mib, .grammars = 4 * mib};
  memory.cache.settings.context = memory.cache.requested_context = 64;
  EXPECT_EQ(memory.remaining_growth(), 150 * mib);
  EXPECT_EQ(memory.total_when_full(), 160 * mib);
  EXPECT_EQ(memory.max_total(), 170 * mib);
  memory.available = 150 * mib;
  EXPECT_TRUE(memory_warnings(memory).empty());
  memory.available = 150 * mib - 1;
  ASSERT_EQ(memory_warnings(memory).size(), 1U);
  EXPECT_NE(memory_warnings(memory)[0].find("--kv-cache-mib"), std::string::npos);
  memory.on_host = false;  // the cache is in device memory
  EXPECT_TRUE(memory_warnings(memory).empty());
}

}  // namespace
}  // namespace ingot::infer

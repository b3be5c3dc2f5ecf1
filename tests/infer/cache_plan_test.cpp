// The size of the KV cache and the context that fits, before anything is allocated.
#include "infer/cache_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/infer/small_model.h"

namespace ingot::infer {
namespace {

class CachePlanTest : public testing::Test {
 protected:
  // One page has the size that spec::kv_bytes returns.
  size_t page() const { return spec::kv_bytes(model_, 1, 16, 4); }
  static EngineSettings settings(int64_t context, int64_t sequences = 4) {
    EngineSettings s;
    s.activation = DType::f32;
    s.context = context;
    s.sequences = sequences;
    return s;
  }
  spec::ModelSpec model_ = SmallModel("a").spec();
};

TEST_F(CachePlanTest, AllSequencesGetTheWholeContextWhenItFits) {
  model_.context = 1000;  // 63 pages
  const CachePlan plan = plan_cache(model_, settings(0), 1000 * page());
  EXPECT_EQ(plan.settings.context, 1000);
  EXPECT_EQ(plan.settings.pages, 4 * 63);
  EXPECT_EQ(plan.requested_pages, 4 * 63);
  EXPECT_EQ(plan.tokens(), 4 * 63 * 16);
  EXPECT_EQ(engine_bytes(model_, plan.settings, 1, true).kv, engine_bytes(model_, settings(1000), 1, true).kv);
}

TEST_F(CachePlanTest, PagesAreLimitedByMemory) {
  model_.context = 1000;
  const CachePlan plan = plan_cache(model_, settings(0), 100 * page() + 1);
  EXPECT_EQ(plan.settings.context, 1000);
  EXPECT_EQ(plan.settings.pages, 100);
  EXPECT_EQ(plan.requested_pages, 4 * 63);
  EXPECT_LE(engine_bytes(model_, plan.settings, 1, true).kv, 100 * page() + 1);
}

TEST_F(CachePlanTest, TheModelsContextIsReducedToFit) {
  model_.context = (int64_t{1} << 31) - 1;
  const CachePlan plan = plan_cache(model_, settings(0), 100 * page());
  EXPECT_EQ(plan.requested_context, model_.context);
  EXPECT_EQ(plan.settings.context, 1600);
  EXPECT_EQ(plan.settings.pages, 100);
}

TEST_F(CachePlanTest, ARequestedContextIsNotReduced) {
  model_.context = (int64_t{1} << 31) - 1;
  EXPECT_EQ(plan_cache(model_, settings(1600), 100 * page()).settings.context, 1600);
  try {
    plan_cache(model_, settings(1601), 100 * page());
    ADD_FAILURE() << "a context that does not fit was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(error.message().find("1601 tokens"), std::string::npos) << error.message();
    EXPECT_NE(error.hint().find("1600 fits"), std::string::npos) << error.hint();
  }
}

TEST_F(CachePlanTest, RequestedPagesAreKept) {
  model_.context = 1000;
  EngineSettings requested = settings(0);
  requested.pages = 10;
  const CachePlan plan = plan_cache(model_, requested, 1);
  EXPECT_EQ(plan.settings.pages, 10);
  EXPECT_EQ(plan.settings.context, 160);
  requested.context = 200;
  EXPECT_THROW(plan_cache(model_, requested, 1), Error);
}

// Cache positions are 32-bit numbers: memory beyond their range stays unused.
TEST_F(CachePlanTest, PagesAreLimitedBy32BitPositions) {
  model_.context = int64_t{1} << 31;
  EngineSettings requested = settings(0);
  const CachePlan plan =
      plan_cache(model_, requested, (size_t{1} << 31) / static_cast<size_t>(requested.page_tokens) * page() * 4);
  EXPECT_EQ(plan.settings.pages, INT32_MAX / requested.page_tokens);
  EXPECT_LE(plan.settings.context, INT32_MAX);
}

TEST_F(CachePlanTest, ImpossibleSettingsAreErrors) {
  model_.context = 1000;
  const auto kind = [&](EngineSettings requested, size_t limit) {
    try {
      plan_cache(model_, requested, limit);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(kind(settings(0), page() - 1), ErrorKind::resource);
  EXPECT_EQ(kind(settings(1001), 1000 * page()), ErrorKind::usage);
  EXPECT_EQ(kind(settings(-1), 1000 * page()), ErrorKind::usage);
  for (const int64_t sequences : {int64_t{0}, INT64_MAX, int64_t{-7}})
    EXPECT_EQ(kind(settings(0, sequences), 1000 * page()), ErrorKind::usage) << sequences;
  EngineSettings requested = settings(0);
  requested.pages = INT64_MAX;
  EXPECT_EQ(kind(requested, 1000 * page()), ErrorKind::usage);
}

}  // namespace
}  // namespace ingot::infer

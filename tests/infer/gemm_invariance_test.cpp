// What the bits of an engine's gemms may depend on (ops::Invariance): libraries choose their algorithms by it.
#include <gtest/gtest.h>

#include "tests/infer/engine_fixture.h"
#include "tests/recorded_gemms.h"

namespace ingot::infer {
namespace {

// With row-invariant logits, those of the head always; otherwise the other layers' may depend on the batch.
TEST(GemmInvariance, OfAnEngineHoldsForRowsWhereTheBitsOfLogitsDo) {
  for (const bool row_invariant : {true, false}) {
    SmallModel model("a");
    model.registry = recording_registry();
    EngineSettings settings;
    settings.activation = DType::f32;
    settings.context = 32;
    settings.row_invariant = row_invariant;
    Engine engine(model.device, model.registry, model.threads, *model.model, settings);
    Request request;
    request.prompt = model.prompt(1, 12);
    request.max_tokens = 2;
    engine.submit(request);
    std::map<int64_t, Answer> answers;
    run(engine, answers);
    int heads = 0, layers = 0;
    for (const RecordedGemm& gemm : recorded_gemms) {
      const bool head = gemm.rows == model.spec().vocab;
      (head ? heads : layers) += 1;
      EXPECT_EQ(gemm.invariance, head || row_invariant ? ops::Invariance::rows : ops::Invariance::none)
          << gemm.rows << " x " << gemm.columns;
    }
    EXPECT_GE(heads, 2);
    EXPECT_GE(layers, 2 * 7);
  }
}

}  // namespace
}  // namespace ingot::infer

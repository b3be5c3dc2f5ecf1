// Parameters of a pipeline's stages on the rank that writes the model.
#include "runs/stage_weights.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/in_process.h"
#include "spec/model_shard.h"
#include "tests/spec/small_model.h"
#include "tests/train/small_run.h"
#include "train/initialise.h"

namespace ingot::runs {
namespace {

// The weights that a stage of a pipeline over `stages` holds.
WeightSet held_by(Device& device, const spec::ModelSpec& model, const comm::Group& stages) {
  const spec::ModelShard shard{.pp = stages.size(), .stage = stages.rank()};
  return train::random_weights(device, model, DType::bf16, 3, spec::held_parameters(model, shard));
}

TEST(StageWeights, FetchesWhatOtherStagesHave) {
  for (const bool tied : {false, true}) {
    spec::ModelSpec model = spec::small_model("llama", 5);
    model.tied_head = tied;
    CountingDevice device;
    const WeightSet whole = train::random_weights(device, model, DType::bf16, 3);
    comm::run_in_process({.ranks = 3, .timeout_s = 60}, [&](const comm::Group& stages) {
      CountingDevice own;
      const WeightSet weights = held_by(own, model, stages);
      StageWeights all(own, weights, stages);
      if (stages.rank() > 0) return all.serve();
      for (size_t i = 0; i < whole.parameters.size(); ++i) {
        const Parameter expected = whole.parameters[i], found = all.fetch(i);
        ASSERT_EQ(static_cast<bool>(found.matrix), static_cast<bool>(expected.matrix)) << i;
        const Tensor a = found.matrix ? found.matrix.tensor() : found.vector;
        const Tensor b = expected.matrix ? expected.matrix.tensor() : expected.vector;
        EXPECT_EQ(a.text(), b.text()) << i;
        EXPECT_EQ(std::memcmp(a.data, b.data, b.bytes()), 0) << i;
      }
      all.end();
    });
  }
}

TEST(StageWeights, AnErrorOfTheWriterEndsTheOthers) {
  const spec::ModelSpec model = spec::small_model("llama", 2);
  try {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& stages) {
      CountingDevice own;
      const WeightSet weights = held_by(own, model, stages);
      StageWeights all(own, weights, stages);
      if (stages.rank() > 0) return all.serve();
      throw_error(ErrorKind::resource, "the disk is full");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the disk is full"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace ingot::runs

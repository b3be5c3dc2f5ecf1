// Parameters of a model's parts on the rank that writes the model.
#include "runs/whole_tensors.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tests/spec/small_model.h"
#include "tests/train/small_run.h"
#include "train/initialise.h"

namespace ingot::runs {
namespace {

// What rank `rank` of a model over pp x tp ranks holds.
std::vector<spec::ModelShard> shards_of(int tp, int pp, int rank) {
  return {{.tp = tp, .tp_rank = rank % tp, .pp = pp, .stage = rank / tp}};
}

TEST(WholeTensors, ArePutTogetherFromAllRanks) {
  struct Case {
    int tp, pp;
    bool tied;
  };
  for (const auto& [tp, pp, tied] :
       {Case{1, 3, false}, {1, 3, true}, {2, 1, true}, {2, 2, true}, {4, 1, true}, {1, 1, false}}) {
    for (const models::FamilyCase& family : models::family_cases()) {
      spec::ModelSpec model = family.spec;
      if (model.family != "llama" && model.family != "gpt2" && model.family != "mixtral") continue;
      model.layers = spec::repeated(4, model.layers.front());
      if (model.family != "gpt2") model.tied_head = tied;
      CountingDevice device;
      const WeightSet whole = train::random_weights(device, model, DType::bf16, 3);
      comm::run_in_process({.ranks = tp * pp, .timeout_s = 60}, [&](const comm::Group& ranks) {
        CountingDevice own(ranks.rank() % 2 == 0);
        const std::vector<spec::ModelShard> shards = shards_of(tp, pp, ranks.rank());
        const WeightSet weights =
            train::random_weights(own, model, DType::bf16, 3, spec::held_parameters(model, shards));
        WholeTensors all(own, held_tensors(model, shards, weights), ranks);
        if (ranks.rank() > 0) return all.serve();
        Buffer memory;
        for (size_t i = 0; i < whole.parameters.size(); ++i) {
          const Parameter& expected = whole.parameters[i];
          const Tensor a = all.fetch(i, memory);
          const Tensor b = expected.matrix ? expected.matrix.tensor() : expected.vector;
          EXPECT_EQ(a.text(), b.text()) << i;
          EXPECT_EQ(std::memcmp(a.data, b.data, b.bytes()), 0) << family.name << " " << i;
        }
        all.end();
      });
    }
  }
}

TEST(WholeTensors, AMissingPartIsAnError) {
  const spec::ModelSpec model = spec::small_model("llama", 2);
  try {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& ranks) {
      CountingDevice own;
      const std::vector<spec::ModelShard> shards = shards_of(2, 1, 0);  // both have the first part
      const WeightSet weights = train::random_weights(own, model, DType::bf16, 3, spec::held_parameters(model, shards));
      std::vector<HeldTensor> held = held_tensors(model, shards, weights);
      if (ranks.rank() > 0) held.clear();
      WholeTensors all(own, std::move(held), ranks);
      if (ranks.rank() > 0) return all.serve();
      Buffer memory;
      for (size_t i = 0; i < weights.parameters.size(); ++i) all.fetch(i, memory);
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("elements of tensor"), std::string::npos) << error.message();
  }
}

TEST(WholeTensors, AnErrorOfTheWriterEndsTheOthers) {
  const spec::ModelSpec model = spec::small_model("llama", 2);
  try {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& ranks) {
      CountingDevice own;
      const std::vector<spec::ModelShard> shards = shards_of(1, 2, ranks.rank());
      const WeightSet weights = train::random_weights(own, model, DType::bf16, 3, spec::held_parameters(model, shards));
      WholeTensors all(own, held_tensors(model, shards, weights), ranks);
      if (ranks.rank() > 0) return all.serve();
      throw_error(ErrorKind::resource, "the disk is full");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the disk is full"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace ingot::runs

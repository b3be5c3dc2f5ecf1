// Every family has a recipe whose LoRA targets exist in the family.
#include <gtest/gtest.h>

#include <filesystem>

#include "models/testing/family_specs.h"
#include "spec/lora.h"
#include "tests/locations.h"
#include "train/recipe.h"

namespace ingot::models {
namespace {

TEST(FamilyRecipes, TargetExistingLayers) {
  const std::filesystem::path root = std::filesystem::path(test_data).parent_path().parent_path();
  for (const std::string_view family : spec::families()) {
    if (family == "llama") continue;  // recipes/demo.yaml and others cover it
    SCOPED_TRACE(family);
    const train::Recipe recipe =
        train::read_recipe(root / "recipes" / "families" / (std::string(family) + ".yaml"), {});
    ASSERT_TRUE(recipe.adapter.has_value());
    int64_t cases = 0;
    for (const FamilyCase& c : family_cases()) {
      if (c.spec.family != family) continue;
      const spec::LoraSpec lora{.rank = 1, .targets = recipe.adapter->targets};
      EXPECT_GE(spec::lora_parameters(c.spec, lora).size(), static_cast<size_t>(4 * c.spec.num_layers()));
      ++cases;
    }
    EXPECT_GE(cases, 1);
  }
}

}  // namespace
}  // namespace ingot::models

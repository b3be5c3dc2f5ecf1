// The shipped recipes are valid, and the files that they name exist.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "tests/locations.h"
#include "train/recipe.h"

namespace ingot::train {
namespace {

const std::filesystem::path& repository() {
  static const std::filesystem::path path = std::filesystem::path(test_data).parent_path().parent_path();
  return path;
}

TEST(ShippedRecipes, AreValidAndNameExistingFiles) {
  int64_t num_recipes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(repository() / "recipes")) {
    const std::string folder = entry.path().parent_path().filename();
    if (entry.path().extension() != ".yaml" || folder == "machines") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Recipe recipe = read_recipe(entry.path(), {});
    ++num_recipes;
    if (folder == "scale" && recipe.adapter) {
      EXPECT_THROW(require_training_data(recipe), Error);
      EXPECT_TRUE(std::filesystem::exists(repository() / recipe.model / "config.json")) << recipe.model;
      continue;
    }
    if (folder == "pretrain" || folder == "scale") {
      // These train on the user's data with another model's tokenizer.
      EXPECT_THROW(require_training_data(recipe), Error);
      EXPECT_EQ(recipe.init, InitFrom::random);
      EXPECT_TRUE(recipe.tokenizer.has_value());
      EXPECT_EQ(recipe.name, entry.path().stem());
      EXPECT_TRUE(std::filesystem::exists(repository() / recipe.model / "config.json")) << recipe.model;
      continue;
    }
    EXPECT_NO_THROW(require_training_data(recipe));
    for (const OneOrMany<SourceRecipe>* sources : {&recipe.data.train, &recipe.data.eval}) {
      EXPECT_FALSE(sources->values.empty());
      for (const SourceRecipe& source : sources->values) {
        EXPECT_TRUE(std::filesystem::exists(repository() / source.path)) << source.path;
      }
    }
    if (recipe.init == InitFrom::random) {
      EXPECT_TRUE(std::filesystem::exists(repository() / recipe.model / "config.json")) << recipe.model;
      EXPECT_TRUE(std::filesystem::exists(repository() / recipe.model / "tokenizer.json")) << recipe.model;
    }
  }
  EXPECT_GE(num_recipes, 31);
}

}  // namespace
}  // namespace ingot::train

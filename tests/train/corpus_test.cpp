// Runs the recipe fuzz target on its corpus.
#include "tests/fuzz/recipe.h"
#include "tests/fuzz/replay.h"

namespace ingot::train {
namespace {

TEST(RecipeCorpus, IsAcceptedOrRefusedByName) {
  ingot::fuzz::replay("recipe", [](const std::string& bytes) { return fuzz::read(std::as_bytes(std::span(bytes))); },
                      {.num_valid = 3, .num_bad = 14});
}

}  // namespace
}  // namespace ingot::train

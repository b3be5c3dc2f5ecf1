// ingot recipe schema: the JSON Schema of recipes, for editors.
#include "train/recipe.h"

#include "cli/command.h"

namespace ingot::cli {

namespace {

class RecipeSchema : public Command {
 public:
  const char* name() const override { return "schema"; }
  const char* summary() const override { return "print the JSON Schema of recipes, for editors"; }
  void declare(Arguments& arguments) override { arguments.example("ingot recipe schema > recipe.schema.json"); }
  int run(const Output& output) override {
    output.print(train::recipe_schema() + "\n");
    return 0;
  }
};

class RecipeGroup : public Command {
 public:
  const char* name() const override { return "recipe"; }
  const char* summary() const override { return "commands for recipes"; }
  void declare(Arguments& arguments) override { arguments.example("ingot recipe schema"); }
  int run(const Output&) override { return 0; }
  std::vector<std::unique_ptr<Command>> children() override {
    std::vector<std::unique_ptr<Command>> children;
    children.push_back(std::make_unique<RecipeSchema>());
    return children;
  }
};

}  // namespace

std::unique_ptr<Command> recipe_command() { return std::make_unique<RecipeGroup>(); }

}  // namespace ingot::cli

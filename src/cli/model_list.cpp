// ingot model list: the registered models.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/strings.h"
#include "checkpoint/load.h"
#include "checkpoint/registry.h"
#include "cli/command.h"

namespace ingot::cli {

namespace {

class ModelList : public Command {
 public:
  const char* name() const override { return "list"; }
  const char* summary() const override { return "list the registered models (in $INGOT_HOME, default ~/.ingot)"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override { arguments.example("ingot model list"); }

  int run(const Output& output) override {
    using Json = nlohmann::ordered_json;
    const std::filesystem::path home = checkpoint::ingot_home();
    Json models = Json::array();
    for (const checkpoint::RegisteredModel& model : checkpoint::Registry(home).list()) {
      Json entry = {{"name", model.name}, {"path", model.path.string()}, {"family", nullptr}, {"parameters", nullptr}};
      std::string words;
      // One model whose files are missing or broken must not hide the others.
      try {
        const spec::ModelSpec spec = checkpoint::read_model_spec(checkpoint::open_model(model.name, home));
        entry["family"] = spec.family;
        entry["parameters"] = spec::num_parameters(spec);
        words = fmt::format("{}, {} parameters", spec.family,
                            format_count(static_cast<double>(spec::num_parameters(spec))));
      } catch (const Error& error) {
        entry["error"] = error.message();
        words = "cannot be opened: " + error.message();
      }
      output.print(fmt::format("{}  {}  {}\n", model.name, words, model.path.string()));
      models.push_back(std::move(entry));
    }
    if (models.empty()) output.print("no models yet; download one: ingot model pull NAME\n");
    output.print_json(json_line(Json{{"models", std::move(models)}}));
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> model_list_command() { return std::make_unique<ModelList>(); }

}  // namespace ingot::cli

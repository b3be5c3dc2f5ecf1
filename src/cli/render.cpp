// ingot render: renders a conversation with a model's chat template.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/json_text.h"
#include "checkpoint/text_assets.h"
#include "cli/text_input.h"
#include "text/chat_template.h"

namespace ingot::cli {

namespace {

using nlohmann::ordered_json;

ordered_json read_json_text(const std::string& path) {
  try {
    return parse_lenient_ordered_json(read_text(path));
  } catch (const Error& error) {
    if (error.message().find(path) != std::string::npos) throw;
    throw_error(error.kind(), "{} {}", path, error.message());
  }
}

class Render : public Command {
 public:
  const char* name() const override { return "render"; }
  const char* summary() const override { return "render a conversation with a chat template"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.option("messages", messages_, "a JSON file: a list of {\"role\", \"content\"}", true);
    arguments.option("model", model_, "the model whose template is used");
    arguments.option("template", template_, "a Jinja file to use instead of a model's");
    arguments.option("tools", tools_, "a JSON file with a list of tools");
    arguments.option("variables", variables_,
                     "a JSON file with an object of further variables, e.g. {\"enable_thinking\": false}");
    arguments.flag("no-generation-prompt", no_generation_prompt_, "do not append the start of an assistant message");
    arguments.option("bos", bos_, "value of bos_token (default: the model's)");
    arguments.option("eos", eos_, "value of eos_token (default: the model's)");
    arguments.example("ingot render --model SmolLM2-135M-Instruct --messages conversation.json");
  }

  int run(const Output& output) override {
    if (model_.has_value() == template_.has_value()) {
      throw_error(ErrorKind::usage, "give exactly one of --model and --template");
    }
    text::ChatOptions options;
    options.add_generation_prompt = !no_generation_prompt_;
    std::string source, name;
    checkpoint::TextAssets assets;
    if (template_) {
      source = read_text(*template_);
      name = *template_;
    } else {
      const checkpoint::ModelSource model = checkpoint::open_model(*model_);
      assets = checkpoint::load_text(model);
      if (!assets.chat_template) {
        throw_hint(ErrorKind::not_found, "give a chat template with --template FILE.jinja",
                   "the model {} has no chat template", model.path.string());
      }
      source = *assets.chat_template;
      name = model.name + ": chat template";
      options.bos_token = assets.bos_text;
      options.eos_token = assets.eos_text;
    }
    if (bos_) options.bos_token = *bos_;
    if (eos_) options.eos_token = *eos_;
    const text::ChatTemplate chat(source, name);
    const text::ChatText rendered = render(chat, options);
    output.print(rendered.text);
    if (!output.json()) return 0;
    ordered_json report = {{"text", rendered.text}, {"content", rendered.content}};
    if (assets.tokenizer) {
      report["ids"] = text::encode_chat(*assets.tokenizer, rendered);
    }
    output.print_json(json_line(report));
    return 0;
  }

 private:
  // A usage error of the conversation is an error in its file, not of the command line.
  text::ChatText render(const text::ChatTemplate& chat, text::ChatOptions options) const {
    const ordered_json messages = read_json_text(messages_);
    const ordered_json tools = tools_ ? read_json_text(*tools_) : ordered_json();
    if (tools_ && !tools.is_array()) throw_error(ErrorKind::corrupt, "{}: tools must be a list", *tools_);
    if (variables_) {
      const ordered_json variables = read_json_text(*variables_);
      if (!variables.is_object()) throw_error(ErrorKind::corrupt, "{}: variables must be an object", *variables_);
      options.extra_variables = variables.dump();
    }
    try {
      return chat.render(messages, tools, options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      throw Error(ErrorKind::corrupt, messages_ + ": " + error.message(), error.hint());
    }
  }

  std::string messages_;
  std::optional<std::string> model_, template_, tools_, variables_, bos_, eos_;
  bool no_generation_prompt_ = false;
};

}  // namespace

std::unique_ptr<Command> render_command() { return std::make_unique<Render>(); }

}  // namespace ingot::cli

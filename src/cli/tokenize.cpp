// ingot tokenize: converts a text to token ids, and back.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "checkpoint/text_assets.h"
#include "cli/text_input.h"

namespace ingot::cli {

namespace {

class Tokenize : public Command {
 public:
  const char* name() const override { return "tokenize"; }
  const char* summary() const override { return "convert a text to token ids, or ids to text"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.option("model", model_, "a model, or only its tokenizer: a folder, a .gguf file or a registered name",
                     true);
    arguments.option("text", text_, "the text itself");
    arguments.option("file", file_, "a file with the text (UTF-8)");
    arguments.option("texts", texts_, "a file with one JSON string per line; prints the ids and decoded text of each");
    arguments.option("decode", decode_, "token ids (1,2,3) to decode to text, including special tokens");
    arguments.flag("special", special_,
                   "add the tokenizer's special tokens around the text (those written in the text are always parsed)");
    arguments.example("ingot tokenize --model SmolLM2-135M-Instruct --text 'Hello, world'");
  }

  int run(const Output& output) override {
    if (text_.has_value() + file_.has_value() + texts_.has_value() + decode_.has_value() != 1) {
      throw_error(ErrorKind::usage, "give exactly one of --text, --file, --texts and --decode");
    }
    const checkpoint::ModelSource source = checkpoint::open_model(model_);
    const checkpoint::TextAssets assets = checkpoint::load_text(source);
    if (!assets.tokenizer) {
      throw_hint(ErrorKind::not_found, "put tokenizer.json beside config.json", "the model {} has no tokenizer",
                 source.path.string());
    }
    const text::Tokenizer& tokenizer = *assets.tokenizer;
    if (decode_) {
      const std::string text = tokenizer.decode(parse_ids(*decode_));
      output.print(text + "\n");
      output.print_json(json_line({{"text", text}}));
      return 0;
    }
    if (texts_) return tokenize_lines(output, tokenizer);
    const std::string text = text_ ? *text_ : read_text(*file_);
    const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special_tokens = special_});
    std::vector<std::string> tokens;
    for (int32_t id : ids) {
      tokens.push_back(tokenizer.token_text(id));
      output.print(fmt::format("{:>8}  {}\n", id, tokens.back()));
    }
    output.print_json(json_line({{"ids", ids}, {"tokens", tokens}}));
    return 0;
  }

 private:
  int tokenize_lines(const Output& output, const text::Tokenizer& tokenizer) const {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const std::string& text : read_texts(*texts_)) {
      const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special_tokens = special_});
      output.print(fmt::format("{}\n", fmt::join(ids, ",")));
      rows.push_back({{"ids", ids}, {"text", tokenizer.decode(ids)}});
    }
    output.print_json(json_line({{"rows", std::move(rows)}}));
    return 0;
  }

  std::string model_;
  std::optional<std::string> text_, file_, texts_, decode_;
  bool special_ = false;
};

}  // namespace

std::unique_ptr<Command> tokenize_command() { return std::make_unique<Tokenize>(); }

}  // namespace ingot::cli

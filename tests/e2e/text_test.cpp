// tokenize and render, compared with the tokenizers and jinja2 packages (tests/golden/text).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

const fs::path golden_text = fs::path(test_data) / "text";

// A model folder that contains only a tokenizer.
std::string tokenizer_folder(const Program& program, const std::string& name) {
  const fs::path folder = program / name;
  fs::create_directories(folder);
  fs::copy_file(golden_text / (name + ".tokenizer.json"), folder / "tokenizer.json");
  return folder.string();
}

class Tokenize : public testing::TestWithParam<const char*> {};

TEST_P(Tokenize, AgreesWithTokenizers) {
  const Program program;
  const std::string folder = tokenizer_folder(program, GetParam());
  const Json texts = Json::parse(read(golden_text / "texts.json")).at("plain");
  const Json expected = Json::parse(read(golden_text / (std::string(GetParam()) + ".golden.json"))).at("texts");
  for (size_t i = 5; i < texts.size(); i += 20) {  // tests/text covers all texts; this tests the command
    const std::string file = (program / "text.txt").string();
    write(file, texts[i].get<std::string>());
    const Json report = program.report({"tokenize", "--model", folder, "--file", file});
    EXPECT_EQ(report.at("ids"), expected[i].at("ids")) << i;
    EXPECT_EQ(report.at("tokens").size(), report.at("ids").size());
  }
}

TEST_P(Tokenize, DecodeRestoresTheText) {
  const Program program;
  const std::string folder = tokenizer_folder(program, GetParam());
  const std::string text = "Hello world, it's 2026!\n  Twice.";
  const std::vector<int> ids =
      program.report({"tokenize", "--model", folder, "--text", text}).at("ids").get<std::vector<int>>();
  const Json report =
      program.report({"tokenize", "--model", folder, "--decode", fmt::format("{}", fmt::join(ids, ","))});
  EXPECT_EQ(report.at("text"), text);
}

INSTANTIATE_TEST_SUITE_P(Models, Tokenize, testing::Values("smollm2", "llama3", "qwen2", "gpt2"),
                         [](const auto& info) { return info.param; });

TEST(TokenizeSpecial, AddsSpecialTokens) {
  const Program program;
  const std::string folder = tokenizer_folder(program, "llama3");
  const Json plain = program.report({"tokenize", "--model", folder, "--text", "Hi"});
  const Json special = program.report({"tokenize", "--model", folder, "--text", "Hi", "--special"});
  ASSERT_EQ(special.at("ids").size(), plain.at("ids").size() + 1);
  EXPECT_EQ(special["ids"][0], 610);  // BOS of that file's post-processor
  EXPECT_EQ(special["ids"][1], plain["ids"][0]);
}

TEST(TokenizeErrors, AreOneLineEach) {
  const Program program;
  const std::string folder = tokenizer_folder(program, "smollm2");
  program.refuses({"tokenize", "--model", folder}, 2, "exactly one of --text, --file, --texts and --decode");
  program.refuses({"tokenize", "--model", folder, "--decode", "1,-2"}, 2, "'-2' is not a token id");
  program.refuses({"tokenize", "--model", folder, "--file", (program / "gone.txt").string()}, 3, "gone.txt");
  write(program / "latin1.txt", "caf\xe9");
  program.refuses({"tokenize", "--model", folder, "--file", (program / "latin1.txt").string()}, 3, "not UTF-8");
  program.refuses({"tokenize", "--model", (program / "nowhere").string(), "--text", "x"}, 3, "nowhere");
  program.refuses({"tokenize", "--text", "x"}, 2, "--model");
}

TEST(Render, RendersATemplateFile) {
  const Program program;
  write(program / "t.jinja",
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        "{% if tools %}{{ tools | length }} tools\n{% endif %}{% if add_generation_prompt %}[assistant]{% endif %}"
        "{{ eos_token }}");
  write(program / "m.json", R"([{"role": "user", "content": "Hi"}])");
  write(program / "tools.json", R"([{"name": "f"}])");
  const std::vector<std::string> base = {"render", "--template", (program / "t.jinja").string(), "--messages",
                                         (program / "m.json").string()};
  EXPECT_EQ(program.report(base).at("text"), "[user] Hi\n[assistant]");
  std::vector<std::string> more = base;
  more.insert(more.end(), {"--no-generation-prompt", "--bos", "<s>", "--eos", "</s>", "--tools",
                           (program / "tools.json").string()});
  EXPECT_EQ(program.report(more).at("text"), "<s>[user] Hi\n1 tools\n</s>");
  EXPECT_EQ(program.run(base).output, "[user] Hi\n[assistant]");
}

TEST(Render, RendersTheModelsTemplate) {
  const Program program;
  const std::string model = make_text_model(program, true);
  write(program / "m.json", R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(program.report({"render", "--model", model, "--messages", (program / "m.json").string()}).at("text"),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

// The text is unchanged; the token ids, which need a model, show that contents give no control tokens.
TEST(Render, ContentIsNotReadAsSpecialTokens) {
  const Program program;
  const std::string model = make_text_model(program, true), messages = (program / "m.json").string();
  write(messages, R"([{"role": "user", "content": "a<|im_end|>"}])");
  const Json report = program.report({"render", "--model", model, "--messages", messages, "--no-generation-prompt"});
  EXPECT_EQ(report.at("text"), "<|im_start|>user\na<|im_end|><|im_end|>\n");
  EXPECT_EQ(report.at("content"), Json::parse("[[17, 28]]"));
  const auto ids = report.at("ids").get<std::vector<int>>();
  EXPECT_EQ(ids.size(), 1U + 5U + 11U + 1U + 1U);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);  // <|im_end|>
  write(program / "t.jinja", "{{ messages[0].content }}");
  const Json bare = program.report({"render", "--template", (program / "t.jinja").string(), "--messages", messages});
  EXPECT_EQ(bare, Json::parse(R"({"text": "a<|im_end|>", "content": [[0, 11]]})"));
}

TEST(Render, ErrorsNameTheFault) {
  const Program program;
  const std::string messages = (program / "m.json").string(), jinja = (program / "t.jinja").string();
  write(messages, R"([{"role": "user", "content": "Hi"}])");
  write(jinja, "{{ raise_exception('no such role') }}");
  program.refuses({"render", "--messages", messages}, 2, "exactly one of --model and --template");
  program.refuses({"render", "--messages", messages, "--template", jinja}, 3, "no such role");
  program.refuses({"render", "--messages", messages, "--model", llama("a")}, 3, "has no chat template");
  write(jinja, "{% for %}");
  program.refuses({"render", "--messages", messages, "--template", jinja}, 3, "t.jinja");
  write(jinja, "x");
  // The message names the faulty file.
  const std::string other = (program / "other.json").string();
  for (const char* option : {"--tools", "--variables"}) {
    for (const char* text : {"1", "{", "[[}"}) {
      write(other, text);
      program.refuses({"render", "--messages", messages, "--template", jinja, option, other}, 3, "other.json");
    }
  }
  write(messages, "{");
  program.refuses({"render", "--messages", messages, "--template", jinja}, 3, "m.json is not JSON");
}

}  // namespace
}  // namespace ingot::e2e

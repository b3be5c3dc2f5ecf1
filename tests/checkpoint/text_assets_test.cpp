#include "checkpoint/text_assets.h"

#include "checkpoint/vocabulary.h"
#include "tests/checkpoint/fixtures.h"

namespace ingot::checkpoint {
namespace {

fs::path text_golden(const std::string& name) { return fs::path(INGOT_TEST_DATA) / "text" / name; }

// A golden tokenizer without the added tokens that GGUF cannot describe.
std::string plain_tokens(const std::string& name) {
  nlohmann::json document = nlohmann::json::parse(read_file(text_golden(name + ".tokenizer.json")));
  for (auto& token : document["added_tokens"]) {
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) token[flag] = false;
  }
  return document.dump();
}

void expect_same_ids(const text::Tokenizer& a, const text::Tokenizer& b) {
  const nlohmann::json texts = nlohmann::json::parse(read_file(text_golden("texts.json")));
  size_t compared = 0;
  for (const auto& item : texts.at("plain")) {
    const auto text = item.get<std::string>();
    EXPECT_EQ(a.encode(text), b.encode(text)) << text;
    ++compared;
  }
  EXPECT_GT(compared, 50U);
}

// tokenizer.json -> keys of a GGUF file -> tokenizer.json: all three split and number alike.
class Vocabulary : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Vocabulary, BothWays) {
  const auto [name, pre] = GetParam();
  const std::string original = plain_tokens(name);
  const auto tokenizer = text::Tokenizer::from_json(original, name);
  const int64_t size = tokenizer->size() + 7;
  const text::VocabularySpec vocabulary = gguf_vocabulary_of(original, name, {}, size);
  EXPECT_EQ(vocabulary.pre, pre);
  EXPECT_EQ(vocabulary.tokens.size(), static_cast<size_t>(size));
  EXPECT_EQ(vocabulary.tokens.back(), "[PAD" + std::to_string(size - 1) + "]");
  expect_same_ids(*tokenizer, *text::Tokenizer::from_vocabulary(vocabulary));
  expect_same_ids(*tokenizer, *text::Tokenizer::from_json(tokenizer_json(vocabulary), "made"));
}
INSTANTIATE_TEST_SUITE_P(Kinds, Vocabulary,
                         testing::Values(std::pair{"gpt2", "gpt-2"}, std::pair{"smollm2", "smollm"},
                                         std::pair{"qwen2", "qwen2"}),
                         [](const auto& test) { return std::string(test.param.first); });

// Llama 3 puts BOS in front; the settings must survive.
TEST(VocabularyOfLlama3, KeepsTheBosRule) {
  const std::string original = plain_tokens("llama3");
  const text::SpecialTokens special;
  const auto tokenizer = text::Tokenizer::from_json(original, "llama3", special);
  text::VocabularySpec vocabulary = gguf_vocabulary_of(original, "llama3", special, tokenizer->size());
  EXPECT_EQ(vocabulary.pre, "llama-bpe");
  EXPECT_EQ(vocabulary.add_bos, true);
  const std::string made = tokenizer_json(vocabulary);
  expect_same_ids(*tokenizer, *text::Tokenizer::from_json(made, "made"));
  expect_same_ids(*tokenizer, *text::Tokenizer::from_vocabulary(std::move(vocabulary)));
}

TEST(VocabularyRefusals, ByName) {
  const std::string flags = read_file(text_golden("smollm2.tokenizer.json"));
  expect_error(ErrorKind::unsupported, {"smollm2"}, [&] { gguf_vocabulary_of(flags, "smollm2", {}, 100000); });
  text::SpecialTokens other_bos;
  other_bos.bos = "<|im_start|>";
  const std::string llama3 = plain_tokens("llama3");
  expect_error(ErrorKind::unsupported, {"<|endoftext|>", "<|im_start|>"},
               [&] { gguf_vocabulary_of(llama3, "llama3", other_bos, 100000); });
  const std::string llama2 = read_file(text_golden("llama2.tokenizer.json"));
  expect_error(ErrorKind::unsupported, {"llama2"}, [&] { gguf_vocabulary_of(llama2, "llama2", {}, 100000); });
  const std::string gpt2 = plain_tokens("gpt2");
  expect_error(ErrorKind::corrupt, {"gpt2", "vocabulary of 10"}, [&] { gguf_vocabulary_of(gpt2, "gpt2", {}, 10); });
  text::VocabularySpec other;
  other.name = "m.gguf";
  other.model = "llama";
  expect_error(ErrorKind::unsupported, {"m.gguf", "'llama'"}, [&] { tokenizer_json(other); });
}

TEST(TextAssets, OfAHuggingFaceFolder) {
  const Scratch scratch;
  const fs::path folder = copy_model("a", scratch.path / "m");
  EXPECT_EQ(load_text(open_model(folder.string(), "")).tokenizer, nullptr);
  fs::copy_file(text_golden("smollm2.tokenizer.json"), folder / "tokenizer.json");
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  const auto plain = text::Tokenizer::from_json(read_file(folder / "tokenizer.json"), "t");
  const std::string first = plain->token_text(0);
  const std::string second = plain->token_text(1);
  write("tokenizer_config.json", nlohmann::json{{"bos_token", {{"content", first}}},
                                                {"eos_token", second},
                                                {"chat_template", {{{"name", "default"}, {"template", "T1"}}}}}
                                     .dump()
                                     .c_str());
  TextAssets assets = load_text(open_model(folder.string(), ""));
  EXPECT_EQ(assets.bos_text, first);
  EXPECT_EQ(assets.eos_text, second);
  EXPECT_EQ(assets.bos, 0);
  EXPECT_EQ(assets.eos, std::vector<int32_t>{2}) << "config.json's";
  EXPECT_EQ(assets.chat_template, "T1");
  write("generation_config.json", R"({"eos_token_id": [9, 5, 5], "temperature": 0.6, "top_k": 20, "do_sample": true})");
  write("chat_template.jinja", "T2");
  assets = load_text(open_model(folder.string(), ""));
  EXPECT_EQ(assets.eos, (std::vector<int32_t>{5, 9}));
  EXPECT_EQ(assets.generation.temperature, 0.6);
  EXPECT_EQ(assets.generation.top_k, 20);
  EXPECT_EQ(assets.generation.do_sample, true);
  EXPECT_FALSE(assets.generation.top_p.has_value());
  EXPECT_EQ(assets.chat_template, "T2");
  fs::rename(folder / "tokenizer.json", folder / "tokenizer.model");
  expect_error(ErrorKind::unsupported, {"tokenizer.model", "save_pretrained"},
               [&] { load_text(open_model(folder.string(), "")); });
}

}  // namespace
}  // namespace ingot::checkpoint

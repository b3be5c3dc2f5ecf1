#include "checkpoint/text_assets.h"

#include "checkpoint/scored_vocabulary.h"
#include "checkpoint/vocabulary.h"
#include "tests/checkpoint/fixtures.h"
#include "tests/locations.h"
#include "text/sentencepiece_file.h"

namespace ingot::checkpoint {
namespace {

fs::path text_golden(const std::string& name) { return fs::path(test_data) / "text" / name; }

// A golden tokenizer without the added tokens that GGUF cannot represent.
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

// tokenizer.json -> GGUF metadata -> tokenizer.json: all three give the same ids.
class Vocabulary : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Vocabulary, SurvivesARoundTrip) {
  const auto [name, pre] = GetParam();
  const std::string original = plain_tokens(name);
  const auto tokenizer = text::Tokenizer::from_json(original, name);
  const int64_t size = tokenizer->size() + 7;
  const text::VocabularySpec vocabulary = gguf_vocabulary_of(original, name, {}, size).spec;
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

// A GGUF tokenizer whose pre-tokenizer no tokenizer.json of the test data has.
TEST(VocabularyNames, ConvertToTokenizerJson) {
  const std::string original = plain_tokens("gpt2");
  text::VocabularySpec vocabulary = gguf_vocabulary_of(original, "gpt2", {}, 1000).spec;
  for (const char* pre : {"falcon", "deepseek-llm", "deepseek-coder", "command-r"}) {
    vocabulary.pre = pre;
    expect_same_ids(*text::Tokenizer::from_vocabulary(vocabulary),
                    *text::Tokenizer::from_json(tokenizer_json(vocabulary), pre));
  }
}

// Phi-3's file: padding entries of type unknown, and special tokens that strip the white space after them.
TEST(VocabularyOfPhi3, SurvivesARoundTrip) {
  text::VocabularySpec spec;
  spec.name = "phi";
  spec.model = "llama";
  spec.tokens = {"[PAD0]", "<unk>", "<s>", "</s>", "\u2581", "a", "b", "<|end|>"};
  spec.token_types = {text::token_unknown, text::token_control, text::token_control, text::token_user_defined,
                      text::token_normal,  text::token_normal,  text::token_normal,  text::token_control};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    spec.token_types.push_back(text::token_byte);
  }
  const auto size = static_cast<int64_t>(spec.tokens.size());
  spec.scores.assign(spec.tokens.size(), 0);
  spec.unk_id = 1;
  spec.add_space_prefix = false;
  spec.rstrip = rstrip_of_phi3(spec);
  EXPECT_EQ(spec.rstrip, (std::vector<int32_t>{0, 3, 7}));
  const auto read = text::Tokenizer::from_vocabulary(spec),
             made = text::Tokenizer::from_json(tokenizer_json(spec), "made");
  for (const char* text : {"<|end|> \n</s> b<s> a", "[PAD0] a?b", "a<unk> ?"}) {
    EXPECT_EQ(read->encode(text), made->encode(text)) << text;
  }
  const GgufVocabulary again = gguf_vocabulary_of(tokenizer_json(spec), "made", {}, size);
  EXPECT_EQ(again.spec.rstrip, spec.rstrip);
  for (const char* text : {"<|end|> \n</s> b<s> a", "[PAD0] a?b"}) {
    EXPECT_EQ(read->encode(text), text::Tokenizer::from_vocabulary(again.spec)->encode(text)) << text;
  }
  // When only some tokens strip, no pre-tokenizer name represents it.
  spec.rstrip = {7};
  expect_error(ErrorKind::unsupported, {"made", "<|end|>"},
               [&] { gguf_vocabulary_of(tokenizer_json(spec), "made", {}, size); });
}

// Llama 3 prepends BOS; the setting must survive.
TEST(VocabularyOfLlama3, KeepsTheBosSetting) {
  const std::string original = plain_tokens("llama3");
  const text::SpecialTokens special;
  const auto tokenizer = text::Tokenizer::from_json(original, "llama3", special);
  text::VocabularySpec vocabulary = gguf_vocabulary_of(original, "llama3", special, tokenizer->size()).spec;
  EXPECT_EQ(vocabulary.pre, "llama-bpe");
  EXPECT_EQ(vocabulary.add_bos, true);
  const std::string made = tokenizer_json(vocabulary);
  expect_same_ids(*tokenizer, *text::Tokenizer::from_json(made, "made"));
  expect_same_ids(*tokenizer, *text::Tokenizer::from_vocabulary(std::move(vocabulary)));
}

// BPE with scores: tokenizer.model -> GGUF -> tokenizer.json -> GGUF all give the same ids.
TEST(VocabularyOfLlama2, SurvivesARoundTrip) {
  const text::VocabularySpec model = text::parse_sentencepiece(read_file(text_golden("spm_llama.model")), "spm_llama");
  const auto tokenizer = text::Tokenizer::from_vocabulary(model);
  const text::VocabularySpec gguf = gguf_vocabulary_of(model, tokenizer->size() + 5).spec;
  EXPECT_EQ(gguf.model, "llama");
  EXPECT_EQ(gguf.tokens.back(), "[PAD" + std::to_string(tokenizer->size() + 4) + "]");
  expect_same_ids(*tokenizer, *text::Tokenizer::from_vocabulary(gguf));
  const std::string json = tokenizer_json(gguf);
  const auto from_json = text::Tokenizer::from_json(json, "made");
  expect_same_ids(*tokenizer, *from_json);
  const text::VocabularySpec again = gguf_vocabulary_of(json, "made", {}, tokenizer->size()).spec;
  EXPECT_EQ(again.tokens, model.tokens);
  EXPECT_EQ(again.token_types, model.token_types);
  EXPECT_EQ(again.add_space_prefix, true);
  EXPECT_EQ(again.add_bos, true);
  expect_same_ids(*tokenizer, *text::Tokenizer::from_vocabulary(again));
  // The form that transformers writes now, and that of the tokenizers package.
  for (const char* name : {"llama", "mistral"}) {
    const std::string original = read_file(text_golden(std::string(name) + ".tokenizer.json"));
    const text::VocabularySpec made = gguf_vocabulary_of(original, name, {}, tokenizer->size()).spec;
    EXPECT_EQ(made.token_types, model.token_types);
    expect_same_ids(*tokenizer, *text::Tokenizer::from_vocabulary(made));
  }
}

// Features that a GGUF file cannot represent are reported, and no others.
TEST(GgufVocabulary, ReportsFeaturesThatAreLost) {
  const auto lost = [](const std::string& json) { return gguf_vocabulary_of(json, "json", {}, 100000).lost; };
  EXPECT_TRUE(lost(read_file(text_golden("llama.tokenizer.json"))).empty());
  EXPECT_TRUE(lost(plain_tokens("gpt2")).empty());
  EXPECT_EQ(lost(read_file(text_golden("mistral.tokenizer.json"))).size(), 2);
  text::VocabularySpec model = text::parse_sentencepiece(read_file(text_golden("spm_llama.model")), "spm_llama");
  const auto size = static_cast<int64_t>(model.tokens.size());
  EXPECT_TRUE(gguf_vocabulary_of(model, size).lost.empty());
  model.prefix_at_start_only = true;
  EXPECT_EQ(gguf_vocabulary_of(model, size).lost, std::vector<std::string>{prefix_lost});
}

TEST(VocabularyOfUnigram, SurvivesConversionToGguf) {
  const text::VocabularySpec model = text::parse_sentencepiece(read_file(text_golden("spm_unigram.model")), "unigram");
  const text::VocabularySpec gguf = gguf_vocabulary_of(model, static_cast<int64_t>(model.tokens.size())).spec;
  EXPECT_EQ(gguf.model, "t5");
  expect_same_ids(*text::Tokenizer::from_vocabulary(model), *text::Tokenizer::from_vocabulary(gguf));
  expect_error(ErrorKind::unsupported, {"t5"}, [&] { tokenizer_json(gguf); });
}

TEST(SentencePieceFolder, WorksWithoutTokenizerJson) {
  const Scratch scratch;
  const fs::path& folder = scratch.path;
  fs::copy_file(text_golden("spm_llama.model"), folder / "tokenizer.model");
  const auto load = [&] { return load_text(open_model(folder.string(), "")); };
  EXPECT_EQ(load().tokenizer->encode(""), std::vector<int32_t>{1});
  EXPECT_EQ(load().bos_text, "<s>");
  EXPECT_EQ(load().eos, std::vector<int32_t>{2});
  const int32_t size = load().tokenizer->size();
  std::ofstream(folder / "added_tokens.json") << ("{\"<tool>\": " + std::to_string(size) + "}");
  std::ofstream(folder / "tokenizer_config.json")
      << ("{\"add_bos_token\": false, \"eos_token\": \"<end>\", \"added_tokens_decoder\": {\"" +
          std::to_string(size + 1) + "\": {\"content\": \"<end>\", \"special\": true}}}");
  const TextAssets assets = load();
  EXPECT_EQ(assets.tokenizer->encode("<tool><end>"), (std::vector<int32_t>{size, size + 1}));
  EXPECT_EQ(assets.eos, std::vector<int32_t>{size + 1});
  EXPECT_TRUE(assets.tokenizer->is_special(size + 1));
  EXPECT_FALSE(assets.tokenizer->is_special(size));
}

// As llama.cpp does: user-defined tokens strip, too, but only where the file's name says Phi-3.
TEST(GgufText, SpecialTokensOfPhi3StripTheSpaceAfterThem) {
  for (const char* name : {"Phi-3 mini", "my PHI3", "other"}) {
    formats::GgufMetadata metadata;
    metadata.add("general.name", std::string(name));
    metadata.add("tokenizer.ggml.model", std::string("gpt2"));
    metadata.add("tokenizer.ggml.pre", std::string("gpt-2"));
    metadata.add("tokenizer.ggml.tokens", formats::GgufArray{std::vector<std::string>{"<own>", "<|end|>", "<s>", "a"}});
    metadata.add("tokenizer.ggml.token_type",
                 formats::GgufArray{std::vector<int32_t>{text::token_user_defined, text::token_control,
                                                         text::token_control, text::token_normal}});
    const auto rstrip = gguf_vocabulary(metadata, "test").rstrip;
    EXPECT_EQ(rstrip, name == std::string("other") ? std::vector<int32_t>{} : (std::vector<int32_t>{0, 1})) << name;
  }
}

// The ids of `text` as a chat message's content.
std::vector<int32_t> ids_of_content(const text::Tokenizer& tokenizer, const std::string& text) {
  const text::ByteRanges content = {{0, text.size()}};
  return tokenizer.encode(text, {.add_special_tokens = false, .content = content});
}

size_t count(const std::vector<int32_t>& ids, int32_t id) {
  return static_cast<size_t>(std::count(ids.begin(), ids.end(), id));
}

// added_tokens.json has no flags: tokenizer_config.json states which tokens are special.
TEST(SentencePieceFolder, ContentGivesNoTokensThatTheConfigurationNamesSpecial) {
  const Scratch scratch;
  const fs::path& folder = scratch.path;
  fs::copy_file(text_golden("spm_llama.model"), folder / "tokenizer.model");
  const auto load = [&] { return load_text(open_model(folder.string(), "")); };
  const int32_t size = load().tokenizer->size();
  nlohmann::json added;
  const char* const tokens[] = {"<tool>", "<|im_start|>", "<|im_end|>", "<|eom|>"};
  for (const char* token : tokens) added[token] = size + static_cast<int32_t>(added.size());
  std::ofstream(folder / "added_tokens.json") << added;
  std::ofstream(folder / "special_tokens_map.json")
      << R"({"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]})";
  std::ofstream(folder / "generation_config.json") << "{\"eos_token_id\": " << added["<|eom|>"] << "}";
  const TextAssets assets = load();
  for (const char* token : tokens) {
    const int32_t id = added[token];
    EXPECT_EQ(count(assets.tokenizer->encode(token), id), 1U) << token;
    EXPECT_EQ(count(ids_of_content(*assets.tokenizer, token), id), token == std::string("<tool>") ? 1U : 0U) << token;
  }
}

// Early conversions of Gemma store <end_of_turn> as a user-defined token and no key names it.
TEST(GgufText, ContentGivesNoEndOfTurnTokens) {
  formats::GgufMetadata metadata;
  metadata.add("tokenizer.ggml.model", std::string("gpt2"));
  metadata.add("tokenizer.ggml.pre", std::string("gpt-2"));
  std::vector<std::string> tokens = {"<tool>", "<end_of_turn>", "<stop>", "<over>"};
  std::vector<int32_t> types = {text::token_user_defined, text::token_user_defined, text::token_user_defined,
                                text::token_normal};
  for (char c = '!'; c <= '~'; ++c) tokens.emplace_back(1, c);
  types.resize(tokens.size(), text::token_normal);
  metadata.add("tokenizer.ggml.tokens", formats::GgufArray{tokens});
  metadata.add("tokenizer.ggml.token_type", formats::GgufArray{types});
  metadata.add("tokenizer.ggml.merges", formats::GgufArray{std::vector<std::string>{}});
  metadata.add("tokenizer.ggml.eot_token_id", uint32_t{2});
  metadata.add("tokenizer.ggml.eos_token_id", uint32_t{3});
  metadata.add("tokenizer.ggml.padding_token_id", uint32_t{4});  // "!"
  const auto tokenizer = text::Tokenizer::from_vocabulary(gguf_vocabulary(metadata, "test"));
  const std::string text = "<tool><end_of_turn><stop><over>!";
  EXPECT_EQ(tokenizer->encode(text), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  const std::vector<int32_t> ids = ids_of_content(*tokenizer, text);
  EXPECT_EQ(count(ids, 0), 1U);
  for (const int32_t id : {1, 2, 3}) EXPECT_EQ(count(ids, id), 0U) << id;
  EXPECT_EQ(count(ids, 4), 1U);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 1, 2, 3, 4}, true), "<tool>!");
}

// A file's EOS may be an ordinary token that BPE merges produce.
TEST(GgufText, TokensThatMergesProduceAreText) {
  formats::GgufMetadata metadata;
  metadata.add("tokenizer.ggml.model", std::string("gpt2"));
  metadata.add("tokenizer.ggml.pre", std::string("gpt-2"));
  const std::vector<std::string> tokens = {"a", "b", "c", "ab", "abc"}, merges = {"a b", "ab c"};
  metadata.add("tokenizer.ggml.tokens", formats::GgufArray{tokens});
  metadata.add("tokenizer.ggml.token_type", formats::GgufArray{std::vector<int32_t>(5, text::token_normal)});
  metadata.add("tokenizer.ggml.merges", formats::GgufArray{merges});
  metadata.add("tokenizer.ggml.eos_token_id", uint32_t{3});
  const auto tokenizer = text::Tokenizer::from_vocabulary(gguf_vocabulary(metadata, "test"));
  EXPECT_EQ(tokenizer->encode("abcab"), (std::vector<int32_t>{4, 3}));
  EXPECT_EQ(ids_of_content(*tokenizer, "abcab"), (std::vector<int32_t>{4, 3}));
}

TEST(VocabularyRefusals, NameWhatIsUnsupported) {
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
  other.model = "bert";
  expect_error(ErrorKind::unsupported, {"m.gguf", "'bert'"}, [&] { tokenizer_json(other); });
}

TEST(TextAssets, AreReadFromAHuggingFaceFolder) {
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
  EXPECT_EQ(assets.eos, std::vector<int32_t>{2}) << "EOS of config.json";
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
  fs::rename(folder / "tokenizer.json", folder / "vocab.json");
  expect_error(ErrorKind::unsupported, {"vocab.json", "save_pretrained"},
               [&] { load_text(open_model(folder.string(), "")); });
}

}  // namespace
}  // namespace ingot::checkpoint

// Tokenizers compared with the ids of the `tokenizers` package.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/text/golden.h"

namespace ingot::text {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

constexpr EncodeOptions plain_text{.add_special_tokens = false, .parse_special = true};

std::unique_ptr<Tokenizer> load(const std::string& name) {
  const std::string file = name + ".tokenizer.json";
  return Tokenizer::from_json(read_golden(file), file);
}

std::vector<std::string> texts() {
  const ordered_json lists = read_golden_json("texts.json");
  auto all = lists["plain"].get<std::vector<std::string>>();
  for (const auto& text : lists["special"]) all.push_back(text.get<std::string>());
  return all;
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values("gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2", "cased", "behaviors",
                                         "llama2", "llama", "mistral", "unigram", "nfkc", "words"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(TokenizerGolden, EncodesAndDecodesLikeTheReference) {
  const auto tokenizer = load(GetParam());
  const std::vector<std::string> all = texts();
  const ordered_json golden = read_golden_json(std::string(GetParam()) + ".golden.json");
  ASSERT_EQ(golden["texts"].size(), all.size());
  ASSERT_GE(all.size(), 300u);
  for (size_t i = 0; i < all.size(); ++i) {
    const ordered_json& row = golden["texts"][i];
    const auto ids = row["ids"].get<Ids>();
    const std::string where = "text " + std::to_string(i) + ": " + all[i];
    EXPECT_EQ(tokenizer->encode(all[i], plain_text), ids) << where;
    EXPECT_EQ(tokenizer->encode(all[i]), row.value("with_special", ids)) << where;
    EXPECT_EQ(tokenizer->encode(all[i], {.add_special_tokens = false, .parse_special = false}),
              row.value("as_text", ids))
        << where;
    const std::string decoded = row.value("decoded", all[i]);
    EXPECT_EQ(tokenizer->decode(ids), decoded) << where;
    EXPECT_EQ(tokenizer->decode(ids, true), row.value("skipped", decoded)) << where;
    EXPECT_EQ(stream(*tokenizer, ids, false), decoded) << where;
    EXPECT_EQ(stream(*tokenizer, ids, true), row.value("skipped", decoded)) << where;
  }
}

TEST_P(TokenizerGolden, DecodesAnyIdsLikeTheReference) {
  const auto tokenizer = load(GetParam());
  const bool byte_fallback = tokenizer->find("<0x0A>").has_value();
  const ordered_json golden = read_golden_json(std::string(GetParam()) + ".golden.json");
  for (const ordered_json& row : golden["decode"]) {
    const auto ids = row["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->decode(ids), row["decoded"].get<std::string>());
    // The contract of StreamDecoder: with byte fallback, runs that are not UTF-8 as a whole may differ.
    if (!byte_fallback) EXPECT_EQ(stream(*tokenizer, ids, false), row["decoded"].get<std::string>());
  }
}

TEST(Tokenizer, DecodeRestoresTheText) {
  const std::vector<std::string> all = texts();
  for (const char* name : {"gpt2", "llama3", "smollm2", "cased"}) {
    const auto tokenizer = load(name);
    for (const std::string& text : all) {
      // Tokens that strip adjacent white space lose it.
      if (text.find("<strip>") != std::string::npos) continue;
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, plain_text)), text) << name;
    }
  }
}

TEST(Tokenizer, LongTextsAreTheConcatenationOfTheirWords) {
  const auto tokenizer = load("smollm2");
  std::string text;
  Ids expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string word = " word" + std::string(static_cast<size_t>(i % 90), static_cast<char>('a' + i % 26));
    text += word;
    const Ids ids = tokenizer->encode(word, plain_text);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer->encode(text, plain_text), expected);
}

TEST(Tokenizer, InvalidBytesSurvive) {
  const auto tokenizer = load("gpt2");
  const std::string text = "ab\xFF\xC3 \x80\xE2\x82 c";
  const Ids ids = tokenizer->encode(text, plain_text);
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer->token_bytes(id);
  EXPECT_EQ(bytes, text);
  EXPECT_EQ(tokenizer->decode(ids), "ab\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD c");
  EXPECT_EQ(stream(*tokenizer, ids, false), tokenizer->decode(ids));

  const auto characters = load("llama2");
  const Ids with_fallback = characters->encode("a\xFFz", plain_text);
  EXPECT_NE(std::find(with_fallback.begin(), with_fallback.end(), characters->find("<0xFF>").value()),
            with_fallback.end());
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const auto tokenizer = load("gpt2");
  const std::string face = "\xF0\x9F\x98\x80";
  Ids ids;
  for (const char byte : face) ids.push_back(tokenizer->encode(std::string(1, byte), plain_text).at(0));
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(ids[0]), "");
  EXPECT_EQ(decoder.push(ids[1]), "");
  EXPECT_EQ(decoder.push(ids[2]), "");
  EXPECT_EQ(decoder.push(ids[3]), face);
  EXPECT_EQ(decoder.push(ids[0]), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, ThreadsShareATokenizer) {
  const auto tokenizer = load("llama3");
  const std::vector<std::string> all = texts();
  std::vector<Ids> expected;
  for (const std::string& text : all) expected.push_back(load("llama3")->encode(text));
  std::vector<std::thread> threads;
  std::array<int, 4> differences{};
  for (int& count : differences) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < all.size(); ++i) count += tokenizer->encode(all[i]) != expected[i];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differences, (std::array<int, 4>{}));
}

TEST(Tokenizer, SpecialTokenSettingsAreFollowed) {
  const std::string json = read_golden("smollm2.tokenizer.json");
  SpecialTokens special;
  special.bos = "<|im_start|>";
  special.eos = "<|im_end|>";
  special.add_bos = true;
  special.add_eos = true;
  const auto tokenizer = Tokenizer::from_json(json, "t", special);
  EXPECT_EQ(tokenizer->bos_id(), tokenizer->find("<|im_start|>"));
  EXPECT_EQ(tokenizer->eos_id(), tokenizer->find("<|im_end|>"));
  EXPECT_FALSE(tokenizer->pad_id());
  const Ids ids = tokenizer->encode("");
  EXPECT_EQ(ids, (Ids{tokenizer->bos_id().value(), tokenizer->eos_id().value()}));
  EXPECT_TRUE(tokenizer->is_special(ids[0]));
  EXPECT_EQ(tokenizer->token_text(ids[1]), "<|im_end|>");
  EXPECT_EQ(tokenizer->token_text(-1), "");
  EXPECT_EQ(tokenizer->decode(Ids{-1, tokenizer->size(), 1 << 30}), "");

  special.bos.reset();
  EXPECT_EQ(error_of([&] { Tokenizer::from_json(json, "t", special); }).kind(), ErrorKind::not_found);

  SpecialTokens without;
  without.bos = "<|endoftext|>";
  without.add_bos = false;
  EXPECT_EQ(Tokenizer::from_json(read_golden("llama3.tokenizer.json"), "t", without)->encode(""), Ids{});
}

TEST(Tokenizer, ABosTokenComesBeforeThePrefixOfTheFile) {
  SpecialTokens special;
  special.bos = "<|im_start|>";
  special.add_bos = true;
  const auto tokenizer = Tokenizer::from_json(read_golden("llama3.tokenizer.json"), "t", special);
  const int32_t prefix = tokenizer->find("<|endoftext|>").value();
  EXPECT_EQ(tokenizer->encode(""), (Ids{tokenizer->bos_id().value(), prefix}));
}

// A GGUF vocabulary derived from a tokenizer.json of the same kind.
VocabularySpec vocabulary_of(const std::string& name, const std::string& pre) {
  const ordered_json json = read_golden_json(name + ".tokenizer.json");
  VocabularySpec spec;
  spec.name = name;
  spec.model = "gpt2";
  spec.pre = pre;
  int32_t size = 0;
  for (const auto& [token, id] : json["model"]["vocab"].items()) size = std::max(size, id.get<int32_t>() + 1);
  for (const auto& token : json["added_tokens"]) size = std::max(size, token["id"].get<int32_t>() + 1);
  for (int32_t id = 0; id < size; ++id) spec.tokens.push_back("[PAD" + std::to_string(id) + "]");
  spec.token_types.assign(spec.tokens.size(), 5);
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    spec.tokens[id.get<size_t>()] = token;
    spec.token_types[id.get<size_t>()] = 1;
  }
  for (const auto& token : json["added_tokens"]) {
    if (!token["special"].get<bool>()) continue;
    spec.tokens[token["id"].get<size_t>()] = token["content"].get<std::string>();
    spec.token_types[token["id"].get<size_t>()] = 3;
  }
  for (const auto& merge : json["model"]["merges"]) spec.merges.push_back(merge.get<std::string>());
  return spec;
}

TEST(Vocabulary, EncodesLikeTheReference) {
  const ordered_json lists = read_golden_json("texts.json");
  for (const auto& [name, pre] : std::vector<std::pair<std::string, std::string>>{{"gpt2", "gpt-2"},
                                                                                  {"llama3", "llama-bpe"},
                                                                                  {"qwen2", "qwen2"},
                                                                                  {"smollm2", "smollm"},
                                                                                  {"cased", "gpt-4o"}}) {
    const auto tokenizer = Tokenizer::from_vocabulary(vocabulary_of(name, pre));
    const ordered_json golden = read_golden_json(name + ".golden.json");
    for (size_t i = 0; i < lists["plain"].size(); ++i) {
      const auto text = lists["plain"][i].get<std::string>();
      const auto ids = golden["texts"][i]["ids"].get<Ids>();
      EXPECT_EQ(tokenizer->encode(text), ids) << name << ": " << text;
      EXPECT_EQ(tokenizer->decode(ids), golden["texts"][i].value("decoded", text)) << name << ": " << text;
    }
    const size_t first_special = lists["plain"].size();
    const auto text = lists["special"][0].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), golden["texts"][first_special]["ids"].get<Ids>()) << name;
  }
}

// A file without a pre-tokenizer name: first punctuation and similar characters are split off, then numbers, without a
// leading space and in groups of three digits.
TEST(Vocabulary, SplitsLikeLlamaCppWithoutAName) {
  const auto named = Tokenizer::from_vocabulary(vocabulary_of("gpt2", "default"));
  const auto unnamed = Tokenizer::from_vocabulary(vocabulary_of("gpt2", ""));
  const auto pieces = [&](const std::vector<std::string>& parts) {
    Ids ids;
    for (const std::string& part : parts) {
      const Ids more = named->encode(part);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  };
  for (const std::vector<std::string>& parts : std::vector<std::vector<std::string>>{
           {"123", "456", "7"}, {" ", "123", "4"}, {" a", "...", "b"}, {"x", "^=", " y"}, {" the", "'", "ll"}}) {
    const std::string text = std::accumulate(parts.begin(), parts.end(), std::string());
    EXPECT_EQ(named->encode(text), pieces(parts)) << text;
    EXPECT_EQ(unnamed->encode(text), pieces(parts)) << text;
  }
}

TEST(Vocabulary, AddsBosAccordingToTheFile) {
  VocabularySpec spec = vocabulary_of("llama3", "llama-bpe");
  spec.bos_id = 10;
  EXPECT_EQ(Tokenizer::from_vocabulary(spec)->encode(""), Ids{10});
  spec.add_bos = false;
  EXPECT_EQ(Tokenizer::from_vocabulary(spec)->encode(""), Ids{});
  spec.pre = "gpt-2";
  spec.add_bos.reset();
  EXPECT_EQ(Tokenizer::from_vocabulary(spec)->encode(""), Ids{});
  spec.add_bos = true;
  spec.eos_id = 11;
  spec.add_eos = true;
  EXPECT_EQ(Tokenizer::from_vocabulary(spec)->encode(""), (Ids{10, 11}));
}

TEST(Vocabulary, ErrorsNameTheFault) {
  const auto refusal = [](const std::function<void(VocabularySpec&)>& change) {
    VocabularySpec spec = vocabulary_of("gpt2", "gpt-2");
    change(spec);
    return error_of([&] { Tokenizer::from_vocabulary(spec); });
  };
  const Error model = refusal([](auto& spec) { spec.model = "rwkv"; });
  EXPECT_EQ(model.kind(), ErrorKind::unsupported);
  EXPECT_NE(model.message().find("rwkv"), std::string::npos);
  const Error pre = refusal([](auto& spec) { spec.pre = "klingon"; });
  EXPECT_EQ(pre.kind(), ErrorKind::unsupported);
  EXPECT_NE(pre.message().find("klingon"), std::string::npos);
  EXPECT_EQ(refusal([](auto& spec) { spec.tokens.clear(); }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(refusal([](auto& spec) { spec.token_types.pop_back(); }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(refusal([](auto& spec) { spec.token_types[3] = 9; }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(refusal([](auto& spec) { spec.merges[5] = "nospace"; }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(refusal([](auto& spec) { spec.merges[5] = "zzzzz qqqqq"; }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(refusal([](auto& spec) { spec.bos_id = 1 << 20; }).kind(), ErrorKind::corrupt);
}

TEST(Tokenizer, ErrorsNameTheFault) {
  const auto refusal = [](const char* pointer, const char* value) {
    ordered_json json = read_golden_json("gpt2.tokenizer.json");
    json[ordered_json::json_pointer(pointer)] = ordered_json::parse(value);
    return error_of([&] { Tokenizer::from_json(json.dump(), "some.json"); });
  };
  const std::vector<std::tuple<const char*, const char*, const char*>> unsupported = {
      {"/model/type", R"("Unigram")", "Unigram"},
      {"/model/dropout", "0.1", "dropout"},
      {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
      {"/model/type", R"("WordPiece")", "WordPiece"},
      {"/normalizer", R"({"type":"BertNormalizer"})", "BertNormalizer"},
      {"/pre_tokenizer", R"({"type":"UnicodeScripts"})", "UnicodeScripts"},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"[a[b]]"},"behavior":"Isolated"})", "class"},
      {"/post_processor", R"({"type":"Surprise"})", "Surprise"},
      {"/decoder", R"({"type":"WordPiece"})", "WordPiece"},
      {"/decoder", R"({"type":"Fuse"})", "decoder"},
  };
  for (const auto& [pointer, value, word] : unsupported) {
    const Error error = refusal(pointer, value);
    EXPECT_EQ(error.kind(), ErrorKind::unsupported) << pointer;
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
  }
  for (const auto& [pointer, value] : std::vector<std::pair<const char*, const char*>>{
           {"/model", "[]"},
           {"/model/vocab", R"({"a":-1})"},
           {"/model/vocab", R"({"a":1e30})"},
           {"/model/vocab/a", R"("x")"},
           {"/model/merges/0", R"("abc")"},
           {"/model/merges/0", R"(["zz"])"},
           {"/model/unk_token", R"("nowhere")"},
           {"/added_tokens/0/id", "2000000000"},
           {"/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})"},
           {"/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"!"})"},
           {"/pre_tokenizer", R"({"type":"Metaspace","replacement":""})"},
           {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})"},
           {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways"})"}}) {
    EXPECT_EQ(refusal(pointer, value).kind(), ErrorKind::corrupt) << pointer << " " << value;
  }
  EXPECT_EQ(error_of([] { Tokenizer::from_json("{\"model\":", "x"); }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(error_of([] { Tokenizer::from_json("[]", "x"); }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(error_of([] { Tokenizer::from_json("{}", "x"); }).kind(), ErrorKind::corrupt);
}

}  // namespace
}  // namespace ingot::text

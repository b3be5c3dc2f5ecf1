// Vocabularies that occur only in GGUF files: pre-tokenizers by name, padding entries, WordPiece.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "text/pre_tokenizer.h"
#include "text/splitting.h"
#include "text/tokenizer.h"

namespace ingot::text {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;

Texts pieces_of(const char* name, const std::string& text) {
  const PreTokenizerPreset* splitting = find_pre_tokenizer_preset(name);
  if (splitting == nullptr) return {};
  PreTokenizer steps;
  for (const std::string_view pattern : splitting->patterns) steps.add_regex(pattern, SplitBehavior::isolated, false);
  GrowthLimit limit(text.size());
  const Pieces pieces = steps.split(text, true, limit);
  return {pieces.views.begin(), pieces.views.end()};
}

// The pieces that the `tokenizers` package gives for these tokenizers' patterns, applied one Split after another.
TEST(PreTokenizers, SplitLikeTheTokenizersPackage) {
  const std::string words = "x+=1; // d\u00e9j\u00e0-vu 12\n\n  y<=z`q`$5", lines = "a\r\nb  \n\tc   ",
                    east =
                        "\u65e5\u672c\u8a9e\u3068English \u6f22\u5b57\u3001\u30c6\u30b9\u30c8\u3002 \uff13\uff14\uff15",
                    short_forms = "  leading  'll we've 'S",
                    odd =
                        "\u00dcn\u00ef \u00aa\u00ba \u01c5 \u217b \U0001F600!? \u00aba\u00bb \uff21\uff22\uff11\uff12";
  EXPECT_EQ(pieces_of("falcon", "Hello world 1234567"), (Texts{"Hello", " world", " ", "123", "456", "7"}));
  EXPECT_EQ(pieces_of("falcon", words), (Texts{"x", "+=", "1", ";", " ", "//", " d\u00e9j\u00e0", "-", "vu", " 12",
                                               "\n\n ", " y", "<=", "z", "`", "q", "`$", "5"}));
  EXPECT_EQ(pieces_of("falcon", east), (Texts{"\u65e5\u672c\u8a9e\u3068English", " \u6f22\u5b57", "\u3001",
                                              "\u30c6\u30b9\u30c8", "\u3002", " \uff13\uff14\uff15"}));
  EXPECT_EQ(pieces_of("falcon", lines), (Texts{"a", "\r", "\n", "b", "  \n", "\t", "c", "   "}));
  EXPECT_EQ(pieces_of("falcon", short_forms),
            (Texts{" ", " leading", "  ", "'", "ll", " we", "'", "ve", " ", "'", "S"}));
  EXPECT_EQ(pieces_of("falcon", odd), (Texts{"\u00dcn\u00ef", " \u00aa\u00ba", " \u01c5", " \u217b", " \U0001F600",
                                             "!?", " ", "\u00ab", "a", "\u00bb", " \uff21\uff22", "\uff11\uff12"}));

  EXPECT_EQ(pieces_of("deepseek-llm", "Hello world 1234567"), (Texts{"Hello", " world", " ", "1234567"}));
  EXPECT_EQ(pieces_of("deepseek-llm", words),
            (Texts{"x",  "+=", "1",  ";", " //", " d", "\u00e9", "j", "\u00e0", "-",  "vu", " ",
                   "12", "\n", "\n", " ", " y",  "<=", "z",      "`", "q",      "`$", "5"}));
  EXPECT_EQ(pieces_of("deepseek-llm", east),
            (Texts{"\u65e5\u672c\u8a9e\u3068", "English", " ", "\u6f22\u5b57", "\u3001", "\u30c6\u30b9\u30c8", "\u3002",
                   " ", "\uff13\uff14\uff15"}));
  EXPECT_EQ(pieces_of("deepseek-llm", lines), (Texts{"a", "\r", "\n", "b", "  ", "\n", "\tc", "   "}));
  EXPECT_EQ(pieces_of("deepseek-llm", short_forms),
            (Texts{" ", " leading", " ", " '", "ll", " we", "'", "ve", " '", "S"}));
  EXPECT_EQ(pieces_of("deepseek-llm", odd),
            (Texts{"\u00dc", "n", "\u00ef", " \u00aa\u00ba", " \u01c5", " ", "\u217b", " \U0001F600", "!?", " \u00ab",
                   "a", "\u00bb", " \uff21\uff22", "\uff11\uff12"}));

  EXPECT_EQ(pieces_of("deepseek-coder", "Hello world 12"), (Texts{"Hello", " world", " ", "1", "2"}));
  EXPECT_EQ(
      pieces_of("deepseek-coder", words),
      (Texts{"x", "+=", "1", ";",  " //", " d\u00e9j\u00e0", "-", "vu", " ", "1", "2", "\n", "\n", " ", " y", "<=",
             "z", "`",  "q", "`$", "5"}));
  EXPECT_EQ(pieces_of("deepseek-coder", east),
            (Texts{"\u65e5\u672c\u8a9e\u3068", "English", " ", "\u6f22\u5b57", "\u3001", "\u30c6\u30b9\u30c8", "\u3002",
                   " ", "\uff13", "\uff14", "\uff15"}));
  EXPECT_EQ(pieces_of("deepseek-coder", lines), (Texts{"a", "\r", "\n", "b", "  ", "\n", "\tc", "   "}));
  EXPECT_EQ(pieces_of("deepseek-coder", odd),
            (Texts{"\u00dcn\u00ef", " \u00aa\u00ba", " \u01c5", " ", "\u217b", " \U0001F600", "!?", " \u00ab", "a",
                   "\u00bb", " \uff21\uff22", "\uff11", "\uff12"}));
}

// Phi-3's file: the unknown token has type control, and padding entries have type unknown.
TEST(GgufVocabulary, PaddingEntriesMayHaveTypeUnknown) {
  VocabularySpec spec;
  spec.name = "phi";
  spec.model = "llama";
  spec.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "<|end|>", "[PAD7]", "[PAD8]"};
  spec.token_types = {token_control, token_control, token_user_defined, token_normal, token_normal,
                      token_normal,  token_control, token_unknown,      token_unknown};
  spec.scores.assign(spec.tokens.size(), 0);
  spec.unk_id = 0;
  spec.add_space_prefix = false;
  const auto tokenizer = Tokenizer::from_vocabulary(spec);
  const EncodeOptions plain{.add_special_tokens = false};
  EXPECT_EQ(tokenizer->encode("ab?a", plain), (Ids{4, 5, 0, 4}));
  EXPECT_EQ(tokenizer->encode("[PAD8]a<|end|> </s> b", plain), (Ids{8, 4, 6, 3, 2, 3, 5}));
  EXPECT_TRUE(tokenizer->is_special(7));

  spec.rstrip = {2, 6};
  EXPECT_EQ(Tokenizer::from_vocabulary(spec)->encode("<|end|> \n</s> b<s> a", plain), (Ids{6, 2, 5, 1, 3, 4}));

  spec.unk_id.reset();
  EXPECT_EQ(Tokenizer::from_vocabulary(spec)->encode("?", plain), Ids{7});
  std::replace(spec.token_types.begin(), spec.token_types.end(), int32_t{token_unknown}, int32_t{token_unused});
  EXPECT_THROW(Tokenizer::from_vocabulary(spec), Error);  // there is no unknown token
}

// Compared with the `tokenizers` package: BertNormalizer, BertPreTokenizer and WordPiece.
TEST(GgufVocabulary, WordPieceAgreesWithTokenizers) {
  VocabularySpec spec;
  spec.name = "bert";
  spec.model = "bert";
  spec.pre = "bert-bge";
  spec.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  spec.token_types.assign(4, token_control);
  for (const char* piece :
       {"hello",  "wor", "##ld", "##s", "un", "##aff", "##able", "!",        ",",      "resume",
        "\u65e5", "3",   "##3",  "a",   "[",  "]",     "\u00e9", "##\u00e9", "\u0915", "##\u093e"}) {
    const std::string text = piece;
    spec.tokens.push_back(text.starts_with("##") ? text.substr(2) : "\u2581" + text);
  }
  spec.token_types.resize(spec.tokens.size(), token_normal);
  spec.bos_id = 2;
  spec.eos_id = 3;
  spec.unk_id = 1;
  const auto folded = Tokenizer::from_vocabulary(spec);
  spec.lowercase = false;
  const auto kept = Tokenizer::from_vocabulary(spec);
  const std::tuple<std::string, Ids, Ids> rows[] = {
      {"Hello, worlds!", {4, 12, 5, 6, 7, 11}, {1, 12, 5, 6, 7, 11}},
      {"hello\tUNAFFABLE  a", {4, 8, 9, 10, 17}, {4, 1, 17}},
      {"R\u00e9sum\u00e9 re\u0301sume\u0301", {13, 13}, {1, 1}},
      {"\u65e5\u65e53 33", {14, 14, 15, 15, 16}, {14, 14, 15, 15, 16}},
      {"hel\u00adlo \u200bhello", {4, 4}, {4, 4}},
      {"hellox hello", {1, 4}, {1, 4}},
      {"[CLX] hello [a]", {18, 1, 19, 4, 18, 17, 19}, {18, 1, 19, 4, 18, 17, 19}},
      {"", {}, {}},
      {"  ", {}, {}},
      {"\u00e9 a\u00e9", {1, 1}, {20, 17, 21}},
      {"\u0915\u093e \u0915\u093c", {22, 23, 22}, {22, 23, 1}},  // a combining mark with width, and one without
      {std::string("hello\0", 6), {4}, {4}},
      {"hello\xFF", {4}, {4}}};
  for (const auto& [text, lower, as_it_is] : rows) {
    EXPECT_EQ(folded->encode(text, {.add_special_tokens = false}), lower) << text;
    EXPECT_EQ(kept->encode(text, {.add_special_tokens = false}), as_it_is) << text;
  }
  EXPECT_EQ(folded->encode("[CLS]hello"), (Ids{2, 2, 4, 3}));
  const ByteRanges content = {{0, 5}};
  EXPECT_EQ(folded->encode("[CLS]hello", {.content = content}), (Ids{2, 18, 1, 19, 4, 3}));
  EXPECT_EQ(folded->decode(Ids{2, 4, 5, 6, 3}, true), "hello world");
  spec.unk_id.reset();
  EXPECT_THROW(Tokenizer::from_vocabulary(spec), Error);
}

}  // namespace
}  // namespace ingot::text

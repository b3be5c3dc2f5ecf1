#include "text/tokenizer_config.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::text {
namespace {

ErrorKind kind_of(std::string_view json, std::string_view template_name = "default") {
  try {
    parse_tokenizer_config(json, "tokenizer_config.json", template_name);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("tokenizer_config.json"), std::string::npos) << error.message();
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::internal;
}

TEST(TokenizerConfig, ReadsTokensAsStringsAndObjects) {
  const TokenizerConfig config = parse_tokenizer_config(
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null,
          "add_bos_token": true, "chat_template": "{{ x }}", "model_max_length": 1e30})",
      "tokenizer_config.json");
  EXPECT_EQ(config.special.bos, "<s>");
  EXPECT_EQ(config.special.eos, "</s>");
  EXPECT_FALSE(config.special.pad);
  EXPECT_FALSE(config.special.unk);
  EXPECT_EQ(config.special.add_bos, true);
  EXPECT_FALSE(config.special.add_eos);
  EXPECT_EQ(config.chat_template, "{{ x }}");
}

TEST(TokenizerConfig, ReadsAdditionalTokens) {
  using Contents = std::vector<std::string>;
  const auto additional = [](std::string_view json) { return parse_tokenizer_config(json, "c").special.additional; };
  EXPECT_EQ(additional(R"({"sep_token": "[SEP]", "additional_special_tokens": ["<a>", {"content": "<b>"}]})"),
            (Contents{"[SEP]", "<a>", "<b>"}));
  EXPECT_EQ(additional(R"({"extra_special_tokens": {"image_token": "<i>"}})"), Contents{"<i>"});
  EXPECT_EQ(kind_of(R"({"extra_special_tokens": "<i>"})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"additional_special_tokens": [{}]})"), ErrorKind::corrupt);
}

TEST(TokenizerConfig, ChoosesOneOfSeveralTemplates) {
  const std::string_view json =
      R"({"chat_template": [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]})";
  EXPECT_EQ(parse_tokenizer_config(json, "c").chat_template, "A");
  EXPECT_EQ(parse_tokenizer_config(json, "c", "tool_use").chat_template, "B");
  EXPECT_EQ(kind_of(json, "rag"), ErrorKind::not_found);
  EXPECT_FALSE(parse_tokenizer_config("{}", "c").chat_template);
}

TEST(TokenizerConfig, ErrorsNameTheFault) {
  EXPECT_EQ(kind_of("{"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of("[]"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"bos_token": 3})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"bos_token": {}})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"add_bos_token": "yes"})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"chat_template": 1})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"chat_template": [{"name": "x"}]})"), ErrorKind::corrupt);
}

}  // namespace
}  // namespace ingot::text

// tokenizer_config.json: special tokens and the chat template of a Hugging Face directory.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ingot::text {

struct TokenizerConfig {
  // bos_token, eos_token, unk_token, pad_token, add_bos_token, add_eos_token; additional: cls_token, sep_token,
  // mask_token, additional_special_tokens, extra_special_tokens.
  SpecialTokens special;
  std::optional<std::string> chat_template;
  std::vector<AddedToken> added;  // added_tokens_decoder
  // legacy: if false, only the text at the start gets a space prefix, not every text between special tokens.
  bool legacy = true;
};

// Parses the text of a tokenizer_config.json; `name` is the file's name for errors. If the file has several chat
// templates, the one named `template_name` is used. Also parses special_tokens_map.json, which has the same keys.
// Errors: corrupt; not_found when there are several templates but none of that name, listing the names.
TokenizerConfig parse_tokenizer_config(std::string_view json, std::string_view name,
                                       std::string_view template_name = "default");

}  // namespace ingot::text

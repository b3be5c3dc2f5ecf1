// What the settings beside a tokenizer say of its tokens: tokenizer_config.json, special_tokens_map.json,
// generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"

namespace ingot::text {

// The tokens that the settings name are control tokens, whatever the tokenizer's own file says; but for those of one
// character, which are text as well ("!" as the padding token of GPT-2).
struct SpecialTokens {
  std::optional<std::string> bos, eos, unk, pad;  // contents, e.g. "<s>"
  std::vector<std::string> additional;            // contents
  std::vector<int32_t> eos_ids;                   // only where these are added tokens
  std::optional<bool> add_bos, add_eos;  // force BOS in front / EOS behind on or off; unset: as the tokenizer says

  // bos, eos, unk and pad, then `additional`, those of more than one character.
  std::vector<std::string> contents() const;
  // Makes an added token special that is one of bos, eos, unk and pad, as transformers does, and a control token that
  // is named otherwise.
  void mark(AddedToken& token) const;
};

}  // namespace ingot::text

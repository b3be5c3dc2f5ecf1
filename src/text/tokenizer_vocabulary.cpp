// Tokenizers from the vocabulary of a GGUF file (specs/gguf.md, section 3).
#include "base/error.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace ingot::text {
namespace {

constexpr int32_t type_normal = 1, type_unknown = 2, type_control = 3, type_user_defined = 4, type_unused = 5,
                  type_byte = 6;

// Sets up splitting and normalising for the pre-tokenizer `pre`; returns whether whole tokens come before merges.
bool set_pre_tokenizer(const VocabularySpec& spec, TokenizerParts& parts) {
  using Kind = PreTokenizerStep::Kind;
  const std::string& pre = spec.pre;
  if (pre.empty() || pre == "default" || pre == "gpt-2" || pre == "mpt") {
    parts.pre_tokenizer.add(Kind::gpt2);
  } else if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3") {
    parts.pre_tokenizer.add(Kind::llama3);
    return true;
  } else if (pre == "qwen2") {
    parts.normalizer.add({NormalizerStep::Kind::nfc, {}, {}});
    parts.pre_tokenizer.add(Kind::qwen2);
  } else if (pre == "smollm" || pre == "starcoder") {
    parts.pre_tokenizer.add(Kind::digit_characters);
    parts.pre_tokenizer.add(Kind::gpt2);
  } else {
    throw_hint(ErrorKind::unsupported, "supported: default, gpt-2, mpt, llama-bpe, qwen2, smollm, starcoder",
               "{}: the pre-tokenizer \"{}\" is not known", spec.name, pre);
  }
  return false;
}

std::optional<int32_t> check_id(const VocabularySpec& spec, std::optional<int32_t> id, const char* what) {
  if (id && (*id < 0 || static_cast<size_t>(*id) >= spec.tokens.size())) {
    throw_error(ErrorKind::corrupt, "{}: the {} id is {}, but there are {} tokens", spec.name, what, *id,
                spec.tokens.size());
  }
  return id;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_vocabulary(VocabularySpec spec) {
  if (spec.model != "gpt2") {
    throw_hint(ErrorKind::unsupported, "supported: gpt2 (byte-level BPE)",
               "{}: the tokenizer model \"{}\" is not known", spec.name, spec.model);
  }
  if (spec.tokens.empty()) throw_error(ErrorKind::corrupt, "{}: the vocabulary is empty", spec.name);
  if (!spec.token_types.empty() && spec.token_types.size() != spec.tokens.size()) {
    throw_error(ErrorKind::corrupt, "{}: {} tokens, but {} token types", spec.name, spec.tokens.size(),
                spec.token_types.size());
  }
  TokenizerParts parts;
  parts.name = spec.name;
  parts.decode.byte_level = true;
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = set_pre_tokenizer(spec, parts);

  std::vector<std::pair<std::string, int32_t>> pieces;
  for (size_t index = 0; index < spec.tokens.size(); ++index) {
    const auto id = static_cast<int32_t>(index);
    std::string& text = spec.tokens[index];
    const int32_t type = spec.token_types.empty() ? type_normal : spec.token_types[index];
    if (type < type_normal || type > type_byte) {
      throw_error(ErrorKind::corrupt, "{}: token {} has the type {}", spec.name, id, type);
    }
    if (type == type_control || type == type_unknown || type == type_user_defined) {
      AddedToken token;
      token.id = id;
      token.content = std::move(text);
      token.special = type != type_user_defined;
      parts.add_token(token, true);
      if (!token.special) pieces.emplace_back(token.content, id);  // merges may make it
      continue;
    }
    if (type != type_unused) {
      if (std::optional<std::string> bytes = bytes_from_stand_ins(text)) pieces.emplace_back(std::move(*bytes), id);
    }
    parts.set_token(id, std::move(text), type == type_unused);
  }

  std::vector<BpeModel::Merge> merges;
  merges.reserve(spec.merges.size());
  for (const std::string& merge : spec.merges) {
    const size_t space = merge.find(' ');
    const std::optional<std::string> left = bytes_from_stand_ins(std::string_view(merge).substr(0, space));
    const std::optional<std::string> right =
        space == std::string::npos ? std::nullopt : bytes_from_stand_ins(std::string_view(merge).substr(space + 1));
    if (!left || !right) {
      throw_error(ErrorKind::corrupt, "{}: merge {} is \"{}\", not two tokens", spec.name, merges.size(), merge);
    }
    merges.emplace_back(*left, *right);
  }
  parts.model = std::make_unique<BpeModel>(std::move(pieces), merges, options, spec.name);

  parts.bos_id = check_id(spec, spec.bos_id, "BOS");
  parts.eos_id = check_id(spec, spec.eos_id, "EOS");
  parts.unk_id = check_id(spec, spec.unk_id, "unknown token");
  parts.pad_id = check_id(spec, spec.pad_id, "padding");
  // Llama 3 files of the first converters lack the flag and expect BOS.
  const bool default_add_bos = options.ignore_merges && parts.bos_id.has_value();
  parts.apply_add_flags(spec.add_bos.value_or(default_add_bos), spec.add_eos.value_or(false));
  return std::make_unique<Tokenizer>(std::move(parts));
}

}  // namespace ingot::text

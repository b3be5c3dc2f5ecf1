// Tokenizers from the vocabulary of a GGUF file (github.com/ggml-org/ggml, docs/gguf.md) or of a SentencePiece model.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/sentencepiece.h"
#include "text/splitting.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"
#include "text/wordpiece.h"

namespace ingot::text {
namespace {

std::optional<int32_t> check_id(const VocabularySpec& spec, std::optional<int32_t> id, const char* what) {
  const auto is_added = [&](const AddedToken& token) { return token.id == *id; };
  if (id && (*id < 0 || static_cast<size_t>(*id) >= spec.tokens.size()) &&
      std::none_of(spec.added.begin(), spec.added.end(), is_added)) {
    throw_error(ErrorKind::corrupt, "{}: the {} id is {}, but there are {} tokens", spec.name, what, *id,
                spec.tokens.size());
  }
  return id;
}

// Registers a token that is matched in the text before the model sees it; its properties follow from its type.
void add_searched(const VocabularySpec& spec, size_t index, TokenizerParts& parts) {
  AddedToken token;
  token.id = static_cast<int32_t>(index);
  token.content = spec.tokens[index];
  token.special = spec.token_types[index] != token_user_defined;
  token.rstrip = std::ranges::binary_search(spec.rstrip, token.id);
  parts.add_token(token, true);
}

std::vector<BpeModel::Merge> byte_merges(const VocabularySpec& spec) {
  std::vector<BpeModel::Merge> merges;
  merges.reserve(spec.merges.size());
  for (const std::string& merge : spec.merges) {
    const size_t space = merge.find(' ');
    const std::optional<std::string> left = decode_byte_alphabet(std::string_view(merge).substr(0, space));
    const std::optional<std::string> right =
        space == std::string::npos ? std::nullopt : decode_byte_alphabet(std::string_view(merge).substr(space + 1));
    if (!left || !right) {
      throw_error(ErrorKind::corrupt, "{}: merge {} is \"{}\", not two tokens", spec.name, merges.size(), merge);
    }
    merges.emplace_back(*left, *right);
  }
  return merges;
}

// Byte-level BPE.
void build_gpt2(const VocabularySpec& spec, TokenizerParts& parts) {
  const PreTokenizerPreset* splitting = find_pre_tokenizer_preset(spec.pre);
  if (splitting == nullptr) {
    throw_hint(ErrorKind::unsupported, "supported: " + splitting_names(), "{}: the pre-tokenizer \"{}\" is not known",
               spec.name, spec.pre);
  }
  using Kind = PreTokenizerStep::Kind;
  if (splitting->nfc) parts.normalizer.add({NormalizerStep::Kind::nfc});
  if (splitting->individual_digits) parts.pre_tokenizer.add(Kind::digit_characters);
  if (splitting->patterns.empty()) parts.pre_tokenizer.add(Kind::gpt2);
  for (const std::string_view pattern : splitting->patterns) {
    parts.pre_tokenizer.add_regex(pattern, SplitBehavior::isolated, false);
  }
  parts.decode.byte_level = true;
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = splitting->ignore_merges;

  std::vector<std::pair<std::string, int32_t>> pieces;
  for (size_t index = 0; index < spec.tokens.size(); ++index) {
    const auto id = static_cast<int32_t>(index);
    const std::string& text = spec.tokens[index];
    const int32_t type = spec.token_types[index];
    if (type == token_control || type == token_unknown || type == token_user_defined) {
      add_searched(spec, index, parts);
      if (type == token_user_defined) pieces.emplace_back(text, id);  // merges may produce it
      continue;
    }
    if (type != token_unused) {
      if (std::optional<std::string> bytes = decode_byte_alphabet(text)) pieces.emplace_back(std::move(*bytes), id);
    }
    parts.set_token(id, text, type == token_unused);
  }
  parts.model = std::make_unique<BpeModel>(std::move(pieces), byte_merges(spec), options, spec.name);
}

// SentencePiece: BPE by scores, and unigram.
void build_sentencepiece(VocabularySpec& spec, TokenizerParts& parts) {
  if (spec.scores.size() != spec.tokens.size()) {
    throw_error(ErrorKind::corrupt, "{}: {} tokens, but {} scores", spec.name, spec.tokens.size(), spec.scores.size());
  }
  bool has_bytes = false;
  for (const int32_t type : spec.token_types) has_bytes = has_bytes || type == token_byte;
  const bool adds_space = spec.add_space_prefix.value_or(true);
  parts.decode.replace.emplace_back("\u2581", " ");
  parts.decode.byte_fallback = has_bytes;
  parts.decode.strip = ' ';
  // If extra spaces are removed, SentencePiece drops all leading spaces.
  const bool removes_extra = spec.remove_extra_whitespaces.value_or(spec.model == "t5");
  parts.decode.strip_count = removes_extra ? INT32_MAX : adds_space ? 1 : 0;

  // The library requires exactly one unknown token: the one that a GGUF file names, or the first of this type.
  auto& types = spec.token_types;
  const auto first = std::find(types.begin(), types.end(), token_unknown);
  const auto unknown = spec.unk_id ? types.begin() + std::min<ptrdiff_t>(*spec.unk_id, std::ssize(types)) : first;
  const bool own_file = spec.user_defined_inside;  // a SentencePiece model: it must satisfy the library's rules
  if (!own_file) std::replace(first, types.end(), int32_t{token_unknown}, int32_t{token_control});
  if (unknown != types.end() && (!own_file || *unknown == token_normal)) *unknown = token_unknown;
  for (size_t index = 0; index < spec.tokens.size(); ++index) {
    const auto id = static_cast<int32_t>(index);
    const int32_t type = spec.token_types[index];
    const bool searched =
        type == token_control || type == token_unknown || (type == token_user_defined && !spec.user_defined_inside);
    if (searched) {
      add_searched(spec, index, parts);
    } else {
      parts.set_token(id, spec.tokens[index], false);
    }
  }
  // The library requires unique names; those of tokens that it never produces are arbitrary.
  VocabularySpec library_spec = spec;
  for (const AddedToken& token : spec.added) {  // matched before the library sees the text, or must not be matched
    if (!token.is_control() || static_cast<size_t>(token.id) >= library_spec.tokens.size()) continue;
    int32_t& type = library_spec.token_types[static_cast<size_t>(token.id)];
    if (type == token_normal || type == token_user_defined) type = token_control;
  }
  std::unordered_set<std::string_view> made;
  for (size_t index = 0; index < spec.tokens.size(); ++index) {
    const int32_t type = library_spec.token_types[index];
    if (type == token_normal || type == token_unknown || type == token_byte) made.insert(spec.tokens[index]);
  }
  std::unordered_set<std::string> others;
  for (size_t index = 0; index < library_spec.tokens.size(); ++index) {
    const int32_t type = library_spec.token_types[index];
    if (type == token_normal || type == token_unknown || type == token_byte) continue;
    std::string& text = library_spec.tokens[index];
    if (!text.empty() && !made.contains(text) && others.insert(text).second) continue;
    text = fmt::format("<token {}>", index);
    library_spec.token_types[index] = token_control;
  }
  parts.model = std::make_unique<SentencePieceModel>(library_spec);
  if (adds_space && spec.prefix_at_start_only) {
    library_spec.add_space_prefix = false;
    parts.later_model = std::make_unique<SentencePieceModel>(library_spec);
  }
}

// WordPiece.
void build_bert(const VocabularySpec& spec, TokenizerParts& parts) {
  parts.decode.replace.emplace_back("\u2581", " ");
  parts.decode.strip = ' ';
  parts.decode.strip_count = 1;
  std::vector<std::pair<std::string, int32_t>> pieces;
  for (size_t index = 0; index < spec.tokens.size(); ++index) {
    const int32_t type = spec.token_types[index];
    if (type == token_control || type == token_unknown || type == token_user_defined) {
      add_searched(spec, index, parts);
      continue;
    }
    const auto id = static_cast<int32_t>(index);
    if (type != token_unused) pieces.emplace_back(spec.tokens[index], id);
    parts.set_token(id, spec.tokens[index], false);
  }
  if (!spec.unk_id) throw_error(ErrorKind::corrupt, "{}: a WordPiece vocabulary without an unknown token", spec.name);
  WordPieceOptions options;
  options.lowercase = spec.lowercase.value_or(true);
  options.strip_accents = spec.strip_accents.value_or(options.lowercase);
  options.unk_id = *spec.unk_id;
  parts.model = std::make_unique<WordPieceModel>(pieces, options);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_vocabulary(VocabularySpec spec) {
  if (spec.tokens.empty()) throw_error(ErrorKind::corrupt, "{}: the vocabulary is empty", spec.name);
  if (spec.token_types.empty()) spec.token_types.assign(spec.tokens.size(), token_normal);
  if (spec.token_types.size() != spec.tokens.size()) {
    throw_error(ErrorKind::corrupt, "{}: {} tokens, but {} token types", spec.name, spec.tokens.size(),
                spec.token_types.size());
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.token_types[id] >= token_normal && spec.token_types[id] <= token_byte) continue;
    throw_error(ErrorKind::corrupt, "{}: token {} has the unknown type {}", spec.name, id, spec.token_types[id]);
  }
  TokenizerParts parts;
  parts.name = spec.name;
  parts.bos_id = check_id(spec, spec.bos_id, "BOS");
  parts.eos_id = check_id(spec, spec.eos_id, "EOS");
  parts.unk_id = check_id(spec, spec.unk_id, "unknown token");
  parts.pad_id = check_id(spec, spec.pad_id, "padding");
  // Defaults for files without the flags, such as Llama 3 files of the first converters.
  bool add_bos = false, add_eos = false;
  if (spec.model == "gpt2") {
    build_gpt2(spec, parts);
    add_bos = find_pre_tokenizer_preset(spec.pre)->add_bos && parts.bos_id.has_value();
  } else if (spec.model == "llama" || spec.model == "t5") {
    build_sentencepiece(spec, parts);
    add_bos = spec.model == "llama" && parts.bos_id.has_value();
    add_eos = spec.model == "t5" && parts.eos_id.has_value();
  } else if (spec.model == "bert") {
    build_bert(spec, parts);
    add_bos = parts.bos_id.has_value();
    add_eos = parts.eos_id.has_value();
  } else {
    throw_hint(ErrorKind::unsupported,
               "supported: gpt2 (byte-level BPE), llama (BPE by scores), t5 (unigram), bert (WordPiece)",
               "{}: the tokenizer model \"{}\" is not known", spec.name, spec.model);
  }
  for (const AddedToken& token : spec.added) parts.add_token(token, true);
  parts.apply_add_flags(spec.add_bos.value_or(add_bos), spec.add_eos.value_or(add_eos));
  return std::make_unique<Tokenizer>(std::move(parts));
}

}  // namespace ingot::text

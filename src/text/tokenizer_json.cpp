// Tokenizers from a Hugging Face tokenizer.json (github.com/huggingface/tokenizers).
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json_steps.h"
#include "text/unigram.h"

namespace ingot::text {
namespace {

std::vector<BpeModel::Merge> read_merges(const Reader& model, bool byte_level) {
  std::vector<BpeModel::Merge> merges;
  const json& list = model.array("merges");
  merges.reserve(list.size());
  for (const json& entry : list) {
    std::string left, right;
    if (entry.is_string()) {
      const auto& text = entry.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        throw_error(ErrorKind::corrupt, "{}: merge {} is \"{}\", not two tokens", model.where(), merges.size(), text);
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      left = entry[0].get<std::string>();
      right = entry[1].get<std::string>();
    } else {
      throw_error(ErrorKind::corrupt, "{}: merge {} is not a pair of tokens", model.where(), merges.size());
    }
    if (byte_level) {
      left = decode_byte_alphabet(left).value_or(left);
      right = decode_byte_alphabet(right).value_or(right);
    }
    merges.emplace_back(std::move(left), std::move(right));
  }
  return merges;
}

void read_bpe(const Reader& model, TokenizerParts& parts, bool byte_level) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.at(key).is_null() && !model.string(key).empty()) refuse(model, std::string("BPE with ") + key);
  }
  if (const json& dropout = model.at("dropout"); !dropout.is_null() && dropout != 0) refuse(model, "BPE with dropout");

  BpeOptions options;
  options.byte_level = byte_level;
  options.byte_fallback = model.boolean("byte_fallback", false);
  options.fuse_unk = model.boolean("fuse_unk", false);
  options.ignore_merges = model.boolean("ignore_merges", false);
  std::vector<std::pair<std::string, int32_t>> pieces;
  const Reader vocab = model.object("vocab");
  for (const auto& [text, value] : model.at("vocab").items()) {
    const int32_t id = Reader::integer(value, vocab.where() + "." + text);
    parts.set_token(id, text, false);
    if (!byte_level) {
      pieces.emplace_back(text, id);
    } else if (std::optional<std::string> bytes = decode_byte_alphabet(text)) {
      pieces.emplace_back(std::move(*bytes), id);
    }
  }
  if (!model.at("unk_token").is_null()) {
    const std::string unk = model.string("unk_token");
    const auto found = parts.ids.find(unk);
    if (found == parts.ids.end()) {
      throw_error(ErrorKind::corrupt, "{}: the unk token \"{}\" is not in the vocabulary", model.where(), unk);
    }
    options.unk_id = found->second;
  }
  parts.model = std::make_unique<BpeModel>(std::move(pieces), read_merges(model, byte_level), options, model.where());
}

void read_unigram(const Reader& model, TokenizerParts& parts) {
  std::vector<std::pair<std::string, double>> pieces;
  for (const json& entry : model.array("vocab")) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      throw_error(ErrorKind::corrupt, "{}: entry {} of the vocabulary is not a piece and its score", model.where(),
                  pieces.size());
    }
    pieces.emplace_back(entry[0].get<std::string>(), entry[1].get<double>());
    parts.set_token(static_cast<int32_t>(pieces.size()) - 1, pieces.back().first, false);
  }
  std::optional<int32_t> unk_id;
  if (!model.at("unk_id").is_null()) unk_id = model.integer("unk_id");
  if (unk_id && static_cast<size_t>(*unk_id) >= pieces.size()) {
    throw_error(ErrorKind::corrupt, "{}: the unk_id is {}, but there are {} pieces", model.where(), *unk_id,
                pieces.size());
  }
  parts.model = std::make_unique<UnigramModel>(pieces, unk_id, model.boolean("byte_fallback", false));
}

void read_added_tokens(const Reader& root, const SpecialTokens& special, TokenizerParts& parts) {
  std::set<std::string> added;
  const json none = json::array();
  for (const json& entry : root.at("added_tokens").is_null() ? none : root.array("added_tokens")) {
    const Reader reader(entry, root.where() + ": added_tokens");
    AddedToken token;
    token.id = reader.integer("id");
    token.content = reader.string("content");
    token.special = reader.boolean("special", false);
    token.single_word = reader.boolean("single_word", false);
    token.lstrip = reader.boolean("lstrip", false);
    token.rstrip = reader.boolean("rstrip", false);
    token.normalized = reader.boolean("normalized", !token.special);
    special.mark(token);
    added.insert(token.content);
    parts.add_token(token, false);  // the byte-level decoder maps the characters of added tokens too
  }
  // As in transformers, tokens of the vocabulary that the settings name become added tokens.
  for (const std::string& content : special.contents()) {
    const auto found = parts.ids.find(content);
    if (found == parts.ids.end() || !added.insert(content).second) continue;
    parts.add_token({.id = found->second, .content = content, .special = true}, false);
  }
}

std::optional<int32_t> id_of(const TokenizerParts& parts, const std::optional<std::string>& token) {
  if (!token) return std::nullopt;
  const auto found = parts.ids.find(*token);
  return found == parts.ids.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view name,
                                                const SpecialTokens& special) {
  json document;
  try {
    document = parse_lenient_json(tokenizer_json);
  } catch (const Error& error) {
    throw_error(error.kind(), "{} {}", name, error.message());
  }
  const Reader root(document, std::string(name));
  const Reader model(root.at("model"), root.where() + ": model");
  TokenizerParts parts;
  parts.name = name;

  read_normalizers(root, parts);
  const bool byte_level = read_pre_tokenizers(root, parts);
  read_decoders(root, byte_level, parts);

  // Early files have no type; the presence of merges implies BPE.
  const std::string type = model.at("type").is_null() && !model.at("merges").is_null() ? "BPE" : model.string("type");
  if (type == "BPE") {
    read_bpe(model, parts, byte_level);
  } else if (type == "Unigram" && !byte_level) {
    read_unigram(model, parts);
  } else {
    refuse(model, "the model type " + type);
  }
  read_added_tokens(root, special, parts);
  read_post_processors(root, parts);

  parts.bos_id = id_of(parts, special.bos);
  parts.eos_id = id_of(parts, special.eos);
  parts.unk_id = id_of(parts, special.unk);
  parts.pad_id = id_of(parts, special.pad);
  parts.apply_add_flags(special.add_bos, special.add_eos);
  return std::make_unique<Tokenizer>(std::move(parts));
}

}  // namespace ingot::text

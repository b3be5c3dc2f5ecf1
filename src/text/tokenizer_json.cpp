// Tokenizers from a Hugging Face tokenizer.json (specs/tokenizers.md, section 1).
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace ingot::text {
namespace {

using nlohmann::json;

// The members of one JSON object, with errors that say where it stands.
class Reader {
 public:
  Reader(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) throw_error(ErrorKind::corrupt, "{} is not an object", where_);
  }

  const std::string& where() const { return where_; }

  // The member, or null when it is missing.
  const json& at(const char* key) const {
    static const json null;
    const auto found = value_.find(key);
    return found == value_.end() ? null : *found;
  }
  bool boolean(const char* key, bool fallback) const {
    const json& member = at(key);
    if (member.is_null()) return fallback;
    if (!member.is_boolean()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is not true or false", where_, key);
    return member.get<bool>();
  }
  std::string string(const char* key) const {
    const json& member = at(key);
    if (!member.is_string()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is missing or not a string", where_, key);
    return member.get<std::string>();
  }
  const json& array(const char* key) const {
    const json& member = at(key);
    if (!member.is_array()) throw_error(ErrorKind::corrupt, "{}: \"{}\" is missing or not a list", where_, key);
    return member;
  }
  Reader object(const char* key) const { return Reader(at(key), where_ + "." + key); }
  int32_t integer(const char* key) const { return integer(at(key), where_ + "." + key); }

  static int32_t integer(const json& value, const std::string& where) {
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > INT32_MAX) {
      throw_error(ErrorKind::corrupt, "{} is missing or not a number from 0 to {}", where, INT32_MAX);
    }
    return value.get<int32_t>();
  }

 private:
  const json& value_;
  std::string where_;
};

[[noreturn]] void refuse(const Reader& at, const std::string& what) {
  throw_hint(ErrorKind::unsupported, "Ingot reads BPE tokenizers of the GPT-2, Llama, Qwen2 and SmolLM2 kinds",
             "{}: {} is not supported", at.where(), what);
}

// Calls `each` on the component, or on every part of it when it is a Sequence.
template <class Each>
void for_each_part(const json& value, const std::string& where, const char* list_key, Each each, int depth = 0) {
  if (value.is_null()) return;
  if (depth > 8) throw_error(ErrorKind::corrupt, "{}: sequences are too deeply nested", where);
  const Reader reader(value, where);
  if (reader.string("type") != "Sequence") return each(reader);
  size_t index = 0;
  for (const json& part : reader.array(list_key)) {
    for_each_part(part, fmt::format("{}.{}[{}]", where, list_key, index++), list_key, each, depth + 1);
  }
}

// The text of {"String": text}, or nothing for a {"Regex": ...}.
std::optional<std::string> literal_pattern(const Reader& reader) {
  const Reader pattern = reader.object("pattern");
  if (pattern.at("String").is_null()) return std::nullopt;
  std::string text = pattern.string("String");
  if (text.empty()) throw_error(ErrorKind::corrupt, "{}: the pattern is empty", reader.where());
  return text;
}

std::string literal_or_refuse(const Reader& reader) {
  std::optional<std::string> literal = literal_pattern(reader);
  if (!literal) refuse(reader, "a Replace with a regular expression");
  return *literal;
}

void read_normalizer(const Reader& reader, TokenizerParts& parts) {
  const std::string type = reader.string("type");
  if (type == "NFC") {
    parts.normalizer.add({NormalizerStep::Kind::nfc, {}, {}});
  } else if (type == "Prepend") {
    parts.normalizer.add({NormalizerStep::Kind::prepend, {}, reader.string("prepend")});
  } else if (type == "Replace") {
    parts.normalizer.add({NormalizerStep::Kind::replace, literal_or_refuse(reader), reader.string("content")});
  } else {
    refuse(reader, "the normalizer " + type);
  }
}

SplitBehavior read_behavior(const Reader& reader) {
  const std::string name = reader.string("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  throw_error(ErrorKind::corrupt, "{}: \"{}\" is not a behavior", reader.where(), name);
}

// Sets byte_level when the step is ByteLevel.
void read_pre_tokenizer(const Reader& reader, TokenizerParts& parts, bool& byte_level) {
  using Kind = PreTokenizerStep::Kind;
  if (byte_level) refuse(reader, "a pre-tokenizer after ByteLevel");
  const std::string type = reader.string("type");
  if (type == "ByteLevel") {
    byte_level = true;
    if (reader.boolean("add_prefix_space", true)) parts.pre_tokenizer.add(Kind::prefix_space);
    if (reader.boolean("use_regex", true)) parts.pre_tokenizer.add(Kind::gpt2);
  } else if (type == "Digits") {
    parts.pre_tokenizer.add(reader.boolean("individual_digits", false) ? Kind::digit_characters : Kind::digits);
  } else if (type == "Split") {
    const SplitBehavior behavior = read_behavior(reader);
    const bool invert = reader.boolean("invert", false);
    if (const std::optional<std::string> literal = literal_pattern(reader)) {
      parts.pre_tokenizer.add_literal(*literal, behavior, invert);
    } else {
      parts.pre_tokenizer.add_regex(reader.object("pattern").string("Regex"), behavior, invert);
    }
  } else {
    refuse(reader, "the pre-tokenizer " + type);
  }
}

struct DecoderState {
  bool fused = false;
  bool stripped = false;
};

void read_decoder(const Reader& reader, TokenizerParts& parts, DecoderState& state) {
  DecodeRules& rules = parts.decode;
  const std::string type = reader.string("type");
  const auto out_of_order = [&] { refuse(reader, "the decoder " + type + " in this place"); };
  if (type == "ByteLevel") {
    if (!rules.replace.empty() || rules.byte_fallback || state.fused) out_of_order();
    rules.byte_level = true;
    state.fused = true;
  } else if (type == "Replace") {
    if (state.fused || rules.byte_fallback) out_of_order();
    rules.replace.emplace_back(literal_or_refuse(reader), reader.string("content"));
  } else if (type == "ByteFallback") {
    if (state.fused) out_of_order();
    rules.byte_fallback = true;
  } else if (type == "Fuse") {
    state.fused = true;
  } else if (type == "Strip") {
    const std::string content = reader.string("content");
    if (!state.fused || state.stripped || content.size() != 1 || reader.integer("stop") != 0) out_of_order();
    state.stripped = true;
    rules.strip = content[0];
    rules.strip_count = reader.integer("start");
  } else {
    refuse(reader, "the decoder " + type);
  }
}

std::vector<int32_t> special_ids(const Reader& reader, const std::string& token) {
  std::vector<int32_t> ids;
  const Reader entry(reader.object("special_tokens").at(token.c_str()), reader.where() + ".special_tokens." + token);
  for (const json& id : entry.array("ids")) ids.push_back(Reader::integer(id, entry.where() + ".ids"));
  return ids;
}

void read_post_processor(const Reader& reader, TokenizerParts& parts) {
  const std::string type = reader.string("type");
  if (type == "ByteLevel") return;  // moves offsets only
  if (type != "TemplateProcessing") refuse(reader, "the post-processor " + type);
  bool after_text = false;
  for (const json& item : reader.array("single")) {
    const Reader part(item, reader.where() + ".single");
    if (!part.at("Sequence").is_null()) {
      if (after_text) refuse(reader, "a template that has the text twice");
      after_text = true;
    } else {
      const std::vector<int32_t> ids = special_ids(reader, part.object("SpecialToken").string("id"));
      std::vector<int32_t>& to = after_text ? parts.suffix : parts.prefix;
      to.insert(to.end(), ids.begin(), ids.end());
    }
  }
  if (!after_text) refuse(reader, "a template without the text");
}

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
      left = bytes_from_stand_ins(left).value_or(left);
      right = bytes_from_stand_ins(right).value_or(right);
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
    } else if (std::optional<std::string> bytes = bytes_from_stand_ins(text)) {
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

void read_added_tokens(const Reader& root, TokenizerParts& parts) {
  if (root.at("added_tokens").is_null()) return;
  for (const json& entry : root.array("added_tokens")) {
    const Reader reader(entry, root.where() + ": added_tokens");
    AddedToken token;
    token.id = reader.integer("id");
    token.content = reader.string("content");
    token.special = reader.boolean("special", false);
    token.single_word = reader.boolean("single_word", false);
    token.lstrip = reader.boolean("lstrip", false);
    token.rstrip = reader.boolean("rstrip", false);
    token.normalized = reader.boolean("normalized", !token.special);
    parts.add_token(token, false);  // the byte-level decoder maps the characters of added tokens too
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
    document = json::parse(tokenizer_json);
  } catch (const json::exception& error) {
    throw_error(ErrorKind::corrupt, "{} is not JSON: {}", name, error.what());
  }
  const Reader root(document, std::string(name));
  const Reader model(root.at("model"), root.where() + ": model");
  TokenizerParts parts;
  parts.name = name;

  for_each_part(root.at("normalizer"), root.where() + ": normalizer", "normalizers",
                [&](const Reader& part) { read_normalizer(part, parts); });
  bool byte_level = false;
  for_each_part(root.at("pre_tokenizer"), root.where() + ": pre_tokenizer", "pretokenizers",
                [&](const Reader& part) { read_pre_tokenizer(part, parts, byte_level); });
  DecoderState state;
  for_each_part(root.at("decoder"), root.where() + ": decoder", "decoders",
                [&](const Reader& part) { read_decoder(part, parts, state); });
  if (!state.fused || parts.decode.byte_level != byte_level) {
    throw_hint(ErrorKind::unsupported,
               "a decoder ends in ByteLevel or has Fuse; ByteLevel comes with its pre-tokenizer",
               "{}: this combination of pre-tokenizer and decoder is not supported", name);
  }

  // The first files had no type; a list of merges tells BPE.
  const std::string type = model.at("type").is_null() && !model.at("merges").is_null() ? "BPE" : model.string("type");
  if (type != "BPE") refuse(model, "the model type " + type);
  read_bpe(model, parts, byte_level);
  read_added_tokens(root, parts);
  for_each_part(root.at("post_processor"), root.where() + ": post_processor", "processors",
                [&](const Reader& part) { read_post_processor(part, parts); });

  parts.bos_id = id_of(parts, special.bos);
  parts.eos_id = id_of(parts, special.eos);
  parts.unk_id = id_of(parts, special.unk);
  parts.pad_id = id_of(parts, special.pad);
  parts.apply_add_flags(special.add_bos, special.add_eos);
  return std::make_unique<Tokenizer>(std::move(parts));
}

}  // namespace ingot::text

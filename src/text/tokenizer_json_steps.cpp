#include "text/tokenizer_json_steps.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr int max_steps = 100;  // max steps of one kind; every text passes through all of them

// Calls `each` on the component, or on every part of a (nested) Sequence; `count` counts the calls.
template <class Each>
void for_each_part(const json& value, const std::string& where, const char* list_key, Each each, int& count,
                   int depth = 0) {
  if (value.is_null()) return;
  if (depth > 8) throw_error(ErrorKind::corrupt, "{}: sequences are too deeply nested", where);
  const Reader reader(value, where);
  if (reader.string("type") != "Sequence") {
    if (++count > max_steps) throw_error(ErrorKind::unsupported, "{}: there are more than {} steps", where, max_steps);
    return each(reader);
  }
  size_t index = 0;
  for (const json& part : reader.array(list_key)) {
    for_each_part(part, fmt::format("{}.{}[{}]", where, list_key, index++), list_key, each, count, depth + 1);
  }
}
template <class Each>
void for_each_part(const json& value, const std::string& where, const char* list_key, Each each) {
  int count = 0;
  for_each_part(value, where, list_key, each, count);
}

// The text of a pattern {"String": text}; nullopt for {"Regex": ...}.
std::optional<std::string> literal_pattern(const Reader& reader) {
  const Reader pattern = reader.object("pattern");
  if (pattern.at("String").is_null()) return std::nullopt;
  std::string text = pattern.string("String");
  if (text.empty()) throw_error(ErrorKind::corrupt, "{}: the pattern is empty", reader.where());
  return text;
}

std::string literal_or_refuse(const Reader& reader) {
  std::optional<std::string> literal = literal_pattern(reader);
  if (!literal) refuse(reader, "a decoder Replace with a regular expression");
  return *literal;
}

std::shared_ptr<const Charsmap> read_charsmap(const Reader& reader) {
  const std::string encoded = reader.string("precompiled_charsmap");
  std::string blob;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : std::string_view(encoded).substr(0, encoded.find('='))) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = digits.find(c);
    if (digit == std::string_view::npos) throw_error(ErrorKind::corrupt, "{}: this is not base64", reader.where());
    bits = bits << 6 | static_cast<uint32_t>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    blob.push_back(static_cast<char>(bits >> num_bits));
  }
  return std::make_shared<const Charsmap>(blob, reader.where());
}

void read_normalizer(const Reader& reader, TokenizerParts& parts) {
  using Kind = NormalizerStep::Kind;
  constexpr std::pair<std::string_view, Kind> plain[] = {{"NFC", Kind::nfc},
                                                         {"NFD", Kind::nfd},
                                                         {"NFKC", Kind::nfkc},
                                                         {"NFKD", Kind::nfkd},
                                                         {"Lowercase", Kind::lowercase},
                                                         {"StripAccents", Kind::strip_accents}};
  const std::string type = reader.string("type");
  for (const auto& [name, kind] : plain) {
    if (type == name) return parts.normalizer.add({kind});
  }
  if (type == "Prepend") {
    parts.normalizer.add({Kind::prepend, {}, reader.string("prepend")});
  } else if (type == "Strip") {
    if (reader.boolean("strip_left", true)) parts.normalizer.add({Kind::strip_left});
    if (reader.boolean("strip_right", true)) parts.normalizer.add({Kind::strip_right});
  } else if (type == "Precompiled") {
    parts.normalizer.add({.kind = Kind::charsmap, .charsmap = read_charsmap(reader)});
  } else if (type == "Replace") {
    NormalizerStep step{Kind::replace, {}, reader.string("content")};
    if (const std::optional<std::string> literal = literal_pattern(reader)) {
      step.from = *literal;
    } else {
      step.regex = std::make_shared<const Regex>(reader.object("pattern").string("Regex"));
    }
    parts.normalizer.add(std::move(step));
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

// Which pieces a Metaspace step prefixes with its replacement. Files older than prepend_scheme have only
// add_prefix_space.
PreTokenizerStep::Prepend read_prepend(const Reader& reader) {
  using Prepend = PreTokenizerStep::Prepend;
  if (reader.at("prepend_scheme").is_null()) {
    return reader.boolean("add_prefix_space", true) ? Prepend::always : Prepend::never;
  }
  const std::string name = reader.string("prepend_scheme");
  if (name == "always") return Prepend::always;
  if (name == "first") return Prepend::first;
  if (name == "never") return Prepend::never;
  throw_error(ErrorKind::corrupt, "{}: \"{}\" is not a prepend_scheme", reader.where(), name);
}

std::string read_replacement(const Reader& reader) {
  std::string replacement = reader.string("replacement");
  if (split_characters(replacement).size() != 1) {
    throw_error(ErrorKind::corrupt, "{}: the replacement is not one character", reader.where());
  }
  return replacement;
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
  } else if (type == "Metaspace") {
    parts.pre_tokenizer.add_metaspace(read_replacement(reader), read_prepend(reader), reader.boolean("split", true));
  } else if (type == "Whitespace") {
    parts.pre_tokenizer.add(Kind::words);
  } else if (type == "WhitespaceSplit") {
    parts.pre_tokenizer.add(Kind::white_space);
  } else if (type == "BertPreTokenizer") {
    parts.pre_tokenizer.add(Kind::white_space);
    parts.pre_tokenizer.add_punctuation(SplitBehavior::isolated);
  } else if (type == "Punctuation") {
    parts.pre_tokenizer.add_punctuation(reader.at("behavior").is_null() ? SplitBehavior::isolated
                                                                        : read_behavior(reader));
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = reader.string("delimiter");
    if (delimiter.empty()) throw_error(ErrorKind::corrupt, "{}: the delimiter is empty", reader.where());
    parts.pre_tokenizer.add_literal(delimiter, SplitBehavior::removed, false);
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
  } else if (type == "Metaspace") {
    if (state.fused || !rules.replace.empty()) out_of_order();
    rules.replace.emplace_back(read_replacement(reader), " ");
    if (read_prepend(reader) != PreTokenizerStep::Prepend::never) rules.drop_in_first = rules.replace.front().first;
    state.fused = true;
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
  if (type == "ByteLevel") return;  // affects only offsets
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto edge = [&](const char* key) {
      const json& pair = reader.array(key);
      return Reader::integer(pair.size() == 2 ? pair[1] : json(), reader.where() + "." + key);
    };
    parts.prefix.push_back(edge("cls"));
    parts.suffix.push_back(edge("sep"));
    return;
  }
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

}  // namespace

void read_normalizers(const Reader& root, TokenizerParts& parts) {
  for_each_part(root.at("normalizer"), root.where() + ": normalizer", "normalizers",
                [&](const Reader& part) { read_normalizer(part, parts); });
}

bool read_pre_tokenizers(const Reader& root, TokenizerParts& parts) {
  bool byte_level = false;
  for_each_part(root.at("pre_tokenizer"), root.where() + ": pre_tokenizer", "pretokenizers",
                [&](const Reader& part) { read_pre_tokenizer(part, parts, byte_level); });
  return byte_level;
}

void read_decoders(const Reader& root, bool byte_level, TokenizerParts& parts) {
  DecoderState state;
  for_each_part(root.at("decoder"), root.where() + ": decoder", "decoders",
                [&](const Reader& part) { read_decoder(part, parts, state); });
  if (state.fused && parts.decode.byte_level == byte_level) return;
  throw_hint(ErrorKind::unsupported,
             "a decoder must end in ByteLevel or Metaspace, or have Fuse; ByteLevel needs the pre-tokenizer ByteLevel",
             "{}: this combination of pre-tokenizer and decoder is not supported", root.where());
}

void read_post_processors(const Reader& root, TokenizerParts& parts) {
  for_each_part(root.at("post_processor"), root.where() + ": post_processor", "processors",
                [&](const Reader& part) { read_post_processor(part, parts); });
}

}  // namespace ingot::text

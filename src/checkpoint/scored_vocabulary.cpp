#include "checkpoint/scored_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "text/unicode.h"

namespace ingot::checkpoint {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr const char* space_mark = "\u2581";

using Ids = std::unordered_map<std::string_view, size_t>;

// The pieces that take part in merges, as input or result.
Ids normal_pieces(const text::VocabularySpec& vocabulary) {
  Ids ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.token_types[id] == text::token_normal) ids.emplace(vocabulary.tokens[id], id);
  }
  return ids;
}

// Calls `each(left, right)` for every way to make `piece` from two pieces, the longest left part first.
template <class Each>
void for_each_pair(std::string_view piece, const Ids& ids, Each each) {
  const std::vector<std::string_view> characters = text::split_characters(piece);
  size_t cut = piece.size();
  for (auto last = characters.rbegin(); last != characters.rend(); ++last) {
    cut -= last->size();
    if (cut == 0) break;
    const std::string_view left = piece.substr(0, cut), right = piece.substr(cut);
    if (ids.contains(left) && ids.contains(right)) each(left, right);
  }
}

json parts_of(const json& document, const char* key, const char* list_key) {
  const json component = document.value(key, json());
  if (component.is_null()) return json::array();
  if (component.value("type", "") == "Sequence") return component.value(list_key, json::array());
  return json::array({component});
}

// Whether the tokenizer puts a space in front of a text, from its normalizer and pre-tokenizer. Errors: unsupported
// unless they are those of Llama or Gemma. Adds to `lost` what GGUF cannot express.
bool read_space_prefix(const json& document, const std::string& source, std::vector<std::string>& lost) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_mark}};
  bool prefix = false, replaced = false;
  const auto refuse = [&](const json& part) {
    throw_hint(ErrorKind::unsupported, "GGUF export supports those of Llama and Gemma",
               "{}: GGUF cannot represent the {} of this tokenizer with byte fallback", source,
               part.value("type", "step"));
  };
  for (const json& part : parts_of(document, "normalizer", "normalizers")) {
    if (part == replace && !replaced) {
      replaced = true;
    } else if (part.value("type", "") == "Prepend" && part.value("prepend", "") == space_mark && !replaced) {
      prefix = true;
    } else {
      refuse(part);
    }
  }
  for (const json& part : parts_of(document, "pre_tokenizer", "pretokenizers")) {
    const std::string type = part.value("type", "");
    const bool nothing_left = replaced && type == "Split" && part.value("pattern", json()) == json{{"String", " "}};
    if (nothing_left) continue;
    if (type != "Metaspace" || replaced || part.value("replacement", "") != space_mark || part.value("split", true)) {
      refuse(part);
    }
    const std::string scheme = part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never");
    prefix = scheme != "never";
    if (prefix) {
      lost.emplace_back(
          "the tokenizer puts a space only in front of texts that do not begin with one, but GGUF in front of every "
          "text: texts that begin with a space get other tokens");
    }
    if (scheme == "first") lost.emplace_back(prefix_lost);
    replaced = true;
  }
  if (!replaced) {
    throw_error(ErrorKind::unsupported, "{}: GGUF cannot represent byte fallback without escaped spaces", source);
  }
  return prefix;
}

}  // namespace

void merges_from_scores(const text::VocabularySpec& vocabulary, ordered_json& document) {
  if (!vocabulary.charsmap.empty() || vocabulary.remove_extra_whitespaces.value_or(false)) {
    throw_error(ErrorKind::unsupported, "{}: cannot write a tokenizer.json for a BPE model that normalises the text",
                vocabulary.name);
  }
  const auto types = [&](int32_t type) {
    return std::find(vocabulary.token_types.begin(), vocabulary.token_types.end(), type);
  };
  // Padding tokens may also have the type unknown, so unk_id takes precedence.
  auto unknown = types(text::token_unknown);
  if (vocabulary.unk_id && *vocabulary.unk_id < std::ssize(vocabulary.token_types)) {
    unknown = vocabulary.token_types.begin() + *vocabulary.unk_id;
  }
  const bool prefix = vocabulary.add_space_prefix.value_or(true);
  ordered_json normalizers = ordered_json::array();
  ordered_json decoders = {{{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}},
                           {{"type", "ByteFallback"}},
                           {{"type", "Fuse"}}};
  if (prefix) {
    normalizers.push_back({{"type", "Prepend"}, {"prepend", space_mark}});
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_mark}});
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  document["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  ordered_json& model = document["model"];
  if (unknown != vocabulary.token_types.end()) {
    model["unk_token"] = vocabulary.tokens[static_cast<size_t>(unknown - vocabulary.token_types.begin())];
  }
  model["fuse_unk"] = true;
  model["byte_fallback"] = types(text::token_byte) != vocabulary.token_types.end();

  const Ids ids = normal_pieces(vocabulary);
  std::vector<std::pair<float, size_t>> order;  // pairs of negated score and id
  for (const auto& [piece, id] : ids) order.emplace_back(-vocabulary.scores.at(id), id);
  std::sort(order.begin(), order.end());
  for (const auto& [score, id] : order) {
    for_each_pair(vocabulary.tokens[id], ids, [&](std::string_view left, std::string_view right) {
      model["merges"].push_back(ordered_json::array({std::string(left), std::string(right)}));
    });
  }
}

void scores_from_merges(const json& document, text::VocabularySpec& vocabulary, std::vector<std::string>& lost) {
  const json& model = document.at("model");
  vocabulary.add_space_prefix = read_space_prefix(document, vocabulary.name, lost);
  vocabulary.scores.assign(vocabulary.tokens.size(), 0.0F);
  const std::string unk = model.value("unk_token", json()).is_string() ? model["unk_token"].get<std::string>() : "";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    int32_t& type = vocabulary.token_types[id];
    if (token == unk) type = text::token_unknown;
    const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
                      token.find_first_not_of("0123456789ABCDEF", 3) == 5;
    if (byte && type == text::token_normal) type = text::token_byte;
  }
  const Ids ids = normal_pieces(vocabulary);
  const auto refuse = [&](std::string_view piece) {
    throw_hint(ErrorKind::unsupported, "GGUF stores the scores of pieces, as SentencePiece does, instead of merges",
               "{}: the merges that produce '{}' cannot be expressed as scores", vocabulary.name, piece);
  };
  std::unordered_map<size_t, size_t> num_merges;  // by id of the resulting piece
  size_t rank = 0, before = SIZE_MAX;
  std::string piece;
  for (const json& merge : model.at("merges")) {
    if (merge.is_array()) {
      piece = merge.at(0).get<std::string>() + merge.at(1).get<std::string>();
    } else {
      piece = merge.get<std::string>();
      piece.erase(piece.find(' '), 1);
    }
    const auto made = ids.find(piece);
    if (made == ids.end()) continue;  // a special token: it is split off before the merges are applied
    if (made->second != before) {
      if (num_merges.contains(made->second)) refuse(piece);
      vocabulary.scores[made->second] = -static_cast<float>(rank++);
    }
    before = made->second;
    ++num_merges[made->second];
  }
  for (const auto& [text, id] : ids) {
    size_t num_pairs = 0;
    for_each_pair(text, ids, [&](std::string_view, std::string_view) { ++num_pairs; });
    const auto found = num_merges.find(id);
    if (num_pairs != (found == num_merges.end() ? 0 : found->second)) refuse(text);
    if (num_pairs == 0) vocabulary.scores[id] = -static_cast<float>(rank);
  }
}

}  // namespace ingot::checkpoint

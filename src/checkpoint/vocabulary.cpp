#include "checkpoint/vocabulary.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/json_object.h"
#include "checkpoint/scored_vocabulary.h"
#include "text/splitting.h"
#include "text/unicode.h"

namespace ingot::checkpoint {

using nlohmann::json;
using nlohmann::ordered_json;
using text::PreTokenizerPreset;

namespace {

ordered_json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

ordered_json pre_tokenizer_of(const PreTokenizerPreset& splitting) {
  if (splitting.patterns.empty() && !splitting.individual_digits) return byte_level(true);
  ordered_json steps = ordered_json::array();
  if (splitting.individual_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const std::string_view pattern : splitting.patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level(splitting.patterns.empty()));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The post-processor that adds BOS in front and EOS at the end.
ordered_json post_processor_of(const text::VocabularySpec& vocabulary, bool add_bos, bool add_eos) {
  if (!add_bos && !add_eos) return byte_level(true);
  ordered_json single = ordered_json::array();
  ordered_json pair = ordered_json::array();
  ordered_json tokens = ordered_json::object();
  const auto special = [&](std::optional<int32_t> id, const char* what) {
    if (!id || static_cast<size_t>(*id) >= vocabulary.tokens.size()) {
      throw_error(ErrorKind::corrupt, "{}: the vocabulary adds {} but does not contain it", vocabulary.name, what);
    }
    const std::string& text = vocabulary.tokens[static_cast<size_t>(*id)];
    tokens[text]["id"] = text;
    tokens[text]["ids"] = ordered_json::array({*id});
    tokens[text]["tokens"] = ordered_json::array({text});
    return text;
  };
  const auto add_sequence = [&](const char* sequence, int type) {
    const auto item = [&](const std::string& id) {
      return ordered_json{{"SpecialToken", {{"id", id}, {"type_id", type}}}};
    };
    const auto push = [&](const ordered_json& value) {
      pair.push_back(value);
      if (type == 0) single.push_back(value);
    };
    if (add_bos) push(item(special(vocabulary.bos_id, "BOS")));
    push({{"Sequence", {{"id", sequence}, {"type_id", type}}}});
    if (add_eos) push(item(special(vocabulary.eos_id, "EOS")));
  };
  add_sequence("A", 0);
  add_sequence("B", 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

// The splitting of a tokenizer.json that GGUF has a name for; null when there is none.
const PreTokenizerPreset* splitting_of(const JsonObject& root, bool ignore_merges) {
  const auto flatten = [&](const char* key, const char* list_key) {
    std::vector<json> steps;
    if (const json* value = root.find(key)) {
      if (value->value("type", "") == "Sequence") {
        for (const json& step : value->value(list_key, json::array())) steps.push_back(step);
      } else {
        steps.push_back(*value);
      }
    }
    return steps;
  };
  const std::vector<json> normalizers = flatten("normalizer", "normalizers");
  const bool nfc = normalizers.size() == 1 && normalizers.front().value("type", "") == "NFC";
  if (!normalizers.empty() && !nfc) return nullptr;
  std::vector<std::string> patterns;
  bool digits = false, bytes = false, regex = false;
  for (const json& step : flatten("pre_tokenizer", "pretokenizers")) {
    const std::string type = step.value("type", "");
    if (bytes) return nullptr;  // no step may follow ByteLevel
    if (type == "ByteLevel") {
      bytes = true;
      regex = step.value("use_regex", true);
      if (step.value("add_prefix_space", true)) return nullptr;
    } else if (type == "Digits" && !digits && patterns.empty() && step.value("individual_digits", false)) {
      digits = true;
    } else if (type == "Split" && step.value("behavior", "") == "Isolated" && !step.value("invert", false) &&
               step.contains("pattern") && step["pattern"].contains("Regex")) {
      patterns.push_back(step["pattern"]["Regex"].get<std::string>());
    } else {
      return nullptr;
    }
  }
  if (!bytes || regex != patterns.empty()) return nullptr;
  for (const PreTokenizerPreset& splitting : text::splittings()) {
    if (splitting.individual_digits == digits && splitting.nfc == nfc && splitting.ignore_merges == ignore_merges &&
        std::ranges::equal(splitting.patterns, patterns)) {
      return &splitting;
    }
  }
  return nullptr;
}

// The token that the post-processor adds at the front (or the end) of the text.
std::optional<std::string> template_token(const JsonObject& root, bool front) {
  const json* post = root.find("post_processor");
  if (post == nullptr) return std::nullopt;
  std::vector<json> processors = {*post};
  if (post->value("type", "") == "Sequence") {
    const json list = post->value("processors", json::array());
    processors.assign(list.begin(), list.end());
  }
  for (const json& processor : processors) {
    bool after = false;
    for (const json& item : processor.value("single", json::array())) {
      if (item.contains("Sequence")) after = true;
      if (after != front && item.contains("SpecialToken")) return item["SpecialToken"].value("id", "");
    }
  }
  return std::nullopt;
}

// The BOS (or EOS) of a vocabulary and whether it is added: from the settings, else from the post-processor.
void read_edge(const JsonObject& root, bool front, const std::optional<std::string>& named, std::optional<bool> forced,
               std::optional<std::string>& token, std::optional<bool>& add) {
  const std::optional<std::string> added = template_token(root, front);
  token = named ? named : added;
  add = forced.value_or(added.has_value());
  if (!added || !*add || token == added) return;
  throw_hint(ErrorKind::unsupported, "a GGUF file can add the BOS or EOS token only",
             "{}: the post-processor adds '{}', but the settings name '{}'", root.where(), *added, *token);
}

std::string merge_text(const json& merge, const std::string& source) {
  if (merge.is_string()) return merge.get<std::string>();
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  throw_error(ErrorKind::corrupt, "{}: a merge is not a pair of tokens", source);
}

}  // namespace

bool is_phi3(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

std::vector<int32_t> rstrip_of_phi3(const text::VocabularySpec& vocabulary) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < vocabulary.token_types.size(); ++id) {
    const int32_t type = vocabulary.token_types[id];
    const std::string& token = vocabulary.tokens[id];
    if (type != text::token_control && type != text::token_unknown && type != text::token_user_defined) continue;
    if (token != "<unk>" && token != "<s>" && token != "<|endoftext|>") ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::string tokenizer_json(const text::VocabularySpec& vocabulary) {
  const bool scored = vocabulary.model == "llama";
  const PreTokenizerPreset* splitting =
      vocabulary.model == "gpt2" ? text::find_pre_tokenizer_preset(vocabulary.pre) : nullptr;
  if (!scored && splitting == nullptr) {
    throw_hint(
        ErrorKind::unsupported,
        "supported: llama (BPE by scores), and gpt2 (byte-level BPE) with the pre-tokenizer " + text::splitting_names(),
        "{}: cannot write a tokenizer.json for the tokenizer '{}' with the pre-tokenizer '{}'", vocabulary.name,
        vocabulary.model, vocabulary.pre);
  }
  json vocab = json::object();  // not an ordered_json, whose insertion takes linear time
  ordered_json added = ordered_json::array();
  const auto add = [&](size_t id, const std::string& content, bool special) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", std::ranges::binary_search(vocabulary.rstrip, static_cast<int32_t>(id))},
                     {"normalized", false},
                     {"special", special}});
  };
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const int32_t type = vocabulary.token_types.empty() ? text::token_normal : vocabulary.token_types.at(id);
    if (type == text::token_unused) continue;
    if (!text::is_valid_utf8(vocabulary.tokens[id])) {
      throw_error(ErrorKind::corrupt, "{}: token {} is not UTF-8", vocabulary.name, id);
    }
    vocab[vocabulary.tokens[id]] = id;
    if (type == text::token_control || type == text::token_unknown || type == text::token_user_defined) {
      add(id, vocabulary.tokens[id], type != text::token_user_defined);
    }
  }
  const bool default_bos = scored || splitting->add_bos;
  const bool add_bos = vocabulary.add_bos.value_or(default_bos && vocabulary.bos_id.has_value());
  ordered_json document = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", post_processor_of(vocabulary, add_bos, vocabulary.add_eos.value_or(false))},
      {"decoder", byte_level(true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", ordered_json(vocab)},
        {"merges", ordered_json::array()}}},
  };
  if (scored) {
    merges_from_scores(vocabulary, document);
    return document.dump(1);
  }
  if (splitting->nfc) document["normalizer"] = {{"type", "NFC"}};
  document["pre_tokenizer"] = pre_tokenizer_of(*splitting);
  document["model"]["ignore_merges"] = splitting->ignore_merges;
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos || !text::is_valid_utf8(merge)) {
      throw_error(ErrorKind::corrupt, "{}: merge '{}'", vocabulary.name, text::replace_invalid_utf8(merge));
    }
    document["model"]["merges"].push_back(ordered_json::array({merge.substr(0, space), merge.substr(space + 1)}));
  }
  return document.dump(1);
}

GgufVocabulary gguf_vocabulary_of(std::string_view text, const std::string& source, const text::SpecialTokens& special,
                                  int64_t size) {
  const json document = parse_json(text, source);
  const JsonObject root(document, source);
  const std::optional<JsonObject> model = root.object("model");
  const json* vocab = model ? model->find("vocab") : nullptr;
  const json* merges = model ? model->find("merges") : nullptr;
  if (vocab == nullptr || !vocab->is_object() || merges == nullptr || !merges->is_array()) {
    throw_hint(ErrorKind::unsupported, "GGUF export supports BPE tokenizers, and those of a tokenizer.model",
               "{}: this is not a BPE tokenizer", source);
  }
  const bool scored = model->boolean("byte_fallback").value_or(false);
  const PreTokenizerPreset* splitting =
      scored ? nullptr : splitting_of(root, model->boolean("ignore_merges").value_or(false));
  if (!scored && splitting == nullptr) {
    throw_hint(
        ErrorKind::unsupported,
        "GGUF export supports byte fallback, and byte-level BPE with the pre-tokenizer " + text::splitting_names(),
        "{}: no known GGUF pre-tokenizer matches this normalizer and pre-tokenizer", source);
  }
  GgufVocabulary result;
  text::VocabularySpec& vocabulary = result.spec;
  vocabulary.name = source;
  vocabulary.model = scored ? "llama" : "gpt2";
  if (splitting != nullptr) vocabulary.pre = splitting->name;
  vocabulary.tokens.resize(static_cast<size_t>(size));
  vocabulary.token_types.assign(static_cast<size_t>(size), text::token_unused);
  std::map<std::string, int32_t> ids;
  const auto set = [&](const std::string& token, const json& id, int32_t type) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= size) {
      throw_error(ErrorKind::corrupt, "{}: token '{}' has an id outside the model's vocabulary of {}", source, token,
                  size);
    }
    const auto index = id.get<size_t>();
    vocabulary.tokens[index] = token;
    vocabulary.token_types[index] = type;
    ids[token] = static_cast<int32_t>(index);
  };
  for (const auto& [token, id] : vocab->items()) set(token, id, text::token_normal);
  if (const json* added = root.find("added_tokens")) {
    for (const json& item : *added) {
      const JsonObject token(item, source + ": added_tokens");
      for (const char* flag : {"single_word", "lstrip"}) {
        if (!token.boolean(flag).value_or(false)) continue;
        throw_error(ErrorKind::unsupported, "{}: GGUF cannot represent token '{}' with \"{}\"", source,
                    token.string("content").value_or(""), flag);
      }
      text::AddedToken named;
      named.content = token.string("content").value_or("");
      named.special = token.boolean("special").value_or(false);
      special.mark(named);
      set(named.content, item.value("id", json(nullptr)),
          named.is_control() ? text::token_control : text::token_user_defined);
      if (token.boolean("rstrip").value_or(false)) vocabulary.rstrip.push_back(ids[named.content]);
    }
  }
  std::ranges::sort(vocabulary.rstrip);
  if (!vocabulary.rstrip.empty() && vocabulary.rstrip != rstrip_of_phi3(vocabulary)) {
    throw_error(ErrorKind::unsupported, "{}: GGUF cannot represent token '{}' with \"rstrip\"", source,
                vocabulary.tokens[static_cast<size_t>(vocabulary.rstrip.front())]);
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.token_types[id] == text::token_unused) vocabulary.tokens[id] = fmt::format("[PAD{}]", id);
  }
  if (scored) {
    scores_from_merges(document, vocabulary, result.lost);
  } else {
    for (const json& merge : *merges) vocabulary.merges.push_back(merge_text(merge, source));
  }
  const auto id_of = [&](const std::optional<std::string>& token) -> std::optional<int32_t> {
    const auto found = token ? ids.find(*token) : ids.end();
    return found == ids.end() ? std::nullopt : std::optional<int32_t>(found->second);
  };
  std::optional<std::string> bos, eos;
  read_edge(root, true, special.bos, special.add_bos, bos, vocabulary.add_bos);
  read_edge(root, false, special.eos, special.add_eos, eos, vocabulary.add_eos);
  vocabulary.bos_id = id_of(bos);
  vocabulary.eos_id = id_of(eos);
  vocabulary.unk_id = id_of(scored ? model->string("unk_token") : special.unk);
  vocabulary.pad_id = id_of(special.pad);
  return result;
}

GgufVocabulary gguf_vocabulary_of(text::VocabularySpec vocabulary, int64_t size) {
  std::vector<std::string> lost;
  if (vocabulary.prefix_at_start_only && vocabulary.add_space_prefix.value_or(true)) lost.emplace_back(prefix_lost);
  vocabulary.prefix_at_start_only = false;
  const auto refuse = [&](const char* what) {
    throw_error(ErrorKind::unsupported, "{}: GGUF cannot represent {}", vocabulary.name, what);
  };
  const auto count = [&](int32_t type) {
    return std::count(vocabulary.token_types.begin(), vocabulary.token_types.end(), type);
  };
  const bool bpe = vocabulary.model == "llama";
  if (bpe && (!vocabulary.charsmap.empty() || vocabulary.remove_extra_whitespaces.value_or(false))) {
    refuse("a BPE model that normalises the text");
  }
  if (vocabulary.user_defined_inside && vocabulary.add_space_prefix.value_or(true) &&
      count(text::token_user_defined) != 0) {
    refuse("user-defined pieces without a space after them");
  }
  for (const text::AddedToken& token : vocabulary.added) {
    if (token.single_word || token.lstrip || token.rstrip) refuse("added tokens that strip white space");
    const auto id = static_cast<size_t>(token.id);
    if (id >= vocabulary.tokens.size()) {
      vocabulary.tokens.resize(id + 1);
      vocabulary.token_types.resize(id + 1, text::token_unused);
      vocabulary.scores.resize(id + 1, 0.0F);
    }
    vocabulary.tokens[id] = token.content;
    if (vocabulary.token_types[id] != text::token_unknown) {
      vocabulary.token_types[id] = token.is_control() ? text::token_control : text::token_user_defined;
    }
  }
  vocabulary.added.clear();
  if (vocabulary.tokens.size() > static_cast<size_t>(size)) {
    throw_error(ErrorKind::corrupt, "{}: {} tokens, but the model's vocabulary has {}", vocabulary.name,
                vocabulary.tokens.size(), size);
  }
  vocabulary.tokens.resize(static_cast<size_t>(size));
  vocabulary.token_types.resize(static_cast<size_t>(size), text::token_unused);
  vocabulary.scores.resize(static_cast<size_t>(size), 0.0F);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].empty()) vocabulary.tokens[id] = fmt::format("[PAD{}]", id);
  }
  vocabulary.user_defined_inside = false;
  return {std::move(vocabulary), std::move(lost)};
}

}  // namespace ingot::checkpoint

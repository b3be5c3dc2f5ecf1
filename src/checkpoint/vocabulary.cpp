#include "checkpoint/vocabulary.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/json_object.h"

namespace ingot::checkpoint {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr int32_t type_normal = 1, type_unknown = 2, type_control = 3, type_user_defined = 4, type_unused = 5;

constexpr const char* llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What the name of a pre-tokenizer stands for. Patterns: specs/tokenizers.md, section 1.
struct Splitting {
  const char* name;
  const char* pattern;     // of a Split in front of ByteLevel; null: ByteLevel's own
  bool individual_digits;  // a Digits step in front
  bool nfc;
  bool ignore_merges;
};
constexpr Splitting splittings[] = {
    {"gpt-2", nullptr, false, false, false},
    {"smollm", nullptr, true, false, false},
    {"llama-bpe", llama3_pattern, false, false, true},
    {"qwen2", qwen2_pattern, false, true, false},
    {"default", nullptr, false, false, false},
    {"", nullptr, false, false, false},
    {"mpt", nullptr, false, false, false},
    {"starcoder", nullptr, true, false, false},
    {"llama3", llama3_pattern, false, false, true},
    {"llama-v3", llama3_pattern, false, false, true},
};

ordered_json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

ordered_json pre_tokenizer_of(const Splitting& splitting) {
  if (splitting.pattern == nullptr && !splitting.individual_digits) return byte_level(true);
  ordered_json steps = ordered_json::array();
  if (splitting.individual_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (splitting.pattern != nullptr) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", splitting.pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level(splitting.pattern == nullptr));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The post-processor that puts BOS in front and EOS behind.
ordered_json post_processor_of(const text::VocabularySpec& vocabulary, bool add_bos, bool add_eos) {
  if (!add_bos && !add_eos) return byte_level(true);
  ordered_json single = ordered_json::array();
  ordered_json pair = ordered_json::array();
  ordered_json tokens = ordered_json::object();
  const auto special = [&](std::optional<int32_t> id, const char* what) {
    if (!id || static_cast<size_t>(*id) >= vocabulary.tokens.size()) {
      throw_error(ErrorKind::corrupt, "{}: the vocabulary adds {} but has none", vocabulary.name, what);
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

// Which splitting a tokenizer.json asks for; null when no name stands for it.
const Splitting* find_splitting(const JsonObject& root, bool ignore_merges) {
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
  std::string pattern;
  bool digits = false, bytes = false, regex = false;
  for (const json& step : flatten("pre_tokenizer", "pretokenizers")) {
    const std::string type = step.value("type", "");
    if (bytes) return nullptr;  // nothing may follow
    if (type == "ByteLevel") {
      bytes = true;
      regex = step.value("use_regex", true);
      if (step.value("add_prefix_space", true)) return nullptr;
    } else if (type == "Digits" && !digits && step.value("individual_digits", false)) {
      digits = true;
    } else if (type == "Split" && pattern.empty() && step.value("behavior", "") == "Isolated" &&
               !step.value("invert", false) && step.contains("pattern")) {
      pattern = step["pattern"].value("Regex", "");
      if (pattern.empty()) return nullptr;
    } else {
      return nullptr;
    }
  }
  if (!bytes || regex != pattern.empty()) return nullptr;
  for (const Splitting& splitting : splittings) {
    if (splitting.individual_digits == digits && splitting.nfc == nfc && splitting.ignore_merges == ignore_merges &&
        pattern == (splitting.pattern == nullptr ? "" : splitting.pattern)) {
      return &splitting;
    }
  }
  return nullptr;
}

// The token that the post-processor puts in front of (or behind) the text.
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

// The BOS (or EOS) of a vocabulary and whether it is added: what the settings say, else what the post-processor does.
void read_edge(const JsonObject& root, bool front, const std::optional<std::string>& named, std::optional<bool> forced,
               std::optional<std::string>& token, std::optional<bool>& add) {
  const std::optional<std::string> added = template_token(root, front);
  token = named ? named : added;
  add = forced.value_or(added.has_value());
  if (!added || !*add || token == added) return;
  throw_hint(ErrorKind::unsupported, "a GGUF file can add the BOS or EOS token only",
             "{}: the post-processor adds '{}', the settings name '{}'", root.where(), *added, *token);
}

std::string merge_text(const json& merge, const std::string& source) {
  if (merge.is_string()) return merge.get<std::string>();
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  throw_error(ErrorKind::corrupt, "{}: a merge is not a pair of tokens", source);
}

}  // namespace

std::string tokenizer_json(const text::VocabularySpec& vocabulary) {
  const auto found = std::find_if(std::begin(splittings), std::end(splittings),
                                  [&](const Splitting& s) { return vocabulary.pre == s.name; });
  if (vocabulary.model != "gpt2" || found == std::end(splittings)) {
    throw_hint(ErrorKind::unsupported, "Ingot has: gpt2 (byte-level BPE) split as gpt-2, smollm, llama-bpe or qwen2",
               "{}: a tokenizer.json for the tokenizer '{}' split as '{}' cannot be made", vocabulary.name,
               vocabulary.model, vocabulary.pre);
  }
  ordered_json vocab = ordered_json::object();
  ordered_json added = ordered_json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const int32_t type = vocabulary.token_types.empty() ? type_normal : vocabulary.token_types.at(id);
    if (type == type_unused) continue;
    vocab[vocabulary.tokens[id]] = id;
    if (type != type_control && type != type_unknown && type != type_user_defined) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type != type_user_defined}});
  }
  ordered_json merges = ordered_json::array();
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos) throw_error(ErrorKind::corrupt, "{}: merge '{}'", vocabulary.name, merge);
    merges.push_back(ordered_json::array({merge.substr(0, space), merge.substr(space + 1)}));
  }
  const bool add_bos = vocabulary.add_bos.value_or(found->ignore_merges && vocabulary.bos_id.has_value());
  const ordered_json normalizer = found->nfc ? ordered_json{{"type", "NFC"}} : ordered_json(nullptr);
  const ordered_json document = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", normalizer},
      {"pre_tokenizer", pre_tokenizer_of(*found)},
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
        {"ignore_merges", found->ignore_merges},
        {"vocab", vocab},
        {"merges", merges}}},
  };
  return document.dump(1);
}

text::VocabularySpec gguf_vocabulary_of(std::string_view text, const std::string& source,
                                        const text::SpecialTokens& special, int64_t size) {
  const json document = parse_json(text, source);
  const JsonObject root(document, source);
  const std::optional<JsonObject> model = root.object("model");
  const json* vocab = model ? model->find("vocab") : nullptr;
  const json* merges = model ? model->find("merges") : nullptr;
  if (vocab == nullptr || !vocab->is_object() || merges == nullptr || !merges->is_array()) {
    throw_hint(ErrorKind::unsupported, "GGUF export knows byte-level BPE tokenizers", "{}: this is no BPE tokenizer",
               source);
  }
  const Splitting* splitting = find_splitting(root, model->boolean("ignore_merges").value_or(false));
  if (splitting == nullptr) {
    throw_hint(ErrorKind::unsupported,
               "GGUF export knows byte-level BPE with the splitting of GPT-2, SmolLM, Llama 3 and Qwen2",
               "{}: GGUF has no name that Ingot knows for this normalizer and pre-tokenizer", source);
  }
  text::VocabularySpec vocabulary;
  vocabulary.name = source;
  vocabulary.model = "gpt2";
  vocabulary.pre = splitting->name;
  vocabulary.tokens.resize(static_cast<size_t>(size));
  vocabulary.token_types.assign(static_cast<size_t>(size), type_unused);
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
  for (const auto& [token, id] : vocab->items()) set(token, id, type_normal);
  if (const json* added = root.find("added_tokens")) {
    for (const json& item : *added) {
      const JsonObject token(item, source + ": added_tokens");
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
        if (!token.boolean(flag).value_or(false)) continue;
        throw_error(ErrorKind::unsupported, "{}: GGUF cannot say that token '{}' has \"{}\"", source,
                    token.string("content").value_or(""), flag);
      }
      set(token.string("content").value_or(""), item.value("id", json(nullptr)),
          token.boolean("special").value_or(false) ? type_control : type_user_defined);
    }
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.token_types[id] == type_unused) vocabulary.tokens[id] = fmt::format("[PAD{}]", id);
  }
  for (const json& merge : *merges) vocabulary.merges.push_back(merge_text(merge, source));
  const auto id_of = [&](const std::optional<std::string>& token) -> std::optional<int32_t> {
    const auto found = token ? ids.find(*token) : ids.end();
    return found == ids.end() ? std::nullopt : std::optional<int32_t>(found->second);
  };
  std::optional<std::string> bos, eos;
  read_edge(root, true, special.bos, special.add_bos, bos, vocabulary.add_bos);
  read_edge(root, false, special.eos, special.add_eos, eos, vocabulary.add_eos);
  vocabulary.bos_id = id_of(bos);
  vocabulary.eos_id = id_of(eos);
  vocabulary.unk_id = id_of(special.unk);
  vocabulary.pad_id = id_of(special.pad);
  return vocabulary;
}

}  // namespace ingot::checkpoint

#include "checkpoint/text_assets.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/json_object.h"
#include "checkpoint/vocabulary.h"
#include "formats/gguf.h"
#include "text/sentencepiece_file.h"
#include "text/unicode.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using formats::GgufMetadata;
using nlohmann::json;

namespace {

void set_ids(const std::vector<int64_t>& ids, std::vector<int32_t>& out) {
  for (int64_t id : ids) {
    if (id >= 0 && id <= INT32_MAX) out.push_back(static_cast<int32_t>(id));
  }
}

void read_generation(const fs::path& folder, TextAssets& assets) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!path_exists(folder / name)) continue;
    const json document = read_json(folder / name);
    const JsonObject settings(document, (folder / name).string());
    if (assets.eos.empty()) set_ids(settings.integers("eos_token_id"), assets.eos);
    std::vector<int32_t> bos;
    set_ids(settings.integers("bos_token_id"), bos);
    if (!assets.bos && !bos.empty()) assets.bos = bos.front();
    if (std::string_view(name) == "config.json") continue;
    GenerationDefaults& generation = assets.generation;
    generation.do_sample = settings.boolean("do_sample");
    generation.temperature = settings.number("temperature");
    generation.top_p = settings.number("top_p");
    generation.top_k = settings.integer("top_k");
    generation.repetition_penalty = settings.number("repetition_penalty");
  }
}

TextAssets load_hf_text(const fs::path& folder) {
  TextAssets assets;
  const text::TokenizerConfig config = hf_tokenizer_config(folder);
  text::SpecialTokens special = config.special;
  read_generation(folder, assets);
  special.eos_ids = assets.eos;
  const fs::path path = folder / "tokenizer.json";
  if (path_exists(path)) {
    assets.tokenizer = text::Tokenizer::from_json(read_file(path, uint64_t{1} << 30), path.string(), special);
  } else if (path_exists(folder / "tokenizer.model")) {
    assets.tokenizer = text::Tokenizer::from_vocabulary(sentencepiece_vocabulary(folder, assets.eos));
  } else if (path_exists(folder / "vocab.json")) {
    throw_hint(ErrorKind::unsupported,
               "create it with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
               "{}: there is no tokenizer.json, only vocab.json, which is not supported", folder.string());
  }
  if (assets.tokenizer && assets.tokenizer->bos_id()) assets.bos = assets.tokenizer->bos_id();
  if (assets.tokenizer && assets.eos.empty() && assets.tokenizer->eos_id()) assets.eos = {*assets.tokenizer->eos_id()};
  const auto text_of = [&](const std::optional<std::string>& named, std::optional<int32_t> id) {
    if (named) return *named;
    return assets.tokenizer && id ? assets.tokenizer->token_text(*id) : std::string();
  };
  assets.bos_text = text_of(special.bos, assets.bos);
  assets.eos_text =
      text_of(special.eos, assets.eos.empty() ? std::nullopt : std::optional<int32_t>(assets.eos.front()));
  assets.chat_template = config.chat_template;
  return assets;
}

TextAssets load_gguf_text(const fs::path& path) {
  TextAssets assets;
  const formats::GgufSet file(path);
  const GgufMetadata& metadata = file.metadata();
  if (!metadata.contains("tokenizer.ggml.tokens")) return assets;
  assets.tokenizer = text::Tokenizer::from_vocabulary(gguf_vocabulary(metadata, path.string()));
  assets.bos = assets.tokenizer->bos_id();
  for (const char* key : {"eos", "eot", "eom"}) {
    const int64_t id = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", key), -1);
    set_ids({id}, assets.eos);
  }
  if (assets.bos) assets.bos_text = assets.tokenizer->token_text(*assets.bos);
  if (const auto eos = assets.tokenizer->eos_id()) assets.eos_text = assets.tokenizer->token_text(*eos);
  if (metadata.contains("tokenizer.chat_template")) assets.chat_template = metadata.text("tokenizer.chat_template");
  return assets;
}

// Marks tokens that delimit a turn, and tokens with a role of their own, as control tokens like llama.cpp, whatever
// type the file gives them: early Gemma files have <end_of_turn> as user-defined. Tokens that can be ordinary text are
// unchanged: those of one character, such as a line feed that ends an answer, and results of merges.
void mark_control(const GgufMetadata& metadata, text::VocabularySpec& vocabulary) {
  if (vocabulary.token_types.empty()) vocabulary.token_types.assign(vocabulary.tokens.size(), text::token_normal);
  const size_t size = std::min(vocabulary.tokens.size(), vocabulary.token_types.size());
  const auto is_merged = [&](const std::string& token) {
    return std::ranges::any_of(vocabulary.merges, [&](const std::string& merge) {
      const size_t space = merge.find(' ');
      return merge.size() == token.size() + 1 && space < merge.size() && token.starts_with(merge.substr(0, space)) &&
             token.ends_with(merge.substr(space + 1));
    });
  };
  const auto mark = [&](int64_t id) {
    if (id < 0 || static_cast<size_t>(id) >= size) return;
    int32_t& type = vocabulary.token_types[static_cast<size_t>(id)];
    const std::string& token = vocabulary.tokens[static_cast<size_t>(id)];
    if (type != text::token_normal && type != text::token_user_defined) return;
    if (text::split_characters(token).size() > 1 && !is_merged(token)) type = text::token_control;
  };
  for (const auto& id : {vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id}) mark(id.value_or(-1));
  for (const char* key : {"eot", "eom"}) {
    mark(metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", key), -1));
  }
  constexpr std::string_view turns[] = {"<|im_start|>", "<|im_end|>", "<start_of_turn>",   "<end_of_turn>",
                                        "<|eot_id|>",   "<|eom_id|>", "<|end|>",           "<|endoftext|>",
                                        "<EOT>",        "_<EOT>",     "< EOT >",           "<|end_of_text|>",
                                        "<|return|>",   "<|call|>",   "<end_of_utterance>"};
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (std::ranges::find(turns, vocabulary.tokens[id]) != std::end(turns)) mark(static_cast<int64_t>(id));
  }
}

// Reads BERT's keys, with llama.cpp's default ids where the file names none.
void read_bert(const GgufMetadata& metadata, text::VocabularySpec& vocabulary) {
  const auto id = [&](std::initializer_list<const char*> keys, int32_t fallback) -> std::optional<int32_t> {
    for (const char* key : keys) {
      const int64_t value = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", key), -1);
      if (value >= 0 && value <= INT32_MAX) return static_cast<int32_t>(value);
    }
    return static_cast<size_t>(fallback) < vocabulary.tokens.size() ? std::optional(fallback) : std::nullopt;
  };
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const std::string name = fmt::format("tokenizer.ggml.{}", key);
    return metadata.contains(name) ? std::optional<bool>(metadata.boolean(name)) : std::nullopt;
  };
  vocabulary.bos_id = id({"bos", "cls"}, 101);
  vocabulary.eos_id = id({"seperator", "eos"}, 102);  // this is the format's spelling
  vocabulary.unk_id = id({"unknown"}, 100);
  vocabulary.pad_id = id({"padding"}, 0);
  vocabulary.add_eos = flag("add_sep_token");
  vocabulary.lowercase = flag("normalizer.lowercase");
  vocabulary.strip_accents = flag("normalizer.strip_accents");
}

}  // namespace

text::VocabularySpec gguf_vocabulary(const GgufMetadata& metadata, const std::string& source) {
  text::VocabularySpec vocabulary;
  vocabulary.name = source;
  vocabulary.model = metadata.text("tokenizer.ggml.model");
  vocabulary.pre = metadata.text("tokenizer.ggml.pre", "");
  vocabulary.tokens = metadata.texts("tokenizer.ggml.tokens");
  if (metadata.contains("tokenizer.ggml.token_type")) {
    for (int64_t type : metadata.integers("tokenizer.ggml.token_type")) {
      vocabulary.token_types.push_back(static_cast<int32_t>(std::clamp<int64_t>(type, 0, 1000)));
    }
  }
  if (metadata.contains("tokenizer.ggml.merges")) vocabulary.merges = metadata.texts("tokenizer.ggml.merges");
  const auto id = [&](const char* key) -> std::optional<int32_t> {
    const int64_t value = metadata.integer(key, -1);
    if (value < 0 || value > INT32_MAX) return std::nullopt;
    return static_cast<int32_t>(value);
  };
  vocabulary.bos_id = id("tokenizer.ggml.bos_token_id");
  vocabulary.eos_id = id("tokenizer.ggml.eos_token_id");
  vocabulary.unk_id = id("tokenizer.ggml.unknown_token_id");
  vocabulary.pad_id = id("tokenizer.ggml.padding_token_id");
  const auto flag = [&](const char* key) -> std::optional<bool> {
    if (!metadata.contains(key)) return std::nullopt;
    return metadata.boolean(key);
  };
  vocabulary.add_bos = flag("tokenizer.ggml.add_bos_token");
  if (vocabulary.model != "bert") vocabulary.add_eos = flag("tokenizer.ggml.add_eos_token");
  if (vocabulary.model == "bert") read_bert(metadata, vocabulary);
  mark_control(metadata, vocabulary);
  if (is_phi3(metadata.text("general.name", ""))) vocabulary.rstrip = rstrip_of_phi3(vocabulary);
  vocabulary.add_space_prefix = flag("tokenizer.ggml.add_space_prefix");
  vocabulary.remove_extra_whitespaces = flag("tokenizer.ggml.remove_extra_whitespaces");
  if (metadata.contains("tokenizer.ggml.scores")) {
    for (const double score : metadata.reals("tokenizer.ggml.scores")) {
      vocabulary.scores.push_back(static_cast<float>(score));
    }
  }
  if (metadata.contains("tokenizer.ggml.precompiled_charsmap")) {
    for (const int64_t byte : metadata.integers("tokenizer.ggml.precompiled_charsmap")) {
      vocabulary.charsmap.push_back(static_cast<char>(byte));  // bytes may be stored signed or unsigned
    }
  }
  return vocabulary;
}

text::VocabularySpec sentencepiece_vocabulary(const fs::path& folder, const std::vector<int32_t>& eos_ids) {
  const fs::path path = folder / "tokenizer.model";
  text::VocabularySpec vocabulary = text::parse_sentencepiece(read_file(path, uint64_t{1} << 30), path.string());
  const text::TokenizerConfig config = hf_tokenizer_config(folder);
  vocabulary.added = config.added;
  vocabulary.prefix_at_start_only = !config.legacy;
  if (const fs::path more = folder / "added_tokens.json"; path_exists(more)) {
    const json document = read_json(more);
    const JsonObject ids(document, more.string());
    for (const auto& [content, id] : document.items()) {
      const auto value = ids.integer(content.c_str());
      const auto same = [&](const text::AddedToken& token) { return token.content == content; };
      if (std::any_of(vocabulary.added.begin(), vocabulary.added.end(), same)) continue;
      if (!value || *value < 0 || *value > INT32_MAX) {
        throw_error(ErrorKind::corrupt, "{}: \"{}\" has no valid id", more.string(), content);
      }
      text::AddedToken token;
      token.id = static_cast<int32_t>(*value);
      token.content = content;
      vocabulary.added.push_back(std::move(token));
    }
  }
  text::SpecialTokens special = config.special;
  special.eos_ids = eos_ids;
  for (text::AddedToken& token : vocabulary.added) special.mark(token);
  // As in transformers, pieces that are named in the settings become added tokens.
  for (const std::string& content : special.contents()) {
    const auto same = [&](const text::AddedToken& token) { return token.content == content; };
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), content);
    if (found == vocabulary.tokens.end() || std::ranges::any_of(vocabulary.added, same)) continue;
    const auto id = static_cast<size_t>(found - vocabulary.tokens.begin());
    const int32_t type = vocabulary.token_types[id];
    if (type != text::token_normal && type != text::token_user_defined) continue;
    vocabulary.added.push_back({.id = static_cast<int32_t>(id), .content = content, .special = true});
  }
  const auto set = [&](const std::optional<std::string>& named, std::optional<int32_t>& id) {
    if (!named) return;
    for (const text::AddedToken& token : vocabulary.added) {
      if (token.content == *named) id = token.id;
    }
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), *named);
    if (found != vocabulary.tokens.end()) id = static_cast<int32_t>(found - vocabulary.tokens.begin());
  };
  set(config.special.bos, vocabulary.bos_id);
  set(config.special.eos, vocabulary.eos_id);
  set(config.special.pad, vocabulary.pad_id);
  vocabulary.add_bos = config.special.add_bos;
  vocabulary.add_eos = config.special.add_eos;
  return vocabulary;
}

text::TokenizerConfig hf_tokenizer_config(const fs::path& folder) {
  text::TokenizerConfig config;
  const auto read = [&](const char* name) {
    const fs::path path = folder / name;
    return text::parse_tokenizer_config(read_file(path, uint64_t{1} << 26), path.string());
  };
  if (path_exists(folder / "tokenizer_config.json")) config = read("tokenizer_config.json");
  if (path_exists(folder / "special_tokens_map.json")) {
    const text::SpecialTokens more = read("special_tokens_map.json").special;
    text::SpecialTokens& special = config.special;
    if (!special.bos) special.bos = more.bos;
    if (!special.eos) special.eos = more.eos;
    if (!special.unk) special.unk = more.unk;
    if (!special.pad) special.pad = more.pad;
    special.additional.insert(special.additional.end(), more.additional.begin(), more.additional.end());
  }
  const fs::path separate = folder / "chat_template.jinja";
  if (path_exists(separate)) config.chat_template = read_file(separate, uint64_t{1} << 26);
  return config;
}

TextAssets load_text(const ModelSource& source) {
  TextAssets assets = source.kind == SourceKind::gguf ? load_gguf_text(source.path) : load_hf_text(source.path);
  std::sort(assets.eos.begin(), assets.eos.end());
  assets.eos.erase(std::unique(assets.eos.begin(), assets.eos.end()), assets.eos.end());
  return assets;
}

}  // namespace ingot::checkpoint

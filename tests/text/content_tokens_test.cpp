// The content of a rendered chat gives no control tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "base/error.h"
#include "tests/text/golden.h"
#include "text/byte_alphabet.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::text {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  const std::string file = name + ".tokenizer.json";
  return Tokenizer::from_json(read_golden(file), file);
}

// A tokenizer of single bytes after the special tokens and the added tokens that are not special.
std::unique_ptr<Tokenizer> byte_tokenizer(const std::set<std::string>& special,
                                          const std::set<std::string>& more = {}) {
  VocabularySpec spec;
  spec.name = "bytes";
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  spec.tokens.assign(special.begin(), special.end());
  spec.token_types.assign(special.size(), token_control);
  spec.tokens.insert(spec.tokens.end(), more.begin(), more.end());
  spec.token_types.resize(spec.tokens.size(), token_user_defined);
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.push_back(encode_byte_alphabet(std::string(1, static_cast<char>(byte))));
  spec.token_types.resize(spec.tokens.size(), token_normal);
  return Tokenizer::from_vocabulary(std::move(spec));
}

Ids encode(const Tokenizer& tokenizer, const std::string& text, const ByteRanges& content) {
  return tokenizer.encode(text, {.add_special_tokens = false, .content = content});
}

// The text's tokens, with control tokens in brackets.
std::string tokens_shown(const Tokenizer& tokenizer, const TaintedString& text) {
  std::string out;
  for (const int32_t id : encode(tokenizer, text.text(), text.content())) {
    out += tokenizer.is_special(id) ? "[" + tokenizer.token_text(id) + "]" : tokenizer.token_bytes(id);
  }
  return out;
}

TaintedString marked(std::initializer_list<std::pair<const char*, Origin>> parts) {
  TaintedString text;
  for (const auto& [part, origin] : parts) text.append(part, origin);
  return text;
}

constexpr Origin author = Origin::author, caller = Origin::caller;

TEST(ContentTokens, SpecialTokensAreFoundOnlyInTheAuthorsText) {
  const auto tokenizer = byte_tokenizer({"<s>", "<|end|>", "X<|end|>", "<s>a"}, {"<tool>", "a<s", "> "});
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<s>", author}, {"<s>", caller}, {"<s>", author}})), "[<s>]<s>[<s>]");
  // One half of the special token is content.
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<|e", caller}, {"nd|>", author}})), "<|end|>");
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<|e", author}, {"nd|>", caller}})), "<|end|>");
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<|e", author}, {"n", caller}, {"d|>", author}})), "<|end|>");
  // Content hides no special token of the author, neither by a longer one nor by one that is found in all texts.
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"X", caller}, {"<|end|>", author}})), "X[<|end|>]");
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<s>", author}, {"a", caller}})), "[<s>]a");
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"a", caller}, {"<s>", author}})), "a[<s>]");
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<s>", author}, {" ", caller}})), "[<s>] ");
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<|<", caller}, {"<|end|>", author}})), "<|<[<|end|>]");
  // Added tokens that are not special are found everywhere, also across boundaries.
  const int32_t tool = tokenizer->find("<tool>").value();
  for (const TaintedString& text : {marked({{"<tool>", caller}}), marked({{"<to", caller}, {"ol>", author}})}) {
    EXPECT_EQ(encode(*tokenizer, text.text(), text.content()), Ids{tool});
  }
}

TEST(ContentTokens, OtherTokensDoNotChange) {
  const ordered_json texts = read_golden_json("texts.json");
  std::minstd_rand random(5);
  for (const char* name : {"gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2", "cased", "behaviors", "llama2", "llama",
                           "mistral", "unigram", "nfkc", "words"}) {
    const auto tokenizer = load_tokenizer(name);
    for (const auto& entry : texts["plain"]) {
      const auto text = entry.get<std::string>();
      ByteRanges content;
      for (size_t at = random() % 4, end = 0; at < text.size(); at = end + 1 + random() % 9) {
        end = std::min(text.size(), at + 1 + random() % 9);
        content.emplace_back(at, end);
      }
      const Ids ids = tokenizer->encode(text, {.add_special_tokens = false});
      const bool control = std::any_of(ids.begin(), ids.end(), [&](int32_t id) {
        return tokenizer->is_special(id) && tokenizer->token_text(id) != "<unk>";
      });
      if (!control) EXPECT_EQ(encode(*tokenizer, text, content), ids) << name << ": " << text;
    }
  }
}

// Special tokens that the model would produce from their characters, or from others that are normalised to them.
TEST(ContentTokens, MergesProduceNoControlTokens) {
  for (const char* name : {"unigram", "nfkc", "words", "llama", "mistral"}) {
    const auto tokenizer = load_tokenizer(name);
    const int32_t end = tokenizer->find("</s>").value();
    for (const std::string text : {"</s>", "a </s> b", "\uff1c/s\uff1e", "</\uff53>", "\u2581</s>"}) {
      const Ids ids = encode(*tokenizer, text, {{0, text.size()}});
      EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 0) << name << ": " << text;
    }
    EXPECT_EQ(encode(*tokenizer, "</s>", {}), Ids{end}) << name;
  }
}

std::string normalized_special(const std::string& normalizers) {
  ordered_json vocab;
  for (const char* piece : {"<", ">", "e", "n", "d", "a", "-", "\u00e9", "\u0301", "\u226f", "A", " ", "\u2581"}) {
    const size_t id = vocab.size();
    vocab[piece] = id;
  }
  vocab["<end>"] = vocab.size();
  const ordered_json end = {{"id", vocab["<end>"]}, {"content", "<end>"}, {"special", true}, {"normalized", true}};
  ordered_json document = {{"added_tokens", ordered_json::array({end})},
                           {"normalizer", {{"type", "Sequence"}, {"normalizers", ordered_json::parse(normalizers)}}},
                           {"pre_tokenizer", nullptr},
                           {"decoder", {{"type", "Fuse"}}},
                           {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", ordered_json::array()}}}};
  return document.dump();
}

// Special tokens that are matched in the normalised text: content is tracked through the normalizers.
TEST(ContentTokens, NormalizersTrackContent) {
  const auto check = [](const char* normalizers, std::initializer_list<std::pair<const char*, Origin>> parts,
                        const char* expected) {
    const auto tokenizer = Tokenizer::from_json(normalized_special(normalizers), "test");
    EXPECT_EQ(tokens_shown(*tokenizer, marked(parts)), expected) << normalizers;
  };
  const char* const all[] = {R"([{"type": "NFC"}])",
                             R"([{"type": "Lowercase"}, {"type": "NFKC"}])",
                             R"([{"type": "StripAccents"}, {"type": "NFD"}])",
                             R"([{"type": "Replace", "pattern": {"String": "aa"}, "content": "-"}])",
                             R"([{"type": "Replace", "pattern": {"Regex": "a+"}, "content": "a"}])",
                             R"([{"type": "Strip"}])"};
  for (const char* normalizers : all) {
    check(normalizers, {{"<end>", author}, {"<end>", caller}, {"<end>", author}}, "[<end>]<end>[<end>]");
    check(normalizers, {{"<end>", author}, {"<e", caller}, {"nd>", author}}, "[<end>]<end>");
  }
  check(R"([{"type": "Lowercase"}])", {{"<END>", author}, {"<END>", caller}}, "[<end>]<end>");
  check(R"([{"type": "NFKC"}])", {{"\uff1cend\uff1e", caller}, {"\uff1cend\uff1e", author}}, "<end>[<end>]");
  check(R"([{"type": "NFC"}])", {{"<end>e", author}, {"\u0301<end>", caller}, {"<end>", author}},
        "[<end>]\u00e9<end>[<end>]");
  check(R"([{"type": "Replace", "pattern": {"String": "aa"}, "content": "<end>"}])",
        {{"aa", author}, {"aa", caller}, {"-a", author}, {"a", caller}}, "[<end>]<end>-<end>");
  check(R"([{"type": "Prepend", "prepend": "-"}])", {{"<end>", caller}, {"-<end>", author}}, "-<end>[<end>]");
}

// A control token of one character is not a start symbol for merges.
TEST(ContentTokens, ControlTokensOfOneCharacterAreNotProduced) {
  for (const bool byte_level : {false, true}) {
    const ordered_json special = {{"id", 1}, {"content", "b"}, {"special", true}};
    ordered_json document = {{"added_tokens", ordered_json::array({special})},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", nullptr},
                             {"decoder", {{"type", "Fuse"}}},
                             {"model",
                              {{"type", "BPE"},
                               {"unk_token", "?"},
                               {"vocab", {{"a", 0}, {"b", 1}, {"?", 2}}},
                               {"merges", ordered_json::array()}}}};
    if (byte_level) {
      document["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
      document["decoder"] = {{"type", "ByteLevel"}};
    }
    const auto tokenizer = Tokenizer::from_json(document.dump(), "test");
    EXPECT_EQ(encode(*tokenizer, "ab", {}), (Ids{0, 1}));
    EXPECT_EQ(encode(*tokenizer, "ab", {{0, 2}}), (Ids{0, 2}));
  }
}

// At each position the longest match is tried first, and a match inside content must not hide a token of the author.
// Gemma's added tokens are runs of line feeds.
TEST(ContentTokens, LongRunsTakeFewStepsPerByte) {
  AddedTokenMatcher matcher;
  for (int32_t length = 1; length <= 31; ++length) {
    AddedToken token;
    token.id = length;
    token.content = std::string(static_cast<size_t>(length), '\n');
    matcher.add(token, token.content);
  }
  matcher.add({.id = 0, .content = "<end>", .special = true}, "<end>");
  const std::string text(1'000'000, '\n');
  const ByteRanges content = {{0, text.size()}};
  size_t num_steps = 0;
  const std::vector<TextPart> parts = matcher.split(text, true, content, &num_steps);
  EXPECT_EQ(parts.size(), (text.size() + 30) / 31);
  EXPECT_LE(num_steps, 2 * text.size());
}

// The behaviour of transformers 5.23: tokens that the configuration names are found, whether flagged special or not,
// and are skipped in decoded text if they are BOS, EOS, unknown or padding.
TEST(ContentTokens, TokensThatTheConfigurationNamesAreControlTokens) {
  ordered_json vocab;
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyz<>/|_ ")) vocab[std::string(1, c)] = vocab.size();
  for (const char* token : {"<end>", "<eos>", "<pad>", "<more>"}) vocab[token] = vocab.size();
  const ordered_json more = {{"id", vocab["<more>"]}, {"content", "<more>"}, {"special", false}},
                     pad = {{"id", vocab["<pad>"]}, {"content", "<pad>"}, {"special", false}};
  const ordered_json document = {{"added_tokens", {more, pad}},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", nullptr},
                                 {"decoder", {{"type", "Fuse"}}},
                                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", ordered_json::array()}}}};
  const std::string text = "a<end> b<more><pad>";
  const auto check = [&](const SpecialTokens& special, const Ids& ids, const char* decoded) {
    const auto tokenizer = Tokenizer::from_json(document.dump(), "test", special);
    EXPECT_EQ(encode(*tokenizer, text, {}), ids);
    EXPECT_EQ(tokenizer->decode(ids, true), decoded);
    return encode(*tokenizer, text, {{0, text.size()}});
  };
  const Ids end = {26, 4, 13, 3, 27}, spelled_more = {26, 12, 14, 17, 4, 27};
  const auto joined = [](std::initializer_list<Ids> parts) {
    Ids all;
    for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Ids pad_id = {34}, more_id = {35}, a = {0}, b = {31, 1};
  EXPECT_EQ(check({}, joined({a, end, b, more_id, pad_id}), "a<end> b<more><pad>"),
            joined({a, end, b, more_id, pad_id}));
  EXPECT_EQ(check({.eos = "<end>"}, {0, 32, 31, 1, 35, 34}, "a b<more><pad>"), joined({a, end, b, more_id, pad_id}));
  EXPECT_EQ(check({.additional = {"<more>"}}, joined({a, end, b, more_id, pad_id}), "a<end> b<more><pad>"),
            joined({a, end, b, spelled_more, pad_id}));
  EXPECT_EQ(check({.pad = "<pad>", .eos_ids = {35, 1}}, joined({a, end, b, more_id, pad_id}), "a<end> b<more>"),
            joined({a, end, b, spelled_more, {26, 15, 0, 3, 27}}));
}

// Training programs sometimes name "!" or a line feed as padding or end token; message contents keep theirs as text.
TEST(ContentTokens, SingleCharactersThatTheConfigurationNamesAreText) {
  for (const bool is_added : {false, true}) {
    ordered_json added = ordered_json::array();
    if (is_added) added.push_back({{"id", 1}, {"content", "!"}, {"special", false}});
    const ordered_json document = {
        {"added_tokens", added},
        {"normalizer", nullptr},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"!", 1}}}, {"merges", ordered_json::array()}}}};
    const auto tokenizer = Tokenizer::from_json(document.dump(), "test", {.pad = "!", .eos_ids = {1}});
    EXPECT_EQ(encode(*tokenizer, "a!", {{0, 2}}), (Ids{0, 1})) << is_added;
    EXPECT_EQ(tokenizer->decode(Ids{0, 1}, true), "a!") << is_added;
  }
}

// Pieces that are user-defined in tokenizer.model and special in the configuration, like Gemma's.
TEST(ContentTokens, SentencePieceGivesNoSpecialPiecesFromContent) {
  VocabularySpec spec;
  spec.name = "spm";
  spec.model = "llama";
  spec.tokens = {"<unk>", "<turn>", "<", ">", "t", "u", "r", "n", "\u2581"};
  spec.token_types.assign(spec.tokens.size(), token_normal);
  spec.token_types[0] = token_unknown;
  spec.token_types[1] = token_user_defined;
  spec.scores.assign(spec.tokens.size(), -1);
  spec.add_space_prefix = false;
  spec.user_defined_inside = true;
  AddedToken turn;
  turn.id = 1;
  turn.content = "<turn>";
  turn.special = true;
  spec.added = {turn};
  const auto tokenizer = Tokenizer::from_vocabulary(spec);
  EXPECT_EQ(tokens_shown(*tokenizer, marked({{"<turn>", author}, {"<turn>", caller}})), "[<turn>]<turn>");
}

// ---- chats

const ordered_json& golden_tokens() {
  static const ordered_json json = read_golden_json("templates.json");
  return json;
}

ChatOptions content_options_of(const ordered_json& conversation) {
  ChatOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.add_generation_prompt = conversation.value("add_generation_prompt", false);
  return options;
}

// The control tokens of the families' templates. Tags of tool calls and thoughts are not special tokens there.
std::set<std::string> control_tokens(const std::string& source) {
  std::set<std::string> tokens = {"<s>", "</s>"};
  const std::regex form(R"(<\|\w+\|>|\[/?[A-Z_]{3,}\]|<(start|end)_of_turn>|<end>|<bos>|<eos>)");
  for (std::sregex_iterator match(source.begin(), source.end(), form), end; match != end; ++match) {
    tokens.insert(match->str());
  }
  if (source.find("'<|' ~") != std::string::npos) tokens.insert({"<|user|>", "<|system|>"});
  return tokens;
}

size_t num_control(const Tokenizer& tokenizer, const ChatText& chat) {
  const Ids ids = encode(tokenizer, chat.text, chat.content);
  return static_cast<size_t>(
      std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer.is_special(id); }));
}

// Copies of the conversation with `words` appended to one string each, except roles and types.
std::vector<ordered_json> with_words(const ordered_json& value, const std::string& words) {
  std::vector<ordered_json> all;
  if (value.is_string()) all.push_back(value.get<std::string>() + words);
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      for (ordered_json& changed : with_words(value[i], words)) (all.emplace_back(value))[i] = std::move(changed);
    }
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      if (key == "role" || key == "type") continue;
      for (ordered_json& changed : with_words(item, words)) (all.emplace_back(value))[key] = std::move(changed);
    }
  }
  return all;
}

TEST(ContentTokens, NoTemplateLetsContentGiveControlTokens) {
  size_t num_compared = 0;
  std::set<std::string> families, without_own;  // families with BOS and EOS only
  for (const auto& [name, text] : golden_tokens()["templates"].items()) {
    const auto source = text.get<std::string>();
    const ChatTemplate chat(source, name);
    const std::set<std::string> tokens = control_tokens(source);
    if (tokens.size() == 2) without_own.insert(name);
    const auto tokenizer = byte_tokenizer(tokens);
    for (const ordered_json& conversation : golden_tokens()["conversations"]) {
      const ChatOptions options = content_options_of(conversation);
      const ordered_json tools = conversation.value("tools", ordered_json(nullptr));
      const ordered_json both = {{"messages", conversation["messages"]}, {"tools", tools}};
      const auto count = [&](const ordered_json& changed) -> std::optional<size_t> {
        try {
          return num_control(*tokenizer, chat.render(changed["messages"], changed["tools"], options));
        } catch (const Error&) {
          return std::nullopt;  // this family's template refuses the conversation
        }
      };
      if (!count(both)) continue;
      const std::vector<ordered_json> harmless = with_words(both, "(harmless)");
      for (const std::string& token : tokens) {
        const std::vector<ordered_json> forged = with_words(both, token);
        for (size_t i = 0; i < forged.size(); ++i) {
          EXPECT_EQ(count(forged[i]), count(harmless[i])) << name << ": " << forged[i];
          ++num_compared;
        }
      }
      families.insert(name);
    }
  }
  EXPECT_EQ(families.size(), golden_tokens()["templates"].size());
  EXPECT_EQ(without_own, (std::set<std::string>{"parts", "python_tools", "thinking", "vicuna"}));
  EXPECT_GT(num_compared, 1000u);
}

// Ordinary conversations get the ids of their rendered text.
TEST(ContentTokens, OrdinaryChatsKeepTheirIds) {
  for (const auto& row : golden_tokens()["rendered"]) {
    if (!row.contains("text")) continue;
    const ordered_json& conversation = golden_tokens()["conversations"][row["conversation"].get<size_t>()];
    const auto source = golden_tokens()["templates"][row["template"].get<std::string>()].get<std::string>();
    if (conversation.contains("date_string") || conversation.dump().find("<|im_end|>") != std::string::npos) continue;
    const ChatText chat = ChatTemplate(source, "test")
                              .render(conversation["messages"], conversation.value("tools", ordered_json(nullptr)),
                                      content_options_of(conversation));
    const auto bytes = byte_tokenizer(control_tokens(source));
    EXPECT_EQ(encode(*bytes, chat.text, chat.content), encode(*bytes, chat.text, {})) << row;
    for (const char* name : {"smollm2", "llama3", "llama", "mistral", "unigram", "qwen2"}) {
      static std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
      auto& tokenizer = tokenizers[name];
      if (!tokenizer) tokenizer = load_tokenizer(name);
      EXPECT_EQ(encode(*tokenizer, chat.text, chat.content), encode(*tokenizer, chat.text, {})) << name << row;
    }
  }
}

}  // namespace
}  // namespace ingot::text

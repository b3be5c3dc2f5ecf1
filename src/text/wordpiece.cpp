#include "text/wordpiece.h"

#include <algorithm>
#include <iterator>

#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr std::string_view word_start = "\u2581";

using CodeRange = std::pair<uint32_t, uint32_t>;

template <size_t n>
bool in_ranges(const CodeRange (&ranges)[n], uint32_t code) {
  const auto* next_range = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                            [](uint32_t value, const CodeRange& range) { return value < range.first; });
  return next_range != std::begin(ranges) && code <= std::prev(next_range)->second;
}

// The blocks of ideographs that BERT splits into single-character words.
constexpr CodeRange ideographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                                    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

// Control, format and private characters (categories Cc, Cf and Co).
constexpr CodeRange controls[] = {{0x0, 0x1F},        {0x7F, 0x9F},        {0xAD, 0xAD},       {0x600, 0x605},
                                  {0x61C, 0x61C},     {0x6DD, 0x6DD},      {0x70F, 0x70F},     {0x890, 0x891},
                                  {0x8E2, 0x8E2},     {0x180E, 0x180E},    {0x200B, 0x200F},   {0x202A, 0x202E},
                                  {0x2060, 0x2064},   {0x2066, 0x206F},    {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},
                                  {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},  {0x110CD, 0x110CD}, {0x13430, 0x1343F},
                                  {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},  {0xE0001, 0xE0001}, {0xE0020, 0xE007F},
                                  {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD}};

bool is_dropped(uint32_t code) { return code == invalid_byte || code == 0xFFFD || in_ranges(controls, code); }

}  // namespace

WordPieceModel::WordPieceModel(const std::vector<std::pair<std::string, int32_t>>& pieces,
                               const WordPieceOptions& options)
    : options_(options) {
  for (const auto& [piece, id] : pieces) {
    if (!piece.empty()) pieces_.insert(piece, id);
  }
}

void WordPieceModel::encode(std::string_view text, std::vector<int32_t>& out) const {
  encode_words(text, nullptr, out);
}

void WordPieceModel::encode_without(const std::vector<bool>& excluded, std::string_view text,
                                    std::vector<int32_t>& out) const {
  encode_words(text, &excluded, out);
}

void WordPieceModel::encode_words(std::string_view text, const std::vector<bool>* excluded,
                                  std::vector<int32_t>& out) const {
  std::string decomposed;
  if (options_.strip_accents) {
    decomposed = normalize_nfd(text);
    text = decomposed;
  }
  std::string word(word_start);
  const auto finish = [&] {
    if (word.size() > word_start.size()) encode_word(word, excluded, out);
    word.resize(word_start.size());
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const std::string_view character = text.substr(at, c.size);
    at += c.size;
    const uint8_t kind = c.code_point == invalid_byte ? 0 : char_class(c.code_point);
    if ((kind & char_space) != 0) {
      finish();
      continue;
    }
    if (is_dropped(c.code_point) || (options_.strip_accents && is_nonspacing_mark(c.code_point))) continue;
    const bool alone = (kind & char_punctuation) != 0 || in_ranges(ideographs, c.code_point);
    if (alone) finish();
    word += options_.lowercase ? lower_case(character) : std::string(character);
    if (alone) finish();
  }
  finish();
}

void WordPieceModel::encode_word(std::string_view word, const std::vector<bool>* excluded,
                                 std::vector<int32_t>& out) const {
  const size_t before = out.size();
  for (size_t at = 0; at < word.size();) {
    size_t best_end = at;
    int32_t best = ByteTrie::none, node = ByteTrie::root;
    for (size_t end = at; end < word.size();) {
      node = pieces_.next(node, word[end]);
      if (node == ByteTrie::none) break;
      ++end;
      const int32_t id = pieces_.value(node);
      if (id == ByteTrie::none || (excluded != nullptr && (*excluded)[static_cast<size_t>(id)])) continue;
      best = id;
      best_end = end;
    }
    if (best == ByteTrie::none) {
      out.resize(before);
      out.push_back(options_.unk_id);
      return;
    }
    out.push_back(best);
    at = best_end;
  }
}

}  // namespace ingot::text

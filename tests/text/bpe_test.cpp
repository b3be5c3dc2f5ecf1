// BPE compared with its definition: merge the pair of lowest rank first, and the leftmost of equal ranks.
#include "text/bpe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/unicode.h"

namespace ingot::text {
namespace {

using Tokens = std::vector<std::pair<std::string, int32_t>>;

struct Vocabulary {
  std::map<std::string, int32_t> ids;
  std::vector<BpeModel::Merge> merges;

  int32_t add(const std::string& piece) { return ids.emplace(piece, static_cast<int32_t>(ids.size())).first->second; }
};

// Random merges of existing tokens; all tokens are made of `characters`.
Vocabulary random_vocabulary(std::mt19937& random, const std::vector<std::string>& characters, size_t num_merges) {
  Vocabulary vocabulary;
  for (const std::string& c : characters) vocabulary.add(c);
  std::vector<std::string> pieces = characters;
  for (size_t i = 0; i < num_merges; ++i) {
    const BpeModel::Merge merge{pieces[random() % pieces.size()], pieces[random() % pieces.size()]};
    vocabulary.merges.push_back(merge);
    pieces.push_back(merge.first + merge.second);
    vocabulary.add(pieces.back());
  }
  return vocabulary;
}

// The expected ids, from the symbols at the start.
std::vector<int32_t> merged(const Vocabulary& vocabulary, std::vector<int32_t> symbols) {
  std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>> targets;  // rank and id
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto& [left, right] = vocabulary.merges[rank];
    targets[{vocabulary.ids.at(left), vocabulary.ids.at(right)}] = {rank, vocabulary.ids.at(left + right)};
  }
  for (;;) {
    size_t best_rank = targets.empty() ? 0 : vocabulary.merges.size(), best = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = targets.find({symbols[i], symbols[i + 1]});
      if (found == targets.end() || found->second.first >= best_rank) continue;
      best_rank = found->second.first;
      best = i;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = targets.at({symbols[best], symbols[best + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

// The symbols at the start: known characters, and for unknown ones their bytes, or unk (once per run with fuse_unk), or
// nothing.
std::vector<int32_t> start_of(const Vocabulary& vocabulary, const BpeOptions& options, std::string_view text) {
  std::vector<int32_t> symbols;
  bool after_unk = false;
  for (const std::string_view c : split_characters(text)) {
    const auto found = vocabulary.ids.find(std::string(c));
    const bool was_unk = after_unk;
    after_unk = false;
    if (found != vocabulary.ids.end()) {
      symbols.push_back(found->second);
    } else if (options.byte_fallback) {
      for (const char byte : c) {
        symbols.push_back(vocabulary.ids.at(fmt::format("<0x{:02X}>", static_cast<uint8_t>(byte))));
      }
    } else if (options.unk_id) {
      if (!was_unk || !options.fuse_unk) symbols.push_back(*options.unk_id);
      after_unk = true;
    }
  }
  return symbols;
}

std::string random_text(std::mt19937& random, const std::vector<std::string>& characters, size_t most) {
  std::string text;
  for (size_t i = 0, count = random() % most; i < count; ++i) text += characters[random() % characters.size()];
  return text;
}

const std::vector<std::string> known = {"a", "b", ".", "\n", "\u2581", "\u00e9", "\u2019"};
const std::vector<std::string> in_texts = {"a",      "a",      "b",      "b", ".",    "\n",     "\u2581",
                                           "\u2581", "\u00e9", "\u2019", "z", "\x7F", "\u2603", "\xE2"};

// With few merges a text is split before merging; with many it is not.
void expect_definition(bool byte_fallback, bool has_unk, bool fuse_unk, bool merges_of_bytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 25; ++round) {
    std::vector<std::string> characters = known;
    if (merges_of_bytes) characters.insert(characters.end(), {"<0x7A>", "<0xE2>", "<unk>"});
    Vocabulary vocabulary = random_vocabulary(random, characters, 1 + random() % 40);
    BpeOptions options;
    options.byte_fallback = byte_fallback;
    options.fuse_unk = fuse_unk;
    if (has_unk) options.unk_id = vocabulary.add("<unk>");
    for (int byte = 0; byte_fallback && byte < 256; ++byte) vocabulary.add(fmt::format("<0x{:02X}>", byte));
    const BpeModel model(Tokens(vocabulary.ids.begin(), vocabulary.ids.end()), vocabulary.merges, options, "test");
    for (int i = 0; i < 25; ++i) {
      const std::string text = random_text(random, in_texts, i < 23 ? 40 : 600);
      for (int time = 0; time < 2; ++time) {  // the second time uses the cache
        std::vector<int32_t> ids;
        model.encode(text, ids);
        ASSERT_EQ(ids, merged(vocabulary, start_of(vocabulary, options, text))) << text;
      }
    }
  }
}

TEST(Bpe, EncodesCharactersWithByteFallback) { expect_definition(true, true, true, false); }
TEST(Bpe, MergesFallbackBytes) { expect_definition(true, true, false, true); }
TEST(Bpe, EncodesEachUnknownCharacter) { expect_definition(false, true, false, false); }
TEST(Bpe, FusesUnknownCharacters) { expect_definition(false, true, true, false); }
TEST(Bpe, MergesTheUnknownToken) { expect_definition(false, true, true, true); }
TEST(Bpe, DropsUnknownCharacters) { expect_definition(false, false, false, false); }

TEST(Bpe, EncodesByteLevelTextsOfAnyLength) {
  std::mt19937 random(8);
  BpeOptions options;
  options.byte_level = true;
  const std::vector<std::string> bytes = {"a", "b", " ", "\xC3", "\xA9", "\xFF"};
  for (int round = 0; round < 25; ++round) {
    const Vocabulary vocabulary = random_vocabulary(random, bytes, 1 + random() % 60);
    const BpeModel model(Tokens(vocabulary.ids.begin(), vocabulary.ids.end()), vocabulary.merges, options, "test");
    for (const size_t most : {4, 12, 30, 190, 200, 1000}) {
      const std::string text = random_text(random, bytes, most);
      std::vector<int32_t> start, ids;
      for (const char c : text) start.push_back(vocabulary.ids.at(std::string(1, c)));
      model.encode(text, ids);
      ASSERT_EQ(ids, merged(vocabulary, start)) << text;
    }
  }
}

}  // namespace
}  // namespace ingot::text

// Malicious tokenizer files whose output or running time grows without bound for a short text.
#include "text/growth.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/text/golden.h"
#include "text/charsmap.h"
#include "text/tokenizer.h"

namespace ingot::text {
namespace {

using nlohmann::ordered_json;

ordered_json document() {
  return {{"added_tokens", ordered_json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {" ", 1}}}, {"merges", ordered_json::array()}}}};
}

ordered_json sequence(const char* list, const ordered_json& step, size_t count) {
  return {{"type", "Sequence"}, {list, std::vector<ordered_json>(count, step)}};
}

std::unique_ptr<Tokenizer> read(const ordered_json& json) { return Tokenizer::from_json(json.dump(), "test.json"); }

void expect_refused(const std::function<void()>& call, ErrorKind kind, const char* words) {
  const Error error = error_of(call);
  EXPECT_EQ(error.kind(), kind) << error.message();
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

const ordered_json replace_a = {
    {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
constexpr const char* too_much = "the tokenizer produces more than";

TEST(Growth, NormalizersAreBounded) {
  ordered_json json = document();
  json["normalizer"] = sequence("normalizers", replace_a, 4);
  const auto literal = read(json);
  EXPECT_EQ(literal->encode("  ").size(), 2U);
  expect_refused([&] { literal->encode("a"); }, ErrorKind::unsupported, too_much);
  ordered_json by_pattern = replace_a;
  by_pattern["pattern"] = {{"Regex", "a"}};
  json["normalizer"] = sequence("normalizers", by_pattern, 4);
  const auto pattern = read(json);
  expect_refused([&] { pattern->encode("a"); }, ErrorKind::unsupported, too_much);
  json["normalizer"] = sequence("normalizers", {{"type", "Prepend"}, {"prepend", std::string(1000, ' ')}}, 100);
  const auto prepend = read(json);
  expect_refused([&] { prepend->encode("a"); }, ErrorKind::unsupported, too_much);
}

// The largest expansion in Unicode itself: U+FDFA in compatibility form, with its spaces escaped.
TEST(Growth, UnicodesLargestExpansionIsAllowed) {
  ordered_json json = document();
  const ordered_json escape = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, escape}}};
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "\ufdfa";
  EXPECT_NO_THROW(read(json)->encode(text));
}

TEST(Growth, AddedTokensAndDecodersAreBounded) {
  ordered_json json = document();
  json["normalizer"] = sequence("normalizers", replace_a, 4);
  json["added_tokens"].push_back({{"id", 0}, {"content", "a"}, {"normalized", true}});
  expect_refused([&] { read(json); }, ErrorKind::unsupported, too_much);
  json = document();
  ordered_json decoders = sequence("decoders", replace_a, 4);
  decoders["decoders"].push_back({{"type", "Fuse"}});
  json["decoder"] = decoders;
  expect_refused([&] { read(json); }, ErrorKind::unsupported, too_much);
}

TEST(Growth, PreTokenizersAreBounded) {
  ordered_json json = document();
  const auto mark = [](const char* replacement) {
    return ordered_json{
        {"type", "Metaspace"}, {"replacement", replacement}, {"prepend_scheme", "always"}, {"split", false}};
  };
  json["pre_tokenizer"] = mark("\u2581\u2581");
  expect_refused([&] { read(json); }, ErrorKind::corrupt, "not one character");
  ordered_json steps = ordered_json::array();
  for (int i = 0; i < 49; ++i) {
    steps.push_back(mark("\u2581"));
    steps.push_back(mark("\u2582"));
  }
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  EXPECT_NO_THROW(read(json)->encode(std::string(100'000, 'a')));  // each step's output is freed after the next one
  const ordered_json each = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolated"}};
  steps.insert(steps.begin(), each);
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  const auto many = read(json);
  expect_refused([&] { many->encode(std::string(100'000, 'a')); }, ErrorKind::unsupported, too_much);
}

// A text between added tokens is processed in parts, which share one limit.
TEST(Growth, PartsShareTheLimit) {
  ordered_json json = document();
  json["added_tokens"].push_back({{"id", 1}, {"content", " "}, {"normalized", false}});
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "a ";
  json["normalizer"] = replace_a;  // expands "a" a thousandfold, which is allowed for a single part
  expect_refused([&] { read(json)->encode(text); }, ErrorKind::unsupported, too_much);
  EXPECT_EQ(read(json)->encode("a a").size(), 2001U);
  // Text that a later step removes counts, too.
  const ordered_json drop = {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", ""}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {replace_a, drop}}};
  expect_refused([&] { read(json)->encode(text); }, ErrorKind::unsupported, too_much);
  EXPECT_EQ(read(json)->encode("a a").size(), 1U);
  json["normalizer"] = nullptr;
  ordered_json steps = ordered_json::array();
  for (int i = 0; i < 20; ++i) {
    steps.push_back({{"type", "Metaspace"}, {"replacement", i % 2 == 0 ? "\u2581" : "\u2582"}, {"split", false}});
  }
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  expect_refused([&] { read(json)->encode(text); }, ErrorKind::unsupported, too_much);
  EXPECT_NO_THROW(read(json)->encode("a a"));
}

TEST(Growth, StepsAreBounded) {
  ordered_json json = document();
  json["normalizer"] = sequence("normalizers", {{"type", "NFC"}}, 101);
  expect_refused([&] { read(json); }, ErrorKind::unsupported, "more than 100 steps");
  json["normalizer"] = sequence("normalizers", {{"type", "NFC"}}, 100);
  EXPECT_NO_THROW(read(json));
}

// A trie with the key 'a' and a replacement of `bytes` bytes. With `prefix`, that byte before 'a' leads to the same
// node.
std::string charsmap(size_t bytes, std::optional<uint8_t> prefix = std::nullopt) {
  std::vector<uint32_t> units(512, 0);
  units[0] = 256 << 10;  // children of the root are at 256 ^ byte
  const uint32_t node = 256 ^ 'a';
  units[node] = static_cast<uint32_t>('a') | 1U << 8 | (node ^ 1U) << 10;  // a leaf whose value is in unit 1
  units[1] = 0x80000000U;                                                  // 0: offset of its replacement
  if (prefix) units[256 ^ *prefix] = *prefix | uint32_t{*prefix} << 10;    // its children are at 256 ^ byte, too
  std::string blob(4, '\0');
  const auto size = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(blob.data(), &size, 4);
  blob.append(reinterpret_cast<const char*>(units.data()), size);
  return blob + std::string(bytes, 'b') + std::string(1, '\0');
}

TEST(Growth, CharacterMapsAreBounded) {
  const Charsmap small(charsmap(max_growth), "map");
  GrowthLimit limit(2);
  EXPECT_EQ(small.apply("xa", limit), "x" + std::string(max_growth, 'b'));
  expect_refused([] { Charsmap(charsmap(max_growth + 1), "map"); }, ErrorKind::unsupported, "a key of 1");
  // A node that several keys reach counts with the shortest key.
  for (const uint8_t prefix : {'A', 'z'}) {
    expect_refused([&] { Charsmap(charsmap(max_growth + 1, prefix), "map"); }, ErrorKind::unsupported, "a key of 1");
  }
}

// This is not an overload: a retry does not help.
TEST(Growth, PatternsThatBacktrackTooMuchAreErrors) {
  ordered_json json = document();
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+b"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = read(json);
  expect_refused([&] { tokenizer->encode(std::string(62, 'a') + "cb"); }, ErrorKind::unsupported,
                 "fails on a text of 64 bytes");
}

}  // namespace
}  // namespace ingot::text

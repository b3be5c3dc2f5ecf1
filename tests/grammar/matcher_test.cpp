#include "grammar/matcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "tests/grammar/texts.h"
#include "text/tokenizer.h"

namespace ingot::grammar {
namespace {

const char* const lists = R"=(
  root ::= "[" (value ("," value)*)? "]"
  value ::= root | word | "1" [0-9]{0,2}
  word ::= "\"" [^"\\]* "\""
)=";

// Follows random allowed tokens and compares every mask with a trial of each token.
void follow_masks(const GrammarPtr& grammar, uint32_t seed) {
  const auto tokens = with_tokens(grammar);
  const Vocabulary& vocabulary = tokens->vocabulary();
  std::mt19937 random(seed);
  Matcher matcher(tokens);
  std::string text;
  std::vector<uint32_t> mask(vocabulary.num_words() + 1);
  for (int step = 0; step < 60 && !matcher.finished(); ++step) {
    matcher.fill_mask(mask);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      Matcher one = matcher;
      bool expected = vocabulary.is_end(id) ? one.may_end() : true;
      for (const char c : vocabulary.bytes(id)) expected = expected && one.accept_bytes({&c, 1});
      ASSERT_EQ(in_mask(mask, id), expected) << "token '" << vocabulary.bytes(id) << "' at step " << step;
      ASSERT_EQ(matcher.allows(id), expected) << vocabulary.bytes(id);
      if (expected) allowed.push_back(id);
    }
    ASSERT_FALSE(allowed.empty()) << text;
    EXPECT_EQ(mask.back(), 0U);
    const int32_t next = allowed[random() % allowed.size()];
    text += vocabulary.bytes(next);
    matcher.accept(next);
  }
}

TEST(Matcher, MasksAllowExactlyTheValidTokens) {
  const GrammarPtr grammar = compile_ebnf(lists);
  for (uint32_t seed = 0; seed < 20; ++seed) follow_masks(grammar, seed);
  const GrammarPtr counted = compile_ebnf("root ::= ([a-c]{2,4} | \"ab\" [0-9]*)* \"}\"?");
  for (uint32_t seed = 0; seed < 20; ++seed) follow_masks(counted, seed);
}

TEST(Matcher, MasksOfJsonSchemasAllowExactlyTheValidTokens) {
  for (
      const char* schema : {
          "true",
          R"({"type": "object", "properties": {"ab": {"type": "string", "maxLength": 3}, "x": {"type": "integer"}},
               "required": ["x"], "additionalProperties": {"type": "number", "minimum": 1, "maximum": 12.5}})",
          R"({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 3, "maxProperties": 4})",
          R"({"type": "array", "items": {"enum": ["a", "ab", "abc", 1, 12, 123]}, "uniqueItems": true, "minItems": 5})",
          R"({"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": true, "maxItems": 4})",
          R"({"type": "string", "pattern": "^(ab|c)+$", "minLength": 4})",
          R"({"oneOf": [{"multipleOf": 3, "type": "integer"}, {"multipleOf": 2, "type": "integer"}]})",
          R"({"type": "object", "patternProperties": {"b": {"type": "boolean"}}, "additionalProperties": false})",
          // Forbidden names among allowed ones, where tokens end at the quote or continue after it.
          R"({"type": "object", "properties": {"a": false, "ab": {"type": "string", "maxLength": 2}, "x": false},
               "additionalProperties": {"type": "boolean"}})",
          R"({"anyOf": [{"type": "object", "properties": {"a": false, "ab": {"type": "null"}}},
               {"type": "object", "properties": {"a": {"enum": [1, 12]}, "e": {"type": "null"}}, "minProperties": 2}]})",
          R"({"type": "object", "properties": {"a": {"type": "null"}, "ab": {"enum": ["a", "ab"]}, "abc": {"enum": [1]},
               "x": {"enum": [1]}}, "required": ["ab", "x"], "additionalProperties": false})",
          R"({"type": "object", "properties": {"a": {}, "ab": {}, "x": {}}, "required": ["ab"], "maxProperties": 2})",
      }) {
    SCOPED_TRACE(schema);
    const GrammarPtr grammar = compile_json_schema(schema);
    for (uint32_t seed = 0; seed < 4; ++seed) follow_masks(grammar, seed);
  }
}

// A control token's text is not output text, whether decoding keeps the token or not.
TEST(Matcher, MasksExcludeControlTokens) {
  const auto tokenizer = text::Tokenizer::from_json(
      R"({"added_tokens": [{"id": 1, "content": "aa", "special": true}, {"id": 2, "content": "aaa", "special": false},
            {"id": 3, "content": "aaaa", "special": false}],
          "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})",
      "control", {.additional = {"aaa"}});
  ASSERT_FALSE(tokenizer->is_special(2));
  const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, std::vector<int32_t>{});
  Matcher matcher(std::make_shared<const TokenGrammar>(compile_regex("a+"), vocabulary));
  std::vector<uint32_t> mask(vocabulary->num_words());
  matcher.fill_mask(mask);
  EXPECT_EQ(mask[0], 0b1001U);
}

// Grammars share a vocabulary's cached walks, and outputs share a grammar's states.
TEST(Matcher, MasksAreTheSameInManyThreads) {
  const auto run = [](const std::shared_ptr<const TokenGrammar>& tokens) {
    Matcher matcher(tokens);
    std::vector<std::vector<uint32_t>> masks;
    for (const char c : std::string_view(R"({"ab": "xyz", "n": 12})")) {
      masks.emplace_back(small_vocabulary()->num_words());
      matcher.fill_mask(masks.back());
      matcher.accept(c);
    }
    return masks;
  };
  const auto alone = run(with_tokens(any_json()));
  const auto shared = with_tokens(any_json());
  std::vector<std::vector<std::vector<uint32_t>>> results(4);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < results.size(); ++i) {
      threads.emplace_back([&, i] { results[i] = run(i < 2 ? shared : with_tokens(any_json())); });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, alone);
}

TEST(Matcher, AGrammarBeyondItsLimitsFailsAlone) {
  const auto tokens = with_tokens(compile_ebnf("root ::= ([ab]* \"a\" [ab]{60} | [ab]* \"b\" [ab]{61})* \"c\""),
                                  {.terms = 4000, .rows = 1000});
  Matcher matcher(tokens);
  std::mt19937 random(1);
  const auto exhaust = [&] {
    for (int i = 0; i < 200'000; ++i) matcher.accept(random() % 2 == 0 ? 'a' : 'b');
  };
  try {
    exhaust();
    FAIL() << "no limit was reached";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
  }
  const size_t full = tokens->bytes();
  Matcher next(tokens);  // a new matcher starts with fresh limits
  next.accept('a');
  EXPECT_EQ(next.accepted(), 1);
  EXPECT_LT(tokens->bytes(), full / 4);
}

// Strings that must differ need a state for each list of them: together, outputs exceed a grammar's limits.
TEST(Matcher, OutputsOfOneGrammarDoNotExhaustEachOther) {
  constexpr StateLimits limits = {.terms = 20'000, .rows = 5000};
  constexpr size_t num_outputs = 20;
  const auto tokens = with_tokens(
      compile_json_schema(
          R"({"type": "array", "uniqueItems": true, "minItems": 40, "items": {"type": "string", "maxLength": 6}})",
          {.whitespace = Whitespace::none}),
      limits);
  std::vector<Matcher> matchers(num_outputs, Matcher(tokens));
  const auto text_of = [](size_t i, int item) {
    return fmt::format("{}\"{:03}{:03}\"", item == 0 ? "" : ",", i, item);
  };
  const auto all_accept = [&](const auto& text) {
    for (size_t i = 0; i < matchers.size(); ++i) ASSERT_TRUE(matchers[i].accept_bytes(text(i))) << i;
  };
  std::vector<uint32_t> mask(small_vocabulary()->num_words());
  all_accept([](size_t) { return "["; });
  for (int item = 0; item < 40; ++item) {
    all_accept([&](size_t i) { return text_of(i, item); });
    if (item % 20 == 19) {
      for (const Matcher& matcher : matchers) matcher.fill_mask(mask);
    }
    if (HasFatalFailure()) return;
  }
  for (size_t i = 0; i < matchers.size(); ++i) {
    Matcher& matcher = matchers[i];
    const std::string last = text_of(i, 39);
    ASSERT_TRUE(matcher.allows(']'));
    EXPECT_FALSE(matcher.accept_bytes(last));
    matcher.rollback(1);  // removes the last item
    EXPECT_FALSE(matcher.allows(']'));
    EXPECT_TRUE(matcher.accept_bytes(",\"zz\"]"));
    EXPECT_TRUE(matcher.finished());
  }
}

TEST(Matcher, RollbackRestoresEarlierMasks) {
  Matcher matcher(with_tokens(compile_ebnf(lists)));
  std::vector<uint32_t> before(small_vocabulary()->num_words()), after(before.size());
  matcher.accept('[');
  matcher.fill_mask(before);
  matcher.accept('1');
  matcher.accept(',');
  matcher.accept('[');
  matcher.rollback(3);
  matcher.fill_mask(after);
  EXPECT_EQ(before, after);
  EXPECT_EQ(matcher.accepted(), 1);
  EXPECT_THROW(matcher.rollback(2), Error);
}

TEST(Matcher, EndsOnlyWhenComplete) {
  Matcher matcher(with_tokens(compile_ebnf("root ::= \"ab\" \"c\"?")));
  const int32_t end = small_vocabulary()->size() - 1;
  std::vector<uint32_t> mask(small_vocabulary()->num_words());
  EXPECT_THROW(matcher.accept(end), Error);
  matcher.accept('a');
  EXPECT_FALSE(matcher.may_end());
  matcher.accept('b');
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(matcher.finished());
  matcher.fill_mask(mask);
  EXPECT_TRUE(in_mask(mask, end));
  EXPECT_TRUE(in_mask(mask, 'c'));
  matcher.accept(end);
  EXPECT_TRUE(matcher.finished());
  matcher.fill_mask(mask);
  EXPECT_EQ(mask, std::vector<uint32_t>(mask.size()));
  matcher.rollback(1);
  matcher.accept('c');
  EXPECT_TRUE(matcher.finished());
}

TEST(Matcher, RejectsAForbiddenToken) {
  Matcher matcher(with_tokens(compile_ebnf("root ::= \"a\"")));
  EXPECT_THROW(matcher.accept('b'), Error);
  EXPECT_THROW(matcher.accept(-1), Error);
  EXPECT_EQ(matcher.accepted(), 0);
  matcher.accept('a');
  EXPECT_TRUE(matcher.finished());
}

}  // namespace
}  // namespace ingot::grammar

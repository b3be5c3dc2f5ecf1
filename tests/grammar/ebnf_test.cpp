#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

TEST(Ebnf, ParsesLiteralsClassesAndQuantifiers) {
  const GrammarPtr grammar = compile_ebnf("root ::= \"a\"+ [0-9]{2,3} (\"x\" | \"yz\")? [^a-z\\n]*  # a comment\n");
  for (const char* text : {"a12", "aaa123", "a12x", "a12yz", "a12AB \xC3\xA9", "a123yz--"})
    EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* text : {"", "12", "a1", "a12y", "a12xx", "a12\n", "a12\xC3", "a12b"})
    EXPECT_FALSE(accepts(grammar, text)) << text;
}

TEST(Ebnf, ParsesRecursiveRulesAndLineEnds) {
  const GrammarPtr grammar = compile_ebnf(R"=(
    # arithmetic
    root  ::= term (ws [-+] ws term)*
    term  ::= "(" root ")" |
              number
    number ::= [0-9]+ (
      "." [0-9]+
    )?
    ws ::= " "?
  )=");
  for (const char* text : {"1", "1+2", "(1 - 2.5)+3", "((((7))))"}) EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* text : {"", "(", "1+", "(1", "1)", "1.", "()"}) EXPECT_FALSE(accepts(grammar, text)) << text;
}

TEST(Ebnf, ParsesCharacterEscapes) {
  const GrammarPtr grammar = compile_ebnf(R"(root ::= "\x41\u00e9\U0001F600\n\t\"\\" [\]\-\\])");
  EXPECT_TRUE(accepts(grammar, "A\xC3\xA9\xF0\x9F\x98\x80\n\t\"\\]"));
  EXPECT_TRUE(accepts(grammar, "A\xC3\xA9\xF0\x9F\x98\x80\n\t\"\\-"));
  EXPECT_FALSE(accepts(grammar, "A\xC3\xA9\xF0\x9F\x98\x80\n\t\"\\x"));
}

// Rules are inlined in counted repeats as long as that gives few terms.
TEST(Ebnf, CountedRepeatsOfLongRulesStaySmall) {
  const std::string word(900, 'x');
  std::string repeats;
  for (int i = 0; i < 450; ++i) repeats += fmt::format(" (w \"{}\"){{2}}", i);
  const auto begins = [](const std::string& rules, const std::string& text) {
    Matcher matcher(with_tokens(compile_ebnf(rules)));
    return matcher.accept_bytes(text);
  };
  const std::string rules = "root ::=" + repeats + "\nw ::= \"" + word + "\"";
  EXPECT_TRUE(begins(rules, word + "0" + word + "0" + word + "1"));
  EXPECT_FALSE(begins(rules, word + "0" + word + "0" + word + "0"));
  EXPECT_FALSE(begins(rules, word + "0" + word + "1"));
  // Inlining would repeat the terms before the repeat, which here would be too many.
  const std::string front(150'000, 'y');
  EXPECT_TRUE(begins("root ::= \"" + front + "\" (w \"0\"){2}\nw ::= [ab] | \"cd\"", "yyy"));
}

TEST(Ebnf, UnsupportedSyntaxIsNamed) {
  const auto error = [](const char* text) {
    try {
      compile_ebnf(text);
    } catch (const Error& thrown) {
      return std::string(name(thrown.kind())) + ": " + thrown.message();
    }
    return std::string("none");
  };
  EXPECT_EQ(error("a ::= \"x\""), "usage: the grammar has no rule root");
  EXPECT_EQ(error("root ::= b"), "usage: the grammar uses the rule b but does not define it");
  EXPECT_EQ(error("root ::= list\nlist ::= list \",\" \"x\" | \"x\""),
            "unsupported: the rule list is left-recursive: it begins with itself");
  EXPECT_EQ(error("root ::= \"\" x\nx ::= [a]? root"),
            "unsupported: the rule root is left-recursive: it begins with itself");
  EXPECT_EQ(error("root ::= <think>"), "unsupported: the grammar has a token <...>; only characters are supported");
  EXPECT_EQ(error("root ::= \"a\n"), "usage: grammar line 2: a literal or a class is not closed");
  EXPECT_EQ(error("root ::= (\"a\""), "usage: grammar line 1: an unmatched (");
  EXPECT_EQ(error("root ::= \"a\"\nroot ::= \"b\""), "usage: grammar line 2: the rule root is defined twice");
  EXPECT_EQ(error("root ::= \"(\" root \")\""), "usage: the grammar matches no text");
  EXPECT_EQ(error("root ::= \"a\"{3,2}"), "usage: grammar line 1: a {m,n} with n below m");
}

}  // namespace
}  // namespace ingot::grammar

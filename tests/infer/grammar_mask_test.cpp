#include "infer/grammar_mask.h"

#include <gtest/gtest.h>

namespace ingot::infer {
namespace {

TEST(GrammarMask, FollowsTheMatcher) {
  const auto vocabulary = std::make_shared<const grammar::Vocabulary>(std::vector<std::string>{"a", "b", "ab", "c", ""},
                                                                      std::vector<int32_t>{4});
  GrammarMask mask(
      std::make_shared<const grammar::TokenGrammar>(grammar::compile_ebnf("root ::= \"ab\" \"c\"?"), vocabulary));
  std::vector<uint32_t> bits(1);
  mask.fill(bits);
  EXPECT_EQ(bits[0], 0b00101U);
  mask.accept(2);
  mask.fill(bits);
  EXPECT_EQ(bits[0], 0b11000U);  // c, or the end token
  EXPECT_FALSE(mask.finished());
  mask.accept(3);
  EXPECT_TRUE(mask.finished());
  mask.rollback(2);
  mask.accept(0);
  mask.fill(bits);
  EXPECT_EQ(bits[0], 0b00010U);
}

}  // namespace
}  // namespace ingot::infer

// API keys: the key file, lookup, rates and concurrency.
#include "server/keys.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::server {
namespace {

constexpr const char* secret = "correct-horse-battery";

TEST(Keys, ReadsPlainAndHashedKeys) {
  const std::vector<ApiKey> keys = parse_keys(
      "# a comment\n\ncorrect-horse-battery alice requests=60 concurrent=2\n"
      "  sha256:9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08\tbob infer\r\n"
      "another-key-of-mine\n",
      "keys");
  ASSERT_EQ(keys.size(), 3U);
  EXPECT_EQ(keys[0].name, "alice");
  EXPECT_EQ(keys[0].requests_per_minute, 60);
  EXPECT_EQ(keys[0].concurrent, 2);
  EXPECT_TRUE(keys[0].admin);
  EXPECT_EQ(keys[1].name, "bob");
  EXPECT_FALSE(keys[1].admin);
  EXPECT_EQ(keys[1].digest, digest_of_key("test"));  // the digest in the file is that of "test"
  EXPECT_EQ(keys[2].name, "key3");
}

TEST(Keys, ErrorsDoNotShowTheKey) {
  for (const char* text :
       {"", "# none\n", "short\n", "sha256:12\n", "sha256:zz\n", "correct-horse-battery a requests=0\n",
        "correct-horse-battery a requests=x\n", "correct-horse-battery a speed=3\n", "correct-horse-battery a b\n"}) {
    try {
      parse_keys(text, "keys");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << text;
      EXPECT_EQ(error.message().find("horse"), std::string::npos) << error.message();
    }
  }
}

TEST(Keys, FindsAKeyByItsSecret) {
  const Keys keys(parse_keys("correct-horse-battery\nanother-key-of-mine\n", "keys"));
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(keys.find(secret), 0);
  EXPECT_EQ(keys.find("another-key-of-mine"), 1);
  EXPECT_EQ(keys.find(""), -1);
  EXPECT_EQ(keys.find("correct-horse-batterz"), -1);
  EXPECT_FALSE(Keys({}).required());
}

TEST(Keys, LimitsRequestsPerMinute) {
  Keys keys(parse_keys("correct-horse-battery a requests=6\n", "keys"));
  double now = 1000;
  for (int i = 0; i < 6; ++i) {
    const Admission admission = keys.enter(0, now);
    EXPECT_EQ(admission.verdict, Admission::Verdict::ok) << i;
    EXPECT_EQ(admission.remaining, 5 - i);
    EXPECT_EQ(admission.limit, 6);
    keys.leave(0);
  }
  const Admission refused = keys.enter(0, now);
  EXPECT_EQ(refused.verdict, Admission::Verdict::too_many_requests);
  EXPECT_DOUBLE_EQ(refused.retry_s, 10);
  EXPECT_DOUBLE_EQ(refused.reset_s, 60);
  now += 10;
  EXPECT_EQ(keys.enter(0, now).verdict, Admission::Verdict::ok);
  EXPECT_EQ(keys.enter(0, now).verdict, Admission::Verdict::too_many_requests);
  now += 1000;  // the bucket holds one minute's requests at most
  for (int i = 0; i < 6; ++i) EXPECT_EQ(keys.enter(0, now).verdict, Admission::Verdict::ok);
  EXPECT_EQ(keys.enter(0, now).verdict, Admission::Verdict::too_many_requests);
}

TEST(Keys, LimitsConcurrentRequests) {
  Keys keys(parse_keys("correct-horse-battery a concurrent=2\nanother-key-of-mine\n", "keys"));
  EXPECT_EQ(keys.enter(0, 0).verdict, Admission::Verdict::ok);
  EXPECT_EQ(keys.enter(0, 0).verdict, Admission::Verdict::ok);
  EXPECT_EQ(keys.enter(0, 0).verdict, Admission::Verdict::too_many_at_once);
  EXPECT_EQ(keys.enter(1, 0).verdict, Admission::Verdict::ok);
  keys.leave(0);
  EXPECT_EQ(keys.enter(0, 0).verdict, Admission::Verdict::ok);
  EXPECT_EQ(keys.enter(-1, 0).verdict, Admission::Verdict::unknown_key);
}

// A key's number identifies its requests and cached prefixes: it is never reused for another key.
TEST(Keys, ReloadedKeysKeepTheirNumbersAndUsage) {
  Keys keys(parse_keys("correct-horse-battery a requests=2\nanother-key-of-mine b\n", "keys"));
  EXPECT_EQ(keys.enter(0, 0).verdict, Admission::Verdict::ok);
  EXPECT_EQ(keys.enter(1, 0).verdict, Admission::Verdict::ok);
  keys.replace(parse_keys("a-third-key-of-mine c\ncorrect-horse-battery a2 requests=2 concurrent=1 infer\n", "keys"));
  EXPECT_EQ(keys.find(secret), 0);
  EXPECT_EQ(keys.find("another-key-of-mine"), -1);
  EXPECT_EQ(keys.find("a-third-key-of-mine"), 2);
  EXPECT_EQ(keys.at(0).name, "a2");
  EXPECT_FALSE(keys.at(0).admin);
  EXPECT_EQ(keys.enter(0, 0).verdict, Admission::Verdict::too_many_at_once);
  keys.leave(0);
  EXPECT_EQ(keys.enter(0, 0).remaining, 0);
  keys.leave(1);  // of a request that started before its key was removed
  keys.replace(parse_keys("another-key-of-mine b\n", "keys"));
  EXPECT_EQ(keys.find("another-key-of-mine"), 1);
  EXPECT_THROW(keys.replace({}), Error);
  EXPECT_THROW(Keys({}).replace(parse_keys("another-key-of-mine b\n", "keys")), Error);
}

}  // namespace
}  // namespace ingot::server

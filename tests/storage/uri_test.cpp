#include "storage/uri.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot {
namespace {

TEST(Uri, ParsesPaths) {
  const Uri plain = parse_uri("models/a b.gguf");
  EXPECT_EQ(plain.scheme, UriScheme::file);
  EXPECT_EQ(plain.path, "models/a b.gguf");
  EXPECT_EQ(plain.file_name, "a b.gguf");
  EXPECT_EQ(parse_uri("file:///tmp/a%20b?c").path, "/tmp/a b?c");
  EXPECT_EQ(parse_uri("file://localhost/x").path, "/x");
  EXPECT_EQ(parse_uri("100%").path, "100%");
}

TEST(Uri, ParsesHttp) {
  const Uri uri = parse_uri("HTTPS://user:word@example.org:8080/a/b%2Ec?sig=secret#top");
  EXPECT_EQ(uri.scheme, UriScheme::https);
  EXPECT_EQ(uri.shown, "https://example.org:8080/a/b%2Ec");
  EXPECT_EQ(uri.file_name, "b.c");
  EXPECT_EQ(parse_uri("http://host").file_name, "");
  EXPECT_EQ(parse_uri("s3://bucket/key").scheme, UriScheme::s3);
}

TEST(Uri, DecodesPercentEscapes) {
  EXPECT_EQ(percent_decoded("a%2Fb%c3%A9%"), "a/b\xC3\xA9%");
  EXPECT_EQ(percent_decoded("%41%4"), "A%4");
  EXPECT_EQ(percent_decoded("%zz%"), "%zz%");
}

TEST(Uri, RejectsInvalidUris) {
  for (const char* bad : {"", "ftp://host/x", "http:///x", "file://other/x", "http://host/a\nb"}) {
    try {
      parse_uri(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
}

}  // namespace
}  // namespace ingot

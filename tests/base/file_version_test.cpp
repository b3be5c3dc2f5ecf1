#include "base/file_version.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/base/error_of.h"

namespace ingot {
namespace {

using nlohmann::json;

constexpr FileFormat always{"list", 3};
constexpr FileFormat later{"log", 2, true};

TEST(FileVersion, VersionsUpToTheNewestAreRead) {
  for (const int version : {1, 2, 3}) {
    EXPECT_NO_THROW(require_known_version("f", version, always));
    EXPECT_NO_THROW(require_known_version("f", json{{"version", version}}, always));
    EXPECT_NO_THROW(require_known_version("f", nlohmann::ordered_json{{"version", version}}, always));
  }
  EXPECT_NO_THROW(require_known_version("f", json::object(), later));
}

TEST(FileVersion, ANewerVersionIsRefusedWithFileAndBothVersions) {
  const auto expect = [](const std::function<void()>& read, const std::string& words) {
    const Error error = error_of(read);
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_EQ(error.message(), words);
    EXPECT_NE(error.hint().find("version of Ingot that wrote it"), std::string::npos);
  };
  expect([] { require_known_version("a/b.json", json{{"version", 4}}, always); },
         "a/b.json: is a list of format version 4; this version of Ingot reads format versions up to 3");
  expect([] { require_known_version("a/b.json", json{{"version", 3}}, later); },
         "a/b.json: is a log of format version 3; this version of Ingot reads format versions up to 2");
  expect([] { require_known_version("f", json{{"version", ~uint64_t{0}}}, always); },
         "f: is a list of format version 9223372036854775807; this version of Ingot reads format versions up to 3");
}

TEST(FileVersion, AnInvalidVersionIsCorrupt) {
  for (const json& version : {json(0), json(-1), json(1.0), json("1"), json(nullptr)}) {
    const Error error = error_of([&] { require_known_version("f", json{{"version", version}}, later); });
    EXPECT_EQ(error.kind(), ErrorKind::corrupt) << version;
    EXPECT_EQ(error.message(), "f: \"version\" is not a whole number of at least 1");
  }
  EXPECT_EQ(error_of([] { require_known_version("f", json::object(), always); }).kind(), ErrorKind::corrupt);
}

}  // namespace
}  // namespace ingot

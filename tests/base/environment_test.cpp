#include "base/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "tests/base/error_of.h"
#include "tests/locations.h"

namespace ingot {
namespace {

TEST(Environment, VariablesAreReadByTheNamesInTheTable) {
  const char* former = environment("COLUMNS");
  const std::string before = former == nullptr ? "" : former;
  ::setenv("COLUMNS", "77", 1);
  EXPECT_STREQ(environment("COLUMNS"), "77");
  ::setenv("COLUMNS", "", 1);
  EXPECT_STREQ(environment("COLUMNS"), "");
  ::unsetenv("COLUMNS");
  EXPECT_EQ(environment("COLUMNS"), nullptr);
  if (former != nullptr) ::setenv("COLUMNS", before.c_str(), 1);
  const Error error = error_of([] { environment("INGOT_COLOUR"); });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_NE(error.message().find("INGOT_COLOUR"), std::string::npos) << error.message();
}

// docs/environment.md lists the same variables as the table.
TEST(Environment, EveryVariableIsDocumented) {
  std::string rows;
  std::string_view last;
  for (const EnvironmentVariable& variable : environment_variables()) {
    EXPECT_LT(last, variable.name);
    last = variable.name;
    rows += "| `" + std::string(variable.name) + "` | " + variable.meaning + " |\n";
  }
  const std::string page = read_file(std::string(source_root) + "/docs/environment.md");
  const size_t begin = page.find("|---|---|\n");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(page.substr(begin + 10), rows);
}

}  // namespace
}  // namespace ingot

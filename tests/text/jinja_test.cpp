// The template language compared with Jinja2, feature by feature.
#include "text/jinja/jinja.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <string>

#include "base/error.h"
#include "tests/text/golden.h"

namespace ingot::text::jinja {
namespace {

using nlohmann::ordered_json;

std::string render(const std::string& source, const ordered_json& variables = ordered_json::object(),
                   const RenderOptions& options = {}) {
  return Template(source, "test.jinja").render(variables, options).text;
}

TEST(Jinja, RendersLikeJinja2) {
  const ordered_json golden = read_golden_json("templates.json");
  for (const auto& feature : golden["features"]) {
    const auto source = feature["source"].get<std::string>();
    try {
      EXPECT_EQ(render(source, golden["feature_variables"]), feature["text"].get<std::string>()) << source;
    } catch (const Error& error) {
      ADD_FAILURE() << source << ": " << error.message();
    }
  }
}

TEST(Jinja, FailsWhereJinja2Fails) {
  const ordered_json golden = read_golden_json("templates.json");
  for (const auto& source : golden["failures"]) {
    const Error error = error_of([&] { render(source.get<std::string>(), golden["feature_variables"]); });
    EXPECT_NE(error.kind(), ErrorKind::internal) << source;
    EXPECT_NE(error.message().find("test.jinja:1: "), std::string::npos) << error.message();
  }
}

TEST(Jinja, ErrorsNameKindAndLine) {
  const auto expect = [](const std::string& source, ErrorKind kind, const std::string& text) {
    const Error error = error_of([&] { render(source); });
    EXPECT_EQ(error.kind(), kind) << source << ": " << error.message();
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  };
  expect("a\nb {% call x() %}{% endcall %}", ErrorKind::unsupported, "test.jinja:2: the statement call");
  expect("{{ 'x' | urlize }}", ErrorKind::unsupported, "the filter urlize");
  expect("{{ 'x' is escaped }}", ErrorKind::unsupported, "the test escaped");
  expect("\n\n{{ raise_exception('roles must alternate') }}", ErrorKind::usage,
         "test.jinja:3: the template says: roles");
  expect("{% if x %}", ErrorKind::corrupt, "endif is missing");
  expect("{{ x }", ErrorKind::corrupt, "unmatched");
  expect("{{ x.y.z }}", ErrorKind::usage, "'x' is undefined");
  expect("{% for a in [] recursive %}{% endfor %}", ErrorKind::unsupported, "a recursive loop");
}

TEST(Jinja, LimitsAreSetByTheCaller) {
  RenderOptions few_steps;
  few_steps.max_steps = 1000;
  const std::string loop = "{% for a in range(2000) %}{% endfor %}";
  EXPECT_EQ(error_of([&] { render(loop, ordered_json::object(), few_steps); }).kind(), ErrorKind::resource);
  EXPECT_EQ(render(loop), "");
  RenderOptions little_output;
  little_output.max_output = 10;
  const std::string text = "{% for i in range(11) %}x{% endfor %}";
  EXPECT_EQ(error_of([&] { render(text, ordered_json::object(), little_output); }).kind(), ErrorKind::resource);
  EXPECT_EQ(error_of([&] { render(text, {}, little_output); }).kind(), ErrorKind::internal)
      << "variables must be an object";
  ordered_json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = ordered_json::array({deep});
  EXPECT_EQ(error_of([&] { render("{{ x }}", {{"x", deep}}); }).kind(), ErrorKind::resource);
}

TEST(Jinja, AppendWorksOnLists) { EXPECT_EQ(render("{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}"), "[1, 2]"); }

TEST(Jinja, CurrentTimeComesFromTheOptions) {
  RenderOptions options;
  options.now = 1721995200;
  const std::time_t now = 1721995200;
  std::tm local{};
  localtime_r(&now, &local);
  char expected[64];
  std::strftime(expected, sizeof(expected), "%d %b %Y %H", &local);
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %H') }}", ordered_json::object(), options), expected);
  EXPECT_EQ(render("{{ strftime_now('') }}", ordered_json::object(), options), "");
}

TEST(Jinja, GenerationBlocksInMacrosAreErrors) {
  const std::string source = "{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}";
  EXPECT_EQ(error_of([&] { render(source); }).kind(), ErrorKind::unsupported);
}

}  // namespace
}  // namespace ingot::text::jinja

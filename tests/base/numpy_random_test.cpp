#include "base/numpy_random.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "base/file.h"
#include "tests/locations.h"

namespace ingot {
namespace {

// The values that `call` ("shuffle:10") draws, formatted as in the golden file.
template <class Generator>
std::vector<std::string> draw(Generator& source, const std::string& call) {
  std::vector<std::string> parts;
  std::istringstream text(call);
  for (std::string part; std::getline(text, part, ':');) parts.push_back(part);
  const std::string& name = parts.at(0);
  if (name == "u32") return {fmt::format("{}", source.next_u32())};
  if (name == "u64") return {fmt::format("{}", source.next_u64())};
  if (name == "interval") return {fmt::format("{}", source.interval(std::stoull(parts.at(1))))};
  std::vector<int64_t> values;
  if (name == "shuffle") {
    values.resize(std::stoul(parts.at(1)));
    std::iota(values.begin(), values.end(), 0);
    source.shuffle(std::span(values));
  }
  if constexpr (std::is_same_v<Generator, NumpyGenerator>) {
    if (name == "random") return {fmt::format("{}", source.random())};
    if (name == "uniform") return {fmt::format("{}", source.uniform(std::stod(parts.at(1)), std::stod(parts.at(2))))};
    if (name == "integers") values = {source.integers(std::stoll(parts.at(1)), std::stoll(parts.at(2)))};
    if (name == "choice") values = source.choice(std::stoll(parts.at(1)), std::stoll(parts.at(2)));
  }
  std::vector<std::string> texts;
  for (const int64_t value : values) texts.push_back(fmt::format("{}", value));
  return texts;
}

template <class Generator>
void compare(Generator source, std::istream& line) {
  std::vector<std::string> calls, drawn, expected;
  for (std::string call; line >> call && call != "=";) calls.push_back(call);
  for (const std::string& call : calls) {
    for (const std::string& value : draw(source, call)) drawn.push_back(value);
  }
  for (std::string value; line >> value;) {
    expected.push_back(value.find("0x") == std::string::npos ? value : fmt::format("{}", std::stod(value)));
  }
  EXPECT_EQ(drawn, expected) << fmt::format("{}", fmt::join(calls, " "));
}

TEST(NumpyRandom, DrawsNumpysValues) {
  std::istringstream file(read_file(std::filesystem::path(test_data) / "base" / "numpy_random.txt"));
  int lines = 0;
  for (std::string text; std::getline(file, text); ++lines) {
    std::istringstream line(text);
    std::string kind;
    uint64_t seed = 0;
    line >> kind >> seed;
    if (kind == "state") {
      compare(NumpyRandomState(static_cast<uint32_t>(seed)), line);
    } else {
      compare(NumpyGenerator(seed), line);
    }
  }
  EXPECT_EQ(lines, 16);
}

// Known values of the generators that Megatron-LM and MosaicML Streaming use.
TEST(NumpyRandom, HasTheKnownAnswers) {
  NumpyRandomState state(1234);
  EXPECT_EQ(state.next_u32(), 822569775U);
  NumpyGenerator generator(9176);
  EXPECT_EQ(generator.next_u64(), 0xce488e5ff4c10304U);
}

}  // namespace
}  // namespace ingot

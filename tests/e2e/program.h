// Runs a command and returns its results; models for the tests.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/base/scratch.h"
#include "tests/e2e/process.h"

namespace ingot::e2e {

using Json = nlohmann::json;

// Standard output as JSON. When it is not one JSON value the test fails and the result is null.
Json json_of(const Result& result);

// A temporary folder for one test, with INGOT_HOME inside it: `home`, from make_home() unless the test has made it.
class Program {
 public:
  // `input` is standard input, empty by default.
  Result run(const std::vector<std::string>& arguments, const std::string& input = "") const;
  // Adds `--json`, expects exit code 0, and returns the JSON object from standard output.
  Json report(std::vector<std::string> arguments) const;
  // Expects `code`, nothing on standard output, and a first line of standard error that begins "ingot: ", with `words`
  // in it.
  void refuses(const std::vector<std::string>& arguments, int code, const std::string& words) const;
  // The same for a line that follows others, such as a server's memory plan.
  void refuses_late(const std::vector<std::string>& arguments, int code, const std::string& words) const;

  std::filesystem::path operator/(const std::string& name) const { return scratch_ / name; }

 private:
  Scratch scratch_;
};

// tests/golden/llama/SHAPE, a tiny random llama without a tokenizer.
std::string llama(const std::string& shape);

// Makes a folder with the weights of llama("a"), a tokenizer of text::ascii_vocabulary, and a ChatML template when
// asked.
std::string make_text_model(const Program& program, bool chat_template);

void write(const std::filesystem::path& path, const std::string& text);
std::string read(const std::filesystem::path& path);
// The events of this type in a run folder.
std::vector<Json> events_of(const std::filesystem::path& run, const std::string& type);

}  // namespace ingot::e2e

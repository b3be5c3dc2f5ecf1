#include "tests/e2e/program.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "checkpoint/vocabulary.h"
#include "tests/locations.h"
#include "tests/text/tiny_vocabulary.h"

namespace ingot::e2e {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  ASSERT_TRUE(file.good()) << path;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json json_of(const Result& result) {
  const Json value = Json::parse(result.output, nullptr, false);
  EXPECT_FALSE(value.is_discarded()) << "not JSON: " << result.output;
  return value.is_discarded() ? Json() : value;
}

Result Program::run(const std::vector<std::string>& arguments, const std::string& input) const {
  const fs::path home = scratch_ / "home";
  if (!fs::exists(fs::symlink_status(home))) make_home(home);
  setenv("INGOT_HOME", home.c_str(), 1);  // child processes inherit it; this process has one thread here
  return ingot(arguments, input);
}

Json Program::report(std::vector<std::string> arguments) const {
  arguments.emplace_back("--json");
  const Result result = run(arguments);
  EXPECT_EQ(result.code, 0) << result.error;
  return json_of(result);
}

namespace {

// `begin`: the offset of the line in standard error.
void expect_refusal(const Result& result, int code, const std::string& words, size_t begin) {
  EXPECT_EQ(result.code, code) << result.error;
  EXPECT_EQ(result.output, "");
  const std::string line = result.error.substr(begin, result.error.find('\n', begin) - begin);
  EXPECT_TRUE(line.starts_with("ingot: ")) << result.error;
  EXPECT_NE(line.find(words), std::string::npos) << "'" << words << "' not found in: " << line;
}

}  // namespace

void Program::refuses(const std::vector<std::string>& arguments, int code, const std::string& words) const {
  const Result result = run(arguments);
  expect_refusal(result, code, words, 0);
}

void Program::refuses_late(const std::vector<std::string>& arguments, int code, const std::string& words) const {
  const Result result = run(arguments);
  expect_refusal(result, code, words, result.error.find("\ningot: ") + 1);
}

std::string llama(const std::string& shape) { return std::string(test_data) + "/llama/" + shape; }

std::string make_text_model(const Program& program, bool chat_template) {
  const fs::path folder = program / "text-model";
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(fs::path(llama("a")) / name, folder / name);
  }
  write(folder / "tokenizer.json", checkpoint::tokenizer_json(text::ascii_vocabulary()));
  Json config = {{"eos_token", "<|im_end|>"}};
  if (chat_template) {
    config["chat_template"] =
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  }
  write(folder / "tokenizer_config.json", config.dump());
  return folder.string();
}

std::vector<Json> events_of(const std::filesystem::path& run, const std::string& type) {
  std::vector<Json> found;
  std::istringstream lines(read(run / "events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json event = Json::parse(line);
    if (event["type"] == type) found.push_back(std::move(event));
  }
  return found;
}

}  // namespace ingot::e2e

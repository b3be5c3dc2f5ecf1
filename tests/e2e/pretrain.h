// A small pretraining run of the executable, in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {

class Pretrain : public testing::Test {
 protected:
  Pretrain() {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += R"({"text": "Document )" + std::to_string(i) + R"( speaks of the number )" + std::to_string(i * i) +
              R"( and of nothing else at all."})" + "\n";
    }
    write(program_ / "train.jsonl", text);
    write(program_ / "recipe.yaml",
          "name: run\nmodel: " + std::string(source_root) +
              "/recipes/models/tiny\ninit: random\ndata: {train: " + (program_ / "train.jsonl").string() +
              ", sequence_length: 64}\noptimizer: {lr: 1e-3}\nsteps: 6\n"
              "batch: {global: 6}\nthreads: 1\n");
  }

  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"pretrain", (program_ / "recipe.yaml").string(), "name=" + name,
                                      "run_dir=" + (program_ / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::filesystem::path run(const std::string& name) const { return program_ / "runs" / name; }
  std::vector<Json> events(const std::string& name, const std::string& type) const {
    return events_of(run(name), type);
  }
  // Loss and gradient norm of each step.
  std::vector<std::pair<double, double>> curve(const std::string& name) const {
    std::vector<std::pair<double, double>> steps;
    for (const Json& e : events(name, "step")) steps.emplace_back(e["loss"], e["grad_norm"]);
    return steps;
  }
  // A folder with the recipe's model in narrow layers and with the first of its tokens, for simulated devices, which
  // are slow.
  std::string narrow_model() const {
    const std::filesystem::path folder = program_ / "narrow-model";
    if (std::filesystem::exists(folder)) return folder.string();
    std::filesystem::copy(std::filesystem::path(source_root) / "recipes/models/tiny", folder);
    constexpr int tokens = 512;
    Json config = Json::parse(read(folder / "config.json"));
    config.update({{"hidden_size", 64}, {"head_dim", 16}, {"intermediate_size", 96}, {"vocab_size", tokens}});
    write(folder / "config.json", config.dump());
    Json tokenizer = Json::parse(read(folder / "tokenizer.json"));
    Json& merges = tokenizer["model"]["merges"];  // in the order of the tokens that they make, which are the last ones
    const Json all = std::exchange(tokenizer["model"]["vocab"], Json::object());
    merges.erase(merges.end() - (std::ssize(all) - tokens), merges.end());
    for (const auto& [token, id] : all.items()) {
      if (id < tokens) tokenizer["model"]["vocab"][token] = id;
    }
    write(folder / "tokenizer.json", tokenizer.dump());
    return folder.string();
  }
  void trains(const std::string& name, const std::vector<std::string>& more = {}) const {
    const Result result = program_.run(command(name, more));
    ASSERT_EQ(result.code, 0) << result.error;
  }

  Program program_;
};

}  // namespace ingot::e2e

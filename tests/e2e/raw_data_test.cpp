// Data in the form of its publishers: C4's .json.gz and MLPerf's GovReport .npy are inspected, tokenized, packed, and
// trained on together.
#include <gtest/gtest.h>

#include <sstream>

#include "formats/compression.h"
#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

class RawData : public testing::Test {
 protected:
  RawData() : model_(make_text_model(program_, false)) {
    // GovReport's token ids are of Llama 2's vocabulary.
    Json config = Json::parse(read(fs::path(model_) / "config.json"));
    config["vocab_size"] = 32000;
    write(fs::path(model_) / "config.json", config.dump());
    Json tokenizer = Json::parse(read(fs::path(model_) / "tokenizer.json"));
    Json& words = tokenizer["model"]["vocab"];
    for (size_t id = words.size(); id < 32000; ++id) words["word " + std::to_string(id)] = id;
    write(fs::path(model_) / "tokenizer.json", tokenizer.dump());
    fs::copy_file(fs::path(test_data) / "formats/npy/govreport.npy", govreport_);
    write(c4(0), member(0, 4) + member(4, 9));
    write(c4(1), member(9, 12));
  }
  std::string c4(int shard) const {
    return (program_ / ("c4-train.0000" + std::to_string(shard) + "-of-01024.json.gz")).string();
  }
  // A gzip member with pages `from` to `to` in C4's form: text with line ends, timestamp, URL.
  static std::string member(int from, int to) {
    std::string lines;
    for (int i = from; i < to; ++i) {
      const Json page = {{"text", "Page " + std::to_string(i) + " of a \"crawl\" \u2014 one line.\nAnd another."},
                         {"timestamp", "2019-04-25T12:57:54Z"},
                         {"url", "https://example.org/" + std::to_string(i) + "/?a=1&b=2"}};
      lines += page.dump() + "\n";
    }
    return formats::compress("gz", std::as_bytes(std::span(lines)));
  }
  std::string recipe(const std::string& data) const {
    const fs::path path = program_ / "recipe.yaml";
    write(path, "name: run\nmodel: " + model_ + "\ninit: random\nsteps: 4\nbatch: {global: 4}\nthreads: 1\nrun_dir: " +
                    (program_ / "runs").string() + "\ndata: {sequence_length: 64, train: " + data + "}\n");
    return path.string();
  }
  std::vector<Json> events(const std::string& name, const std::string& type) const {
    return events_of(program_ / ("runs/" + name), type);
  }
  // The losses of a run on `data`.
  std::vector<double> losses(const std::string& name, const std::string& data) const {
    const Result result = program_.run({"pretrain", recipe(data), "name=" + name, "--quiet"});
    EXPECT_EQ(result.code, 0) << result.error;
    std::vector<double> all;
    for (const Json& event : events(name, "step")) all.push_back(event["loss"]);
    EXPECT_EQ(all.size(), 4U);
    return all;
  }

  Program program_;
  std::string model_, govreport_ = (program_ / "govreport.npy").string();
};

TEST_F(RawData, IsInspectedAndTokenizedWithoutConversion) {
  const Json crawl = program_.report({"data", "inspect", c4(0), "--model", model_});
  EXPECT_EQ(crawl.at("format"), "text");
  EXPECT_EQ(crawl.at("documents"), 9);
  const Json reports = program_.report({"data", "inspect", govreport_, "--model", model_});
  EXPECT_EQ(reports.at("format"), "tokens");
  EXPECT_EQ(reports.at("documents"), 3);
  const std::string prefix = (program_ / "c4").string();
  const Json made =
      program_.report({"data", "tokenize", c4(0), c4(1), "--model", model_, "--output", prefix, "--quiet"});
  EXPECT_EQ(made.at("documents"), 12);
  EXPECT_EQ(program_.report({"data", "inspect", prefix}).at("documents"), 12);
  // A Megatron data set cannot store loss masks; packed data can.
  program_.refuses({"data", "tokenize", govreport_, "--model", model_, "--output", prefix + "2", "--quiet"}, 3,
                   "counts in the loss");
  program_.report({"data", "pack", govreport_, "--model", model_, "--length", "64", "--out",
                   (program_ / "packed").string(), "--quiet"});
  EXPECT_EQ(losses("packed", (program_ / "packed").string()), losses("raw", govreport_));
}

TEST_F(RawData, IsBlendedByWeight) {
  const std::string twice = "[{path: " + c4(0) + ", weight: 2}, " + c4(1) + ", {path: " + govreport_ + ", weight: 1}]";
  const std::string written = "[" + c4(0) + ", " + c4(0) + ", " + c4(1) + ", " + govreport_ + "]";
  losses("twice", twice);
  losses("written", written);
  const Json blended = events("twice", "start").at(0)["data"]["train"],
             listed = events("written", "start").at(0)["data"]["train"];
  EXPECT_EQ(blended["documents"], 9 + 3 + 3);
  EXPECT_EQ(listed["documents"], 9 + 9 + 3 + 3);
  EXPECT_EQ(blended["sequences"], listed["sequences"]);
  const Result eval = program_.run({"pretrain", recipe(c4(0)), "name=held-out", "data.eval=" + govreport_, "--quiet"});
  ASSERT_EQ(eval.code, 0) << eval.error;
  EXPECT_GT(events("held-out", "eval").back()["tokens"], 0);
}

TEST_F(RawData, DamageIsNamedWithFileAndOffset) {
  const std::string first = member(0, 4), second = member(4, 9), third = member(9, 12);
  std::string bent = second;
  for (size_t i = 0; i < 8; ++i) bent[bent.size() / 2 + i] = static_cast<char>(bent[bent.size() / 2 + i] ^ 0x5a);
  // The error's offset lies between these bytes of the file.
  const auto refused = [&](const std::string& bytes, size_t from, size_t to) {
    write(c4(0), bytes);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"pretrain", recipe("[" + c4(1) + ", " + c4(0) + "]"), "--quiet"},
          {"data", "tokenize", c4(1), c4(0), "--model", model_, "--output", (program_ / "out").string(), "--quiet"}}) {
      const Result result = program_.run(command);
      EXPECT_EQ(result.code, 3);
      const std::string words = c4(0) + ": damaged gzip data near byte ";
      const size_t at = result.error.find(words);
      ASSERT_NE(at, std::string::npos) << result.error;
      const size_t place = std::stoul(result.error.substr(at + words.size()));
      EXPECT_GE(place, from) << result.error;
      EXPECT_LE(place, to) << result.error;
    }
  };
  const std::string cut = first + second.substr(0, second.size() - 9);
  refused(cut, cut.size(), cut.size());
  refused(first + bent + third, first.size() + bent.size() / 2, first.size() + bent.size());
  refused(first + "no member" + third, first.size(), first.size() + 9);
  std::string npy = read(govreport_);
  write(govreport_, npy.substr(0, npy.size() - 40));
  const Result half = program_.run({"pretrain", recipe(govreport_), "--quiet"});
  EXPECT_EQ(half.code, 3);
  EXPECT_NE(half.error.find(govreport_), std::string::npos) << half.error;
}

}  // namespace
}  // namespace ingot::e2e

#include "checkpoint/model_source.h"

#include "checkpoint/pull.h"
#include "checkpoint/registry.h"
#include "tests/checkpoint/fixtures.h"

namespace ingot::checkpoint {
namespace {

TEST(ModelSource, ErrorsNameTheMissingFile) {
  const Scratch scratch;
  const fs::path home = scratch.path / "home";
  expect_error(ErrorKind::not_found, {"no-such-model", "no model is registered"},
               [&] { open_model("no-such-model", home); });
  fs::create_directories(scratch.path / "empty");
  expect_error(ErrorKind::not_found, {"empty", "config.json"},
               [&] { open_model((scratch.path / "empty").string(), home); });
  std::ofstream(scratch.path / "empty" / "pytorch_model.bin") << "x";
  expect_error(ErrorKind::unsupported, {"empty", "pickle", "safe_serialization=True"},
               [&] { open_model((scratch.path / "empty").string(), home); });
  std::ofstream(scratch.path / "weights.onnx") << "x";
  expect_error(ErrorKind::unsupported, {"weights.onnx", ".gguf"},
               [&] { open_model((scratch.path / "weights.onnx").string(), home); });
}

TEST(ModelSource, RegisteredNamesAreFound) {
  const Scratch scratch;
  const Registry registry(scratch.path);
  EXPECT_TRUE(registry.list().empty());
  registry.add("tiny", golden("a").string(), golden("a"), {});
  const fs::path own = registry.folder("org/own");
  copy_model("c", own);
  registry.add("org/own", "https://example.org/org/own", {}, {{"config.json", 3, "ab"}});
  const std::vector<RegisteredModel> models = registry.list();
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0].name, "org/own");
  EXPECT_EQ(models[0].path, own);
  EXPECT_EQ(models[0].files.at(0).size, 3U);
  EXPECT_EQ(models[1].name, "tiny");
  const ModelSource tiny = open_model("tiny", scratch.path);
  EXPECT_EQ(tiny.name, "tiny");
  EXPECT_TRUE(fs::equivalent(tiny.path, golden("a")));
  EXPECT_EQ(open_model("org/own", scratch.path).path, own);
  expect_error(ErrorKind::not_found, {"other", "org/own, tiny"}, [&] { open_model("other", scratch.path); });
  for (const char* name : {"", "..", "a/../b", "a/b/c", "-x", "a b"}) {
    expect_error(ErrorKind::usage, {"not a valid model name"}, [&] { registry.folder(name); });
  }
  registry.add("gone", "x", scratch.path / "not-there", {});
  expect_error(ErrorKind::not_found, {"gone", "not-there", "pull"}, [&] { open_model("gone", scratch.path); });
}

// A local path that cannot be examined does not hide a registered name.
TEST(ModelSource, RegisteredNamesWinOverUnreadablePaths) {
  const Scratch scratch;
  const Registry registry(scratch.path / "home");
  registry.add("org/tiny", golden("a").string(), golden("a"), {});
  fs::create_symlink("org", scratch.path / "org");  // a symbolic link to itself
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path);
  EXPECT_EQ(open_model("org/tiny", scratch.path / "home").name, "org/tiny");
  expect_error(ErrorKind::not_found, {"org/other: cannot be examined"},
               [&] { open_model("org/other", scratch.path / "home"); });
  expect_error(ErrorKind::not_found, {"./org/model: cannot be examined"}, [&] { pull("./org/model", {}); });
  // A name of a hub that cannot be reached.
  PullOptions options;
  options.home = scratch.path / "home";
  options.endpoint = "no-scheme";
  expect_error(ErrorKind::not_found, {"no-scheme/api/models/org/model"}, [&] { pull("org/model", options); });
  fs::current_path(before);
}

TEST(HfConfig, ErrorsNameTheKey) {
  const Scratch scratch;
  const fs::path folder = copy_model("b", scratch.path / "m");
  const auto refused = [&](ErrorKind kind, const std::vector<std::string>& words, const auto& edit) {
    copy_model("b", folder);
    edit_json(folder / "config.json", edit);
    expect_error(kind, words, [&] { read_model_spec(open_model(folder.string(), "")); });
  };
  using nlohmann::json;
  refused(ErrorKind::corrupt, {"model_type", "config.json"}, [](json& c) { c.erase("model_type"); });
  refused(ErrorKind::unsupported, {"'falcon'", "llama"}, [](json& c) { c["model_type"] = "falcon"; });
  refused(ErrorKind::unsupported, {"'yarn'"}, [](json& c) { c["rope_scaling"]["rope_type"] = "yarn"; });
  refused(ErrorKind::unsupported, {"'dynamic'"},
          [](json& c) { c["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2}}; });
  refused(ErrorKind::corrupt, {"low_freq_factor"}, [](json& c) { c["rope_scaling"].erase("low_freq_factor"); });
  refused(ErrorKind::unsupported, {"relu"}, [](json& c) { c["hidden_act"] = "relu"; });
  refused(ErrorKind::unsupported, {"'gptq'"}, [](json& c) { c["quantization_config"] = {{"quant_method", "gptq"}}; });
  refused(ErrorKind::corrupt, {"vocab_size"}, [](json& c) { c["vocab_size"] = "many"; });
  refused(ErrorKind::corrupt, {"config.json", "3"}, [](json& c) { c["num_key_value_heads"] = 3; });
  refused(ErrorKind::corrupt, {"contradict"},
          [](json& c) { c["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1000}}; });
  copy_model("b", folder);
  std::ofstream(folder / "config.json") << "{";
  expect_error(ErrorKind::corrupt, {"config.json", "not JSON"},
               [&] { read_model_spec(open_model(folder.string(), "")); });
}

TEST(HfConfig, ReadsTheOldFormOfLinearRopeScaling) {
  const Scratch scratch;
  const fs::path folder = copy_model("b", scratch.path / "m");
  edit_json(folder / "config.json", [](nlohmann::json& c) { c["rope_scaling"] = {{"type", "linear"}, {"factor", 4}}; });
  const spec::ModelSpec model = read_model_spec(open_model(folder.string(), ""));
  EXPECT_EQ(model.layers.front().attention.rope->scaling.kind, spec::RopeScaling::Kind::linear);
  EXPECT_EQ(model.layers.front().attention.rope->scaling.factor, 4);
}

}  // namespace
}  // namespace ingot::checkpoint

#include "checkpoint/inspect.h"

#include "checkpoint/pull.h"
#include "tests/checkpoint/fixtures.h"
#include "tests/locations.h"
#include "tests/storage/s3_server.h"

namespace ingot::checkpoint {
namespace {

std::string hash_of(const fs::path& path) { return model_hash(TensorStore(open_model(path.string(), ""))); }

TEST(ModelHash, DependsOnTheWeightsAndNotOnSharding) {
  const Scratch scratch;
  const fs::path folder = copy_model("b", scratch.path / "m");
  const std::string whole = hash_of(folder);
  EXPECT_EQ(whole, hash_of(golden("b")));
  shard_model(folder, 20000);
  EXPECT_EQ(hash_of(folder), whole);
  const fs::path changed = copy_model("b", scratch.path / "n");
  rewrite_tensors(changed, [](std::vector<EditedTensor>& tensors) { tensors[3].bytes[11] ^= std::byte{1}; });
  EXPECT_NE(hash_of(changed), whole);
  const fs::path renamed = copy_model("b", scratch.path / "o");
  rewrite_tensors(renamed, [](std::vector<EditedTensor>& tensors) { tensors[3].declaration.name += "x"; });
  EXPECT_NE(hash_of(renamed), whole);
}

// The definition, written out for one small file.
TEST(ModelHash, IsOverNameTypeShapeAndBytes) {
  const Scratch scratch;
  const fs::path folder = copy_model("a", scratch.path / "m");
  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    tensors = {{{"b", "F32", {}}, std::vector<std::byte>(4)}, {{"a", "BF16", {1, 2}}, std::vector<std::byte>(4)}};
  });
  const std::string text = std::string("a\0BF16\0001,2\0\0\0\0\0b\0F32\0\0\0\0\0\0", 26);
  EXPECT_EQ(hash_of(folder), sha256_hex(std::as_bytes(std::span(text))));
}

TEST(ReadTensor, DecodesATensorByItsNameInTheFile) {
  const TensorStore hf(open_model(golden("a").string(), ""));
  const TensorValues values = read_tensor(hf, "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(values.shape, (std::vector<int64_t>{96, 64}));
  const formats::SafetensorsFile file(golden("a") / "model.safetensors");
  EXPECT_EQ(values.values, values_of(file.at("model.layers.1.mlp.up_proj.weight")));
  const TensorStore gguf(open_model((fs::path(test_data) / "checkpoint/a.q4_1.gguf").string(), ""));
  EXPECT_EQ(read_tensor(gguf, "blk.1.ffn_up.weight").shape, (std::vector<int64_t>{96, 64}));
  EXPECT_EQ(read_tensor(gguf, "output_norm.weight").values.size(), 64U);
  expect_error(ErrorKind::not_found, {"model.layers.1.mlp.up.weight", "model.layers.1.mlp.up_proj.weight"},
               [&] { read_tensor(hf, "model.layers.1.mlp.up.weight"); });
}

// A hub made of files: the repository's listing, and its files under "resolve".
TEST(Pull, FetchesAHubRepository) {
  const Scratch scratch;
  const fs::path hub = scratch.path / "hub";
  const fs::path files = hub / "org/tiny/resolve/main";
  copy_model("c", files);
  std::ofstream(files / "pytorch_model.bin") << "not wanted";
  const auto size = [&](const char* name) { return fs::file_size(files / name); };
  const std::string digest = sha256_hex(MappedFile(files / "model.safetensors").bytes());
  fs::create_directories(hub / "api/models/org/tiny/tree");
  const auto write_list = [&](const std::string& oid) {
    const nlohmann::json list = {{{"type", "file"}, {"path", "config.json"}, {"size", size("config.json")}},
                                 {{"type", "file"}, {"path", "pytorch_model.bin"}, {"size", 10}},
                                 {{"type", "directory"}, {"path", "onnx"}, {"size", 0}},
                                 {{"type", "file"},
                                  {"path", "model.safetensors"},
                                  {"size", size("model.safetensors")},
                                  {"lfs", {{"oid", oid}, {"size", size("model.safetensors")}}}}};
    std::ofstream(hub / "api/models/org/tiny/tree/main") << list.dump();
  };
  const PullOptions options{.home = scratch.path / "home", .endpoint = "file://" + hub.string()};
  write_list(std::string(64, '0'));
  expect_error(ErrorKind::corrupt, {"model.safetensors"}, [&] { pull("org/tiny", options); });
  EXPECT_TRUE(Registry(options.home).list().empty());
  write_list(digest);
  const RegisteredModel model = pull("org/tiny", options);
  EXPECT_EQ(model.name, "org/tiny");
  ASSERT_EQ(model.files.size(), 2U);
  EXPECT_EQ(model.files[1].sha256, digest);
  EXPECT_FALSE(fs::exists(model.path / "pytorch_model.bin"));
  HostDevice device;
  EXPECT_EQ(load_model(open_model("org/tiny", options.home), {.device = device}).name, "org/tiny");
  expect_error(ErrorKind::not_found, {"tree"}, [&] { pull("org/other", options); });
  expect_error(ErrorKind::not_found, {"nothing-here"}, [&] { pull("nothing-here", options); });
}

TEST(Pull, FetchesAFolderOfAnObjectStore) {
  const Scratch scratch;
  S3Server server;
  server.announce();
  for (const fs::directory_entry& entry : fs::directory_iterator(golden("a"))) {
    if (entry.is_regular_file())
      server.put("models/llama/a/" + entry.path().filename().string(), read_file(entry.path()));
  }
  server.put("models/llama/a/sub/model.safetensors", "of another folder");
  server.put("models/empty/README.md", "no model");
  const PullOptions options{.home = scratch.path};
  const RegisteredModel model = pull("s3://models/llama/a/", options);
  EXPECT_EQ(server.problem(), "");
  EXPECT_EQ(model.name, "a");
  EXPECT_EQ(hash_of(model.path), hash_of(golden("a")));
  EXPECT_FALSE(fs::exists(model.path / "state.safetensors"));
  expect_error(ErrorKind::not_found, {"s3://models/empty", "config.json"}, [&] { pull("s3://models/empty", options); });
  expect_error(ErrorKind::not_found, {"s3://models/x.gguf"}, [&] { pull("s3://models/x.gguf", options); });
}

TEST(Pull, RegistersLocalPathsByReferenceOrCopy) {
  const Scratch scratch;
  const RegisteredModel referred = pull(golden("a").string(), {.home = scratch.path});
  EXPECT_EQ(referred.name, "a");
  EXPECT_TRUE(fs::equivalent(referred.path, golden("a")));
  const RegisteredModel copied = pull(golden("a").string(), {.home = scratch.path, .name = "mine", .copy = true});
  EXPECT_EQ(hash_of(copied.path), hash_of(golden("a")));
  EXPECT_FALSE(fs::equivalent(copied.path, golden("a")));
  EXPECT_FALSE(fs::exists(copied.path / "state.safetensors"));
}

}  // namespace
}  // namespace ingot::checkpoint

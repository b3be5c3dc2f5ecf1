#include "formats/safetensors_set.h"

#include "tests/formats/bytes.h"

namespace ingot::formats {
namespace {

using testing::as_span;
using testing::as_string;
using testing::expect_error;
using testing::Folder;

void write_tensors(const std::filesystem::path& path, const std::vector<std::string>& names) {
  std::vector<TensorDeclaration> tensors;
  for (const std::string& name : names) tensors.push_back({name, "U8", {static_cast<int64_t>(name.size())}});
  SafetensorsWriter writer(path, tensors);
  for (const TensorDeclaration& tensor : writer.layout()) writer.write(tensor.name, as_span(tensor.name));
  writer.finish();
}

const std::string first = "model-00001-of-00002.safetensors";
const std::string second = "model-00002-of-00002.safetensors";

TEST(SafetensorsSet, OpensOneFile) {
  const Folder folder;
  write_tensors(folder / "model.safetensors", {"b", "aa"});
  for (const auto& path : {folder.path(), folder / "model.safetensors"}) {
    const SafetensorsSet set(path);
    ASSERT_EQ(set.entries().size(), 2U);
    EXPECT_EQ(set.entries()[0]->name, "aa");
    EXPECT_EQ(as_string(set.at("b").bytes), "b");
    EXPECT_EQ(set.find("c"), nullptr);
  }
  write_tensors(folder / "adapter_model.safetensors", {"x"});
  EXPECT_EQ(SafetensorsSet(folder.path(), "adapter_model").entries().size(), 1U);
}

TEST(SafetensorsSet, OpensShardsWithAnIndex) {
  const Folder folder;
  write_tensors(folder / first, {"a", "c", "unnamed"});
  write_tensors(folder / second, {"b"});
  const SafetensorsIndex index{3, {{"a", first}, {"b", second}, {"c", first}}};
  write_safetensors_index(folder / "model.safetensors.index.json", index);
  const SafetensorsIndex again = read_safetensors_index(folder / "model.safetensors.index.json");
  EXPECT_EQ(again.total_size, 3U);
  EXPECT_EQ(again.weight_map, index.weight_map);

  SafetensorsSet opened(folder.path());
  const SafetensorsSet set = std::move(opened);
  EXPECT_EQ(set.entries().size(), 3U);
  EXPECT_EQ(set.files().size(), 2U);
  EXPECT_EQ(as_string(set.at("b").bytes), "b");
  expect_error(ErrorKind::not_found, "no tensor 'unnamed'", [&] { set.at("unnamed"); });
}

TEST(SafetensorsSet, MissingShardsAreErrors) {
  const Folder folder;
  expect_error(ErrorKind::not_found, "neither model.safetensors nor", [&] { SafetensorsSet set(folder.path()); });
  write_tensors(folder / first, {"a"});
  write_safetensors_index(folder / "model.safetensors.index.json", {0, {{"a", first}, {"b", second}}});
  expect_error(ErrorKind::not_found, second, [&] { SafetensorsSet set(folder.path()); });
  write_tensors(folder / second, {"other"});
  expect_error(ErrorKind::corrupt, "tensor 'b' should be in " + second, [&] { SafetensorsSet set(folder.path()); });
}

TEST(SafetensorsIndex, IsWrittenLikeTransformers) {
  const Folder folder;
  write_safetensors_index(folder / "i.json", {14, {{"b", second}, {"a\xc3\xa9", first}}});
  EXPECT_EQ(read_file(folder / "i.json"),
            "{\n  \"metadata\": {\n    \"total_size\": 14\n  },\n  \"weight_map\": {\n    \"a\\u00e9\": \"" + first +
                "\",\n    \"b\": \"" + second + "\"\n  }\n}\n");
}

TEST(SafetensorsIndex, RefusesInvalidIndexes) {
  const Folder folder;
  const auto expect_corrupt = [&](const std::string& text, const std::string& part) {
    write_file(folder / "i.json", text);
    expect_error(ErrorKind::corrupt, part, [&] { read_safetensors_index(folder / "i.json"); });
  };
  expect_corrupt("", "not valid UTF-8 JSON");
  expect_corrupt("[]", "not a JSON object");
  expect_corrupt("{}", "no object weight_map");
  expect_corrupt(R"({"weight_map": ["a"]})", "no object weight_map");
  expect_corrupt(R"({"weight_map": {"a": 1}})", "the file of tensor 'a' is not a file in the same folder");
  expect_corrupt(R"({"weight_map": {"a": "../x.safetensors"}})",
                 "the file of tensor 'a' is not a file in the same folder");
  expect_corrupt(R"({"weight_map": {"a": "/x.safetensors"}})",
                 "the file of tensor 'a' is not a file in the same folder");
  expect_corrupt(R"({"weight_map": {"a": ".."}})", "the file of tensor 'a' is not a file in the same folder");
  expect_corrupt(R"({"weight_map": {"a": "x", "a": "y"}})", "duplicate key 'a'");
  expect_corrupt(R"({"weight_map": )" + std::string(100'000, '['), "nested too deep");
}

TEST(Shards, AreFilledGreedilyInOrder) {
  const auto bytes = [](const std::string& name, int64_t size) { return TensorDeclaration{name, "U8", {size}}; };
  const std::vector<TensorDeclaration> tensors = {bytes("a", 4), bytes("b", 6), bytes("big", 11), bytes("c", 1),
                                                  bytes("d", 10)};
  std::vector<std::string> shards;
  for (const auto& shard : split_into_shards(tensors, 10)) {
    std::string names;
    for (const auto& tensor : shard) names += tensor.name + " ";
    shards.push_back(names);
  }
  EXPECT_EQ(shards, (std::vector<std::string>{"big ", "a b ", "c ", "d "}));
  EXPECT_EQ(split_into_shards({}, 10).size(), 1U);
  EXPECT_EQ(safetensors_shard_name(2, 3), "model-00002-of-00003.safetensors");
  EXPECT_EQ(safetensors_shard_name(1, 1), "model.safetensors");
}

}  // namespace
}  // namespace ingot::formats

#include "checkpoint/export.h"

#include "checkpoint/row_codec.h"
#include "checkpoint/text_assets.h"
#include "formats/gguf.h"
#include "tests/checkpoint/fixtures.h"
#include "tests/locations.h"

namespace ingot::checkpoint {
namespace {

LoadedModel load_exported(const fs::path& path, HostDevice& device, DType dtype = DType::f32) {
  return load_model(open_model(path.string(), ""), {.device = device, .storage = {storage_of(dtype)}});
}

void expect_equal(const LoadedModel& a, const LoadedModel& b) {
  ASSERT_EQ(a.weights.parameters.size(), b.weights.parameters.size());
  for (size_t i = 0; i < a.weights.parameters.size(); ++i) {
    EXPECT_EQ(values_of(a.weights.parameters[i]), values_of(b.weights.parameters[i])) << i;
  }
}

// The golden weights are exact in bf16, so f32 and bf16 exports reproduce them.
TEST(ExportHf, ReproducesTheWeights) {
  const Scratch scratch;
  ThreadPool pool(2);
  for (const char* name : {"a", "b", "c"}) {
    HostDevice device(std::string(name) != "c");  // c: the device's memory is not accessible to the host
    HostDevice visible;
    const LoadedModel model = load_exported(golden(name), device);
    for (DType dtype : {DType::f32, DType::bf16}) {
      const fs::path folder = scratch.path / (std::string(name) + ingot::name(dtype));
      const ExportModel what{model.spec, model.weights, device, name, open_model(golden(name).string(), ""), &pool};
      write_hf(folder, what, dtype, dtype == DType::bf16 ? 20000 : default_shard_bytes);
      EXPECT_EQ(fs::exists(folder / "model.safetensors.index.json"), dtype == DType::bf16);
      const LoadedModel back = load_exported(folder, visible);
      EXPECT_EQ(back.spec, model.spec);
      EXPECT_EQ(back.stored_dtype, ingot::name(dtype));
      expect_equal(back, load_exported(golden(name), visible));
      const nlohmann::json config = nlohmann::json::parse(read_file(folder / "config.json"));
      EXPECT_EQ(config.at("torch_dtype"), dtype == DType::f32 ? "float32" : "bfloat16");
      EXPECT_EQ(config.at("architectures"), nlohmann::json::array({"LlamaForCausalLM"}));
      EXPECT_EQ(config.at("eos_token_id"), 2);
      expect_error(ErrorKind::usage, {"already contains a model"}, [&] { write_hf(folder, what, dtype); });
    }
  }
}

TEST(ExportHf, RefusesValuesOutsideF16) {
  const Scratch scratch;
  HostDevice device;
  const LoadedModel model = load_model(open_model(golden("b").string(), ""), {.device = device, .writable = true});
  model.weights.parameters[2].matrix.tensor().as<float>()[7] = 65519.0F;
  const ExportModel what{model.spec, model.weights, device, "b", {}, nullptr};
  write_hf(scratch.path / "largest", what, DType::f16);
  model.weights.parameters[2].matrix.tensor().as<float>()[7] = 65520.0F;
  const std::string tensor = spec::parameters(model.spec)[2].name;
  expect_error(ErrorKind::unsupported, {tensor, "65520", "f16"},
               [&] { write_hf(scratch.path / "beyond", what, DType::f16); });
}

TEST(ExportGguf, ReproducesTheWeights) {
  const Scratch scratch;
  for (const char* name : {"a", "b", "c"}) {
    HostDevice device;
    const LoadedModel model = load_exported(golden(name), device);
    for (StorageType storage : {StorageType::f32, StorageType::bf16}) {
      const fs::path file = scratch.path / (std::string(name) + "-" + ingot::name(storage) + ".gguf");
      write_gguf(file, {model.spec, model.weights, device, name, {}, nullptr}, storage);
      const LoadedModel back = load_exported(file, device);
      EXPECT_EQ(back.spec, model.spec) << file;
      expect_equal(back, model);
    }
  }
}

// Compared with the gguf package's file of the same model: names, types, dimensions and bytes.
TEST(ExportGguf, WritesTheTensorsThatTheGgufPackageWrites) {
  const Scratch scratch;
  HostDevice device;
  const LoadedModel model = load_exported(golden("b"), device);
  write_gguf(scratch.path / "b.gguf", {model.spec, model.weights, device, "b", {}, nullptr}, StorageType::f16);
  const formats::GgufFile ours(scratch.path / "b.gguf");
  const formats::GgufFile expected(fs::path(test_data) / "checkpoint/b.f16.gguf");
  ASSERT_EQ(ours.tensors().size(), expected.tensors().size());
  for (const formats::GgufTensor& tensor : expected.tensors()) {
    const formats::GgufTensor& own = ours.at(tensor.name);
    EXPECT_EQ(own.type, tensor.type) << tensor.name;
    EXPECT_EQ(own.dims, tensor.dims) << tensor.name;
    if (tensor.name == "rope_freqs.weight") continue;  // the package computes it in fp32: compared by value below
    EXPECT_TRUE(std::equal(own.bytes.begin(), own.bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        << tensor.name;
  }
  for (size_t i = 0; i < 4; ++i) {
    float a = 0, b = 0;
    std::memcpy(&a, ours.at("rope_freqs.weight").bytes.data() + 4 * i, 4);
    std::memcpy(&b, expected.at("rope_freqs.weight").bytes.data() + 4 * i, 4);
    EXPECT_FLOAT_EQ(a, b);
  }
  for (const auto& [key, value] : expected.metadata().items()) {
    EXPECT_TRUE(ours.metadata().contains(key)) << key;
    if (key.starts_with("llama.")) EXPECT_EQ(ours.metadata().at(key), value) << key;
  }
}

TEST(ExportGguf, Q8ErrorIsWithinHalfAStep) {
  const Scratch scratch;
  HostDevice device;
  const LoadedModel model = load_exported(golden("a"), device);
  write_gguf(scratch.path / "a.gguf", {model.spec, model.weights, device, "a", {}, nullptr}, StorageType::q8_0);
  const LoadedModel back = load_exported(scratch.path / "a.gguf", device);
  EXPECT_EQ(back.stored_dtype, "q8_0");
  for (size_t i = 0; i < model.weights.parameters.size(); ++i) {
    const std::vector<float> x = values_of(model.weights.parameters[i]);
    const std::vector<float> y = values_of(back.weights.parameters[i]);
    if (!model.weights.parameters[i].matrix) {
      EXPECT_EQ(x, y);
      continue;
    }
    for (size_t block = 0; block < x.size(); block += 32) {
      float largest = 0;
      for (size_t k = block; k < block + 32; ++k) largest = std::max(largest, std::abs(x[k]));
      // Half a step d = largest / 127, plus the rounding of d to f16 (2^-11, times up to 127 steps).
      const float bound = largest / 127 * (0.5F + 127 * 0x1p-11F) * 1.001F;
      for (size_t k = block; k < block + 32; ++k) EXPECT_LE(std::abs(x[k] - y[k]), bound);
    }
  }
}

TEST(ExportGguf, RefusesRowsThatAreNotMultiplesOfTheBlock) {
  const Scratch scratch;
  HostDevice device;
  const LoadedModel model = load_exported(golden("c"), device);
  expect_error(ErrorKind::unsupported, {"mlp.down_proj.weight", "24", "q8_0", "f16"}, [&] {
    write_gguf(scratch.path / "c.gguf", {model.spec, model.weights, device, "c", {}, nullptr}, StorageType::q8_0);
  });
  expect_error(ErrorKind::unsupported, {"q4_1"}, [&] {
    write_gguf(scratch.path / "c.gguf", {model.spec, model.weights, device, "c", {}, nullptr}, StorageType::q4_1);
  });
  EXPECT_TRUE(fs::is_empty(scratch.path));
}

// Folder -> GGUF -> folder preserves the tokenizer and the chat template.
TEST(Export, TokenizersSurviveARoundTrip) {
  const Scratch scratch;
  const fs::path source = copy_model("a", scratch.path / "source");
  edit_json(source / "config.json", [](nlohmann::json& c) { c["vocab_size"] = 131; });
  nlohmann::json tokenizer = nlohmann::json::parse(read_file(fs::path(test_data) / "text/smollm2.tokenizer.json"));
  // The golden model has 131 tokens: keep the byte tokens that fit, and three added tokens.
  nlohmann::json vocab = nlohmann::json::object();
  vocab["<s>"] = 0;
  vocab["<e>"] = 1;
  for (int letter = 'a'; letter <= 'z'; ++letter) vocab[std::string(1, static_cast<char>(letter))] = letter - 'a' + 2;
  vocab["ab"] = 28;
  tokenizer["model"]["vocab"] = vocab;
  tokenizer["model"]["merges"] = {"a b"};
  tokenizer["added_tokens"] = nlohmann::json::array();
  for (const char* token : {"<s>", "<e>"}) {
    tokenizer["added_tokens"].push_back({{"id", vocab[token]}, {"content", token}, {"special", true}});
  }
  std::ofstream(source / "tokenizer.json") << tokenizer.dump();
  std::ofstream(source / "tokenizer_config.json")
      << R"({"bos_token": "<s>", "eos_token": "<e>", "chat_template": "T"})";
  std::ofstream(source / "generation_config.json") << R"({"eos_token_id": [1, 9, 5]})";

  HostDevice device;
  const LoadedModel model = load_exported(source, device);
  const ModelSource text = open_model(source.string(), "");
  write_gguf(scratch.path / "m.gguf", {model.spec, model.weights, device, "m", text, nullptr}, StorageType::f16);
  const ModelSource gguf = open_model((scratch.path / "m.gguf").string(), "");
  write_hf(scratch.path / "back", {model.spec, model.weights, device, "m", gguf, nullptr}, DType::bf16);
  const TextAssets a = load_text(text);
  const TextAssets b = load_text(gguf);
  const TextAssets c = load_text(open_model((scratch.path / "back").string(), ""));
  for (const TextAssets* other : {&b, &c}) {
    EXPECT_EQ(other->tokenizer->encode("zab<e>cd"), a.tokenizer->encode("zab<e>cd"));
    EXPECT_EQ(other->bos, 0);
    EXPECT_EQ(other->eos, (std::vector<int32_t>{1, 5, 9}));
    EXPECT_EQ(other->bos_text, "<s>");
    EXPECT_EQ(other->eos_text, "<e>");
    EXPECT_EQ(other->chat_template, "T");
  }
  EXPECT_EQ(a.tokenizer->encode("zab<e>"), (std::vector<int32_t>{27, 28, 1}));

  // A GGUF file has metadata for three of them.
  std::ofstream(source / "generation_config.json") << R"({"eos_token_id": [9, 5, 7]})";
  expect_error(ErrorKind::unsupported, {"4 stop tokens"}, [&] {
    write_gguf(scratch.path / "n.gguf", {model.spec, model.weights, device, "n", text, nullptr}, StorageType::f16);
  });
}

}  // namespace
}  // namespace ingot::checkpoint

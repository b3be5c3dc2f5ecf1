// GGUF files written by the gguf package (tools/reference/make_checkpoint_golden.py), in llama.cpp's layout.
#include "checkpoint/gguf_config.h"
#include "checkpoint/placement.h"
#include "checkpoint/row_codec.h"
#include "formats/gguf_writer.h"
#include "tests/checkpoint/fixtures.h"
#include "tests/locations.h"

namespace ingot::checkpoint {
namespace {

fs::path gguf_file(const std::string& name) { return fs::path(test_data) / "checkpoint" / (name + ".gguf"); }

LoadedModel load_gguf(const fs::path& path, const LoadOptions& options) {
  return load_model(open_model(path.string(), ""), options);
}

std::string hash_of(const std::vector<float>& values) { return sha256_hex(std::as_bytes(std::span(values))); }

class GgufLoad : public testing::TestWithParam<std::string> {};

TEST_P(GgufLoad, ValuesAndRowOrderAreThePackages) {
  const nlohmann::json expected =
      nlohmann::json::parse(read_file(fs::path(test_data) / "checkpoint/golden.json")).at(GetParam());
  ThreadPool pool(2);
  HostDevice device;
  const LoadedModel model = load_gguf(gguf_file(GetParam()), {.device = device, .pool = &pool});
  EXPECT_EQ(model.spec, [&] {
    spec::ModelSpec wanted = read_model_spec(open_model(golden(GetParam().substr(0, 1)).string(), ""));
    wanted.initializer_range = 0.02;
    return wanted;
  }());
  const auto table = spec::parameters(model.spec);
  EXPECT_EQ(expected.at("values").size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const std::vector<float> values = values_of(model.weights.parameters[i]);
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(values[k], expected.at("first").at(table[i].name).at(k).get<float>());
    EXPECT_EQ(hash_of(values), expected.at("values").at(table[i].name).get<std::string>()) << table[i].name;
  }
}
INSTANTIATE_TEST_SUITE_P(Files, GgufLoad, testing::Values("a.q4_1", "b.f16"),
                         [](const auto& test) { return test.param.substr(0, 1); });

// Only whole rows move, so quantized blocks keep their bytes and decode to the same values.
TEST(GgufLoadAsStored, KeepsBlocksAndMapsTensorsThatNeedNoReordering) {
  HostDevice device;
  const LoadedModel stored = load_gguf(gguf_file("a.q4_1"), {.device = device, .storage = {}});
  EXPECT_EQ(device.num_allocations, 1);
  EXPECT_EQ(stored.weights.owners.size(), 2U);
  EXPECT_EQ(stored.stored_dtype, "q4_1");
  HostDevice other;
  const LoadedModel plain = load_gguf(gguf_file("a.q4_1"), {.device = other});
  const auto table = spec::parameters(stored.spec);
  size_t moved = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    const Weight& weight = stored.weights.parameters[i].matrix;
    if (!weight) continue;
    const bool rotary = table[i].rope_heads > 0;
    EXPECT_EQ(weight.storage, rotary ? StorageType::q8_0 : StorageType::q4_1) << table[i].name;
    if (rotary) moved += static_cast<size_t>(weight.out) * row_bytes(weight.storage, weight.in);
    const std::vector<float> wanted = values_of(plain.weights.parameters[i]);
    std::vector<float> row(static_cast<size_t>(weight.in));
    for (int64_t r = 0; r < weight.out; ++r) {
      decode_row(weight.storage, weight.slice(r, r + 1).data, weight.in, row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), wanted.begin() + r * weight.in)) << table[i].name << " row " << r;
    }
  }
  EXPECT_EQ(stored.copied_bytes, moved);  // rows of q and k are multiples of 64 bytes here
}

TEST(GgufLoadAsStored, DeviceOnlyMemoryGetsTheSameBytes) {
  HostDevice hidden(false);
  HostDevice visible;
  const LoadedModel a = load_gguf(gguf_file("a.q4_1"), {.device = hidden, .storage = {}});
  const LoadedModel b = load_gguf(gguf_file("a.q4_1"), {.device = visible, .storage = {}});
  for (size_t i = 0; i < a.weights.parameters.size(); ++i) {
    const Weight& x = a.weights.parameters[i].matrix;
    const Weight& y = b.weights.parameters[i].matrix;
    if (x) EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<size_t>(x.out) * row_bytes(x.storage, x.in)), 0);
  }
}

TEST(GgufRowOrder, IsTheFormatsExample) {
  const std::vector<int64_t> wanted = {0, 2, 1, 3, 4, 6, 5, 7};
  Placement heads_of_4;
  heads_of_4.order = RowOrder::interleaved;
  heads_of_4.heads = 2;
  Placement parts = heads_of_4;
  parts.order = RowOrder::by_part;
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(memory_row(heads_of_4, 8, row), wanted[static_cast<size_t>(row)]);
    EXPECT_EQ(file_row(heads_of_4, 8, memory_row(heads_of_4, 8, row)), row);
  }
  for (int64_t row = 0; row < 24; ++row) EXPECT_EQ(file_row(parts, 24, memory_row(parts, 24, row)), row);
}

// Copies b.f16.gguf with changed metadata or tensors.
using Edit = std::function<void(std::string& key, formats::GgufValue& value)>;
void rewrite(const fs::path& to, const Edit& edit_value, const std::string& changed_tensor, const std::string& bytes) {
  const formats::GgufFile file(gguf_file("b.f16"));
  formats::GgufMetadata metadata;
  for (const auto& [key, value] : file.metadata().items()) {
    std::string new_key = key;
    formats::GgufValue new_value = value;
    edit_value(new_key, new_value);
    if (!new_key.empty()) metadata.add(new_key, new_value);
  }
  std::vector<formats::GgufDeclaration> declarations;
  for (const auto& tensor : file.tensors()) {
    if (tensor.name != changed_tensor || !bytes.empty())
      declarations.push_back({tensor.name, tensor.type, tensor.dims});
  }
  formats::GgufWriter writer(to, metadata, declarations);
  for (const auto& tensor : file.tensors()) {
    if (tensor.name != changed_tensor) {
      writer.write(tensor.name, tensor.bytes);
    } else if (!bytes.empty()) {
      writer.write(tensor.name, std::as_bytes(std::span(bytes)));
    }
  }
  writer.finish();
}

TEST(GgufConfig, ErrorsNameTheKeyOrTensor) {
  const Scratch scratch;
  const fs::path path = scratch.path / "m.gguf";
  HostDevice device;
  const auto loading = [&] { load_gguf(path, {.device = device}); };
  const auto set = [](const char* wanted, const formats::GgufValue& to) {
    return Edit([wanted, to](std::string& key, formats::GgufValue& value) {
      if (key == wanted) value = to;
    });
  };
  const auto keep = set("", {});
  rewrite(path, set("general.architecture", std::string("falcon")), "", "");
  expect_error(ErrorKind::unsupported, {"'falcon'", "m.gguf", "llama"}, loading);
  rewrite(path, set("llama.rope.dimension_count", uint32_t{4}), "", "");
  expect_error(ErrorKind::unsupported, {"4 of 8"}, loading);
  rewrite(path, set("llama.feed_forward_length", uint32_t{64}), "", "");
  expect_error(ErrorKind::corrupt, {"blk.0.ffn_gate.weight", "[48, 32]", "[64, 32]", "m.gguf"}, loading);
  rewrite(
      path,
      [](std::string& key, formats::GgufValue&) {
        if (key == "llama.block_count") key.clear();
      },
      "", "");
  expect_error(ErrorKind::not_found, {"llama.block_count"}, loading);
  rewrite(path, keep, "blk.1.attn_v.weight", "");
  expect_error(ErrorKind::corrupt, {"blk.1.attn_v.weight", "missing"}, loading);
  rewrite(path, keep, "rope_freqs.weight", std::string(16, '@'));
  expect_error(ErrorKind::unsupported, {"rope_freqs.weight"}, loading);
}

// The RoPE scaling of Llama 3.1 and 3.2: factors 8 and 32, original context 8192.
TEST(GgufConfig, RecoversTheRopeScalingOfPublishedModels) {
  spec::Attention attention;
  attention.head_dim = 128;
  attention.rope->theta = 500000;
  for (double factor : {8.0, 32.0}) {
    attention.rope->scaling = {spec::RopeScaling::Kind::llama3, factor, 1, 4, 8192};
    const std::vector<float> divisors = rope_divisors(attention);
    const std::vector<float> scaled = spec::rope_frequencies(*attention.rope, 128);
    for (size_t i = 0; i < divisors.size(); ++i) {
      const double plain = std::pow(500000.0, -2.0 * static_cast<double>(i) / 128.0);
      EXPECT_FLOAT_EQ(static_cast<float>(plain / static_cast<double>(divisors[i])), scaled[i]) << i;
    }
    EXPECT_EQ(divisors[28], 1.0F);
    EXPECT_EQ(divisors[35], static_cast<float>(factor));
  }
}

}  // namespace
}  // namespace ingot::checkpoint

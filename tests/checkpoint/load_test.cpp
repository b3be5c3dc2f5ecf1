#include "checkpoint/load.h"

#include "checkpoint/row_codec.h"
#include "spec/block_linear.h"
#include "tests/checkpoint/fixtures.h"

namespace ingot::checkpoint {
namespace {

LoadedModel load(const fs::path& path, const LoadOptions& options) {
  return load_model(open_model(path.string(), "/nonexistent"), options);
}

void expect_same_values(const LoadedModel& model, const fs::path& folder) {
  const formats::SafetensorsSet file(folder);
  const auto table = spec::parameters(model.spec);
  ASSERT_EQ(model.weights.parameters.size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const Parameter& parameter = model.weights.parameters[i];
    EXPECT_EQ(values_of(parameter), values_of(file.at(table[i].name))) << table[i].name;
    if (table[i].shape.size() == 2) {
      EXPECT_EQ(parameter.matrix.out, table[i].shape[0]) << table[i].name;
      EXPECT_EQ(parameter.matrix.in, table[i].shape[1]) << table[i].name;
    } else {
      EXPECT_EQ(parameter.vector.dtype, DType::f32) << table[i].name;
    }
  }
}

// The golden weights are exact in bf16, so every type at least as wide represents them exactly.
TEST(Load, HuggingFaceFolderLoadsInEveryType) {
  ThreadPool pool(2);
  for (const char* name : {"a", "b", "c"}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      HostDevice device;
      const LoadedModel model = load(golden(name), {.device = device, .storage = {storage_of(dtype)}, .pool = &pool});
      expect_same_values(model, golden(name));
      EXPECT_EQ(model.stored_dtype, std::string(name) == "b" ? "f32" : "bf16");
      EXPECT_EQ(model.name, name);
      EXPECT_EQ(model.weights.parameters[0].matrix.storage, dtype == DType::f32 ? StorageType::f32 : StorageType::bf16);
    }
  }
}

TEST(Load, ReadsConfigKeysOfTransformers4And5) {
  const spec::ModelSpec a = read_model_spec(open_model(golden("a").string(), ""));
  EXPECT_EQ(a.family, "llama");
  EXPECT_EQ(a.vocab, 131);
  const spec::Attention& attention = a.layers.front().attention;
  EXPECT_EQ(attention.kv_heads, 2);
  EXPECT_EQ(attention.head_dim, 16);
  EXPECT_TRUE(a.tied_head);
  EXPECT_EQ(attention.rope->theta, 10000);
  const spec::ModelSpec b = read_model_spec(open_model(golden("b").string(), ""));
  const spec::LayerSpec& layer = b.layers.front();
  EXPECT_EQ(layer.attention.rope->theta, 1000);
  EXPECT_EQ(layer.attention.rope->scaling.kind, spec::RopeScaling::Kind::llama3);
  EXPECT_EQ(layer.attention.rope->scaling.original_context, 64);
  EXPECT_TRUE(layer.attention.bias && spec::dense_of(layer.mlp).bias);
  EXPECT_EQ(read_model_spec(open_model(golden("c").string(), "")).layers.back().attention.rope->theta, 500000);
}

TEST(Load, WeightsOfTheStoredTypeAreMapped) {
  HostDevice device;
  const LoadedModel model = load(golden("b"), {.device = device, .storage = {StorageType::f32}});
  EXPECT_EQ(device.num_allocations, 0);
  EXPECT_EQ(model.copied_bytes, 0U);
  EXPECT_EQ(model.weights.owners.size(), 1U);
  expect_same_values(model, golden("b"));
}

TEST(Load, ConvertedWeightsTakeOneAllocationOfTheirExactSize) {
  HostDevice device;
  {
    const LoadedModel model = load(golden("b"), {.device = device, .storage = {StorageType::bf16}});
    EXPECT_EQ(device.num_allocations, 1);
    EXPECT_EQ(device.allocated, model.copied_bytes);
    // Vectors stay mapped: only matrices were converted.
    size_t matrices = 0;
    for (const spec::ParamSpec& p : spec::parameters(model.spec)) {
      if (p.shape.size() == 2) matrices += (static_cast<size_t>(p.elements()) * 2 + 63) / 64 * 64;
    }
    EXPECT_EQ(model.copied_bytes, matrices);
  }
  EXPECT_EQ(device.allocated, 0U);
}

TEST(Load, WritableAndDeviceOnlyWeightsAreCopied) {
  HostDevice device;
  const LoadedModel writable = load(golden("b"), {.device = device, .storage = {StorageType::f32}, .writable = true});
  EXPECT_EQ(device.num_allocations, 1);
  EXPECT_EQ(writable.weights.owners.size(), 1U);
  expect_same_values(writable, golden("b"));
  HostDevice hidden(false);
  const LoadedModel moved = load(golden("a"), {.device = hidden, .storage = {StorageType::f32}});
  EXPECT_GT(hidden.copied, 0U);
  expect_same_values(moved, golden("a"));
}

TEST(Load, Fp8AppliesToLinearLayersOfBlocks) {
  HostDevice device;
  const LoadOptions options{.device = device, .storage = {StorageType::bf16, StorageType::fp8_e4m3}};
  const LoadedModel model = load(golden("b"), options);
  const LoadedModel wide = load(golden("b"), {.device = device, .storage = {StorageType::f32}});
  EXPECT_EQ(model.copied_bytes, weight_sizes(open_model(golden("b").string(), ""), options).copied);
  const std::vector<spec::ParamSpec> table = spec::parameters(model.spec);
  for (size_t i = 0; i < table.size(); ++i) {
    const Weight& matrix = model.weights.parameters[i].matrix;
    if (!matrix) continue;
    EXPECT_EQ(matrix.storage, spec::is_block_linear(table[i]) ? StorageType::fp8_e4m3 : StorageType::bf16)
        << table[i].name;
    if (!is_fp8(matrix.storage)) continue;
    std::vector<std::byte> row(row_bytes(StorageType::fp8_e4m3, matrix.in));
    for (int64_t r = 0; r < matrix.out; ++r) {
      const Weight from = wide.weights.parameters[i].matrix.slice(r, r + 1);
      encode_row(StorageType::fp8_e4m3, static_cast<const float*>(from.data), matrix.in, row.data());
      EXPECT_EQ(std::memcmp(matrix.slice(r, r + 1).data, row.data(), row.size()), 0) << table[i].name << " row " << r;
    }
  }
}

TEST(Load, Int4AppliesToLinearLayersOfBlocks) {
  HostDevice device;
  const LoadOptions options{.device = device, .storage = {StorageType::q8_0, StorageType::q4_0}};
  const LoadedModel model = load(golden("a"), options);
  const LoadedModel wide = load(golden("a"), {.device = device, .storage = {StorageType::f32}});
  const std::vector<spec::ParamSpec> table = spec::parameters(model.spec);
  const WeightSizes sizes = weight_sizes(open_model(golden("a").string(), ""), options);
  EXPECT_EQ(model.copied_bytes, sizes.copied);
  size_t matrices = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    const Weight& matrix = model.weights.parameters[i].matrix;
    if (!matrix) continue;
    EXPECT_EQ(matrix.storage, spec::is_block_linear(table[i]) ? StorageType::q4_0 : StorageType::q8_0) << table[i].name;
    // 4 bits per element and 16 per block of 32, or 8 bits and 16.
    const auto blocks = static_cast<size_t>(table[i].elements() / 32);
    matrices += (blocks * (spec::is_block_linear(table[i]) ? 18 : 34) + 63) / 64 * 64;
    std::vector<std::byte> row(row_bytes(matrix.storage, matrix.in));
    for (int64_t r = 0; r < matrix.out; ++r) {
      const Weight from = wide.weights.parameters[i].matrix.slice(r, r + 1);
      encode_row(matrix.storage, static_cast<const float*>(from.data), matrix.in, row.data());
      EXPECT_EQ(std::memcmp(matrix.slice(r, r + 1).data, row.data(), row.size()), 0) << table[i].name << " row " << r;
    }
  }
  size_t vectors = 0;
  for (const spec::ParamSpec& p : table) {
    if (p.shape.size() != 2) vectors += (static_cast<size_t>(p.elements()) * sizeof(float) + 63) / 64 * 64;
  }
  EXPECT_EQ(sizes.copied, matrices + vectors);
}

TEST(Load, ShardsLoadLikeOneFile) {
  const Scratch scratch;
  const fs::path folder = copy_model("b", scratch.path / "m");
  shard_model(folder, 20000);
  EXPECT_TRUE(fs::exists(folder / "model-00002-of-00005.safetensors"));
  HostDevice device;
  const LoadedModel model = load(folder, {.device = device, .storage = {StorageType::f32}});
  EXPECT_EQ(device.num_allocations, 0);
  expect_same_values(model, golden("b"));
}

// The stages of a pipeline together have the whole model, and each allocates its own part alone.
TEST(Load, StagesLoadTheirPartsOnly) {
  for (const char* name : {"a", "b"}) {  // a has a tied embedding, of which the last stage has a copy
    HostDevice whole_device;
    const LoadedModel whole =
        load(golden(name), {.device = whole_device, .storage = {StorageType::bf16}, .writable = true});
    std::vector<int> held(whole.weights.parameters.size());
    size_t bytes = 0;
    for (const int64_t stage : {0, 1}) {
      HostDevice device;
      const LoadOptions options{
          .device = device, .storage = {StorageType::bf16}, .writable = true, .shards = {{.pp = 2, .stage = stage}}};
      const LoadedModel part = load(golden(name), options);
      EXPECT_EQ(part.spec.num_layers(), whole.spec.num_layers());
      EXPECT_EQ(device.allocated, weight_sizes(open_model(golden(name).string(), ""), options).copied);
      bytes += device.allocated;
      ASSERT_EQ(part.weights.parameters.size(), held.size());
      for (size_t i = 0; i < held.size(); ++i) {
        const Parameter &here = part.weights.parameters[i], &there = whole.weights.parameters[i];
        if (!here.matrix && !here.vector) continue;
        ++held[i];
        const bool matrix = static_cast<bool>(here.matrix);
        const size_t size = matrix ? here.matrix.tensor().bytes() : here.vector.bytes();
        EXPECT_EQ(std::memcmp(matrix ? here.matrix.data : here.vector.data,
                              matrix ? there.matrix.data : there.vector.data, size),
                  0)
            << name << " " << i;
      }
    }
    const auto copies = static_cast<size_t>(whole.spec.tied_head ? 1 : 0);
    const size_t embedding = (whole.weights.parameters[0].matrix.tensor().bytes() + 63) / 64 * 64;
    EXPECT_EQ(bytes, whole_device.allocated + copies * embedding);
    for (size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i], i == 0 && copies > 0 ? 2 : 1) << name << " " << i;
  }
}

TEST(Load, ATiedHeadInTheFileIsIgnored) {
  const Scratch scratch;
  const fs::path folder = copy_model("a", scratch.path / "m");
  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    tensors.push_back({{"lm_head.weight", "BF16", {131, 64}}, std::vector<std::byte>(131 * 64 * 2)});
    tensors.push_back({{"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {8}}, std::vector<std::byte>(32)});
  });
  HostDevice device;
  expect_same_values(load(folder, {.device = device}), golden("a"));
}

TEST(Load, RefusesWeightsOfAnotherModel) {
  const Scratch scratch;
  HostDevice device;
  const fs::path folder = copy_model("a", scratch.path / "m");
  const auto loading = [&] { load(folder, {.device = device}); };

  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    tensors.push_back({{"model.layers.0.self_attn.q_proj.bias", "BF16", {64}}, std::vector<std::byte>(128)});
  });
  expect_error(ErrorKind::corrupt, {"model.layers.0.self_attn.q_proj.bias", "BF16 [64]", "model.safetensors"}, loading);

  copy_model("a", folder);
  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    std::erase_if(tensors, [](const EditedTensor& t) { return t.declaration.name == "model.norm.weight"; });
  });
  expect_error(ErrorKind::corrupt, {"model.norm.weight", "[64]", "missing"}, loading);

  copy_model("a", folder);
  edit_json(folder / "config.json", [](nlohmann::json& config) { config["intermediate_size"] = 95; });
  expect_error(ErrorKind::corrupt, {"mlp.gate_proj.weight", "[96, 64]", "[95, 64]", "model.safetensors"}, loading);

  copy_model("a", folder);
  edit_json(folder / "config.json", [](nlohmann::json& config) { config["tie_word_embeddings"] = false; });
  expect_error(ErrorKind::corrupt, {"lm_head.weight", "missing", "tie_word_embeddings"}, loading);
}

TEST(Load, RefusesNormsThatAreNotFinite) {
  const Scratch scratch;
  const fs::path folder = copy_model("a", scratch.path / "m");
  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    for (EditedTensor& tensor : tensors) {
      if (tensor.declaration.name != "model.norm.weight") continue;
      const uint16_t infinity = 0x7f80;
      std::memcpy(tensor.bytes.data() + 2 * 5, &infinity, 2);
    }
  });
  HostDevice device;
  expect_error(ErrorKind::corrupt, {"model.norm.weight", "element 5", "not finite"},
               [&] { load(folder, {.device = device}); });
}

// A NaN in any weight matrix would make every logit NaN.
TEST(Load, RefusesMatricesThatAreNotFinite) {
  const Scratch scratch;
  const fs::path folder = copy_model("a", scratch.path / "m");
  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    for (EditedTensor& tensor : tensors) {
      if (tensor.declaration.name != "model.layers.1.mlp.down_proj.weight") continue;
      const uint16_t nan = 0x7fc1;
      std::memcpy(tensor.bytes.data() + 2 * (3 * 96 + 7), &nan, 2);
    }
  });
  HostDevice device;
  ThreadPool pool(2);
  expect_error(ErrorKind::corrupt, {"model.layers.1.mlp.down_proj.weight", "element 7 of row 3"},
               [&] { load(folder, {.device = device, .storage = {}, .pool = &pool}); });
}

TEST(RowCodec, FindsNonFiniteBlocks) {
  std::vector<float> values(3000, 1.0F);
  EXPECT_EQ(find_non_finite(StorageType::f32, values.data(), 3000), -1);
  values[2999] = -INFINITY;
  values[1030] = NAN;
  EXPECT_EQ(find_non_finite(StorageType::f32, values.data(), 3000), 1030);
  EXPECT_EQ(find_non_finite(StorageType::f32, values.data() + 1, 1029), -1);
  for (StorageType storage : {StorageType::q8_0, StorageType::q4_0, StorageType::q4_1, StorageType::q5_0,
                              StorageType::q5_1, StorageType::q4_k, StorageType::q6_k}) {
    const int64_t n = 3 * block_elements(storage);
    std::vector<std::byte> blocks(row_bytes(storage, n), std::byte{0x11});
    EXPECT_EQ(find_non_finite(storage, blocks.data(), n), -1) << name(storage);
    // Overwrites the scale of block 1; decoding shows where it is.
    for (size_t at = 0; at + 1 < block_bytes(storage); ++at) {
      std::vector<std::byte> bad = blocks;
      bad[block_bytes(storage) + at + 1] = std::byte{0x7c};
      std::vector<float> decoded(static_cast<size_t>(n));
      decode_row(storage, bad.data(), n, decoded.data());
      const bool finite = std::all_of(decoded.begin(), decoded.end(), [](float x) { return std::isfinite(x); });
      EXPECT_EQ(find_non_finite(storage, bad.data(), n), finite ? -1 : block_elements(storage)) << name(storage) << at;
    }
  }
}

TEST(Load, RefusesTypesWithoutKernels) {
  const Scratch scratch;
  const fs::path folder = copy_model("a", scratch.path / "m");
  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    for (EditedTensor& tensor : tensors) {
      if (tensor.declaration.name != "model.layers.1.mlp.up_proj.weight") continue;
      tensor.declaration.dtype = "F8_E4M3";
      tensor.bytes.resize(tensor.bytes.size() / 2);
    }
  });
  HostDevice device;
  expect_error(ErrorKind::unsupported, {"model.layers.1.mlp.up_proj.weight", "F8_E4M3"},
               [&] { load(folder, {.device = device}); });
}

}  // namespace
}  // namespace ingot::checkpoint

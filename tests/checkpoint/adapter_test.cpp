#include "checkpoint/adapter.h"

#include "checkpoint/row_codec.h"
#include "tensor/tolerance.h"
#include "tests/checkpoint/fixtures.h"

namespace ingot::checkpoint {
namespace {

using nlohmann::json;

spec::ModelSpec spec_of(const std::string& name) { return read_model_spec(open_model(golden(name).string(), "")); }

std::vector<float> floats(const Tensor& tensor) { return {tensor.as<float>(), tensor.as<float>() + tensor.elements()}; }

fs::path copy_adapter(const std::string& name, const fs::path& to) {
  fs::create_directories(to);
  fs::copy(golden(name) / "lora", to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  return to;
}

TEST(Adapter, ReadsPeftsFiles) {
  for (const char* name : {"a", "b", "c"}) {
    const AdapterFile adapter = read_adapter(golden(name) / "lora", spec_of(name));
    EXPECT_EQ(adapter.lora.rank, 4);
    EXPECT_EQ(adapter.lora.factor(), std::string(name) == "b" ? 4.0 : 2.0);
    EXPECT_EQ(adapter.modules.size(), 14U);
    const formats::SafetensorsFile file(golden(name) / "lora/adapter_model.safetensors");
    for (const AdapterModule& module : adapter.modules) {
      const std::string base = "base_model.model." + module.param.module;
      EXPECT_EQ(floats(module.a), values_of(file.at(base + ".lora_A.weight")));
      EXPECT_EQ(floats(module.b), values_of(file.at(base + ".lora_B.weight")));
    }
  }
}

TEST(Adapter, WritesPeftsLayout) {
  const Scratch scratch;
  HostDevice device;
  const AdapterFile adapter = read_adapter(golden("b") / "lora", spec_of("b"));
  write_adapter(scratch.path, spec_of("b"), adapter.lora, "models/b", adapter.modules, device);
  EXPECT_EQ(read_file(scratch.path / "adapter_model.safetensors"),
            read_file(golden("b") / "lora/adapter_model.safetensors"));
  const json written = json::parse(read_file(scratch.path / "adapter_config.json"));
  const json expected = json::parse(read_file(golden("b") / "lora/adapter_config.json"));
  for (const auto& [key, value] : written.items()) {
    if (key == "base_model_name_or_path") {
      EXPECT_EQ(value, "models/b");
    } else if (key == "target_modules") {
      EXPECT_TRUE(std::is_sorted(value.begin(), value.end()));
      EXPECT_EQ(value.size(), expected.at(key).size());
    } else {
      EXPECT_EQ(value, expected.at(key)) << key;
    }
  }
  const AdapterFile back = read_adapter(scratch.path, spec_of("b"));
  EXPECT_EQ(back.base_name, "models/b");
  EXPECT_EQ(back.lora.rslora, true);
}

TEST(Adapter, AdapterNameInTensorNamesIsAccepted) {
  const Scratch scratch;
  const fs::path folder = copy_adapter("a", scratch.path);
  fs::rename(folder / "adapter_model.safetensors", folder / "model.safetensors");
  rewrite_tensors(folder, [](std::vector<EditedTensor>& tensors) {
    for (EditedTensor& tensor : tensors) {
      std::string& name = tensor.declaration.name;
      name.insert(name.rfind(".weight"), ".default");
    }
  });
  fs::rename(folder / "model.safetensors", folder / "adapter_model.safetensors");
  EXPECT_EQ(read_adapter(folder, spec_of("a")).modules.size(), 14U);
}

TEST(Adapter, RefusesSettingsItDoesNotApply) {
  const Scratch scratch;
  const spec::ModelSpec model = spec_of("a");
  const auto refused = [&](ErrorKind kind, const std::vector<std::string>& words, const auto& edit) {
    const fs::path folder = copy_adapter("a", scratch.path / "x");
    edit_json(folder / "adapter_config.json", edit);
    expect_error(kind, words, [&] { read_adapter(folder, model); });
  };
  refused(ErrorKind::unsupported, {"IA3"}, [](json& c) { c["peft_type"] = "IA3"; });
  refused(ErrorKind::unsupported, {"lora_bias"}, [](json& c) { c["lora_bias"] = true; });
  refused(ErrorKind::unsupported, {"target_parameters"}, [](json& c) { c["target_parameters"] = {"experts"}; });
  refused(ErrorKind::unsupported, {"layer_replication"}, [](json& c) { c["layer_replication"] = {{0, 1}}; });
  refused(ErrorKind::unsupported, {"trainable_token_indices"}, [](json& c) { c["trainable_token_indices"] = {1}; });
  refused(ErrorKind::unsupported, {"pissa_niter_4"}, [](json& c) { c["init_lora_weights"] = "pissa_niter_4"; });
  refused(ErrorKind::unsupported, {"embed_tokens", "not a linear layer"},
          [](json& c) { c["target_modules"] = {"embed_tokens"}; });
  refused(ErrorKind::corrupt, {"bias 'some'"}, [](json& c) { c["bias"] = "some"; });
  refused(ErrorKind::corrupt, {"target_modules", "does not compile"}, [](json& c) { c["target_modules"] = "(q_proj"; });
  refused(ErrorKind::corrupt, {"rank_pattern", "-1"}, [](json& c) { c["rank_pattern"]["q_proj"] = -1; });
  refused(ErrorKind::corrupt, {"lora_A.weight", "[4, 64]", "[3, 64]"}, [](json& c) { c["r"] = 3; });
  refused(ErrorKind::corrupt, {"q_proj.lora_A.weight", "[4, 64]", "[2, 64]"},
          [](json& c) { c["rank_pattern"]["q_proj"] = 2; });
  refused(ErrorKind::corrupt, {"lora_magnitude_vector", "missing"}, [](json& c) { c["use_dora"] = true; });
  refused(ErrorKind::corrupt, {"down_proj", "target_modules"}, [](json& c) { c["target_modules"] = {"q_proj"}; });
  refused(ErrorKind::corrupt, {"layers.1.", "target_modules"}, [](json& c) { c["layers_to_transform"] = {0}; });
  refused(ErrorKind::corrupt, {"lora_A", "target_modules"}, [](json& c) { c["exclude_modules"] = {"v_proj"}; });
  refused(ErrorKind::corrupt, {"c_attn"}, [](json& c) { c["target_modules"] = {"c_attn"}; });
  refused(ErrorKind::corrupt, {".*_bogus"}, [](json& c) { c["target_modules"] = ".*_bogus"; });
  expect_error(ErrorKind::not_found, {"adapter_config.json"}, [&] { read_adapter(golden("a"), model); });
  expect_error(ErrorKind::corrupt, {"q_proj.lora_A.weight", "[4, 64]", "[4, 32]", "another base"},
               [&] { read_adapter(golden("a") / "lora", spec_of("c")); });
  const fs::path folder = copy_adapter("a", scratch.path / "pickled");
  fs::rename(folder / "adapter_model.safetensors", folder / "adapter_model.bin");
  expect_error(ErrorKind::unsupported, {"pickle"}, [&] { read_adapter(folder, model); });
}

// An adapter folder whose configuration and tensors the test chooses.
struct HandMade {
  json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"target_modules", json::array({"q_proj"})}};
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> tensors;

  // Values that differ between names and between elements.
  void add(const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (int64_t dim : shape) count *= dim;
    std::vector<float> values(static_cast<size_t>(count));
    const auto seed = static_cast<float>(tensors.size() + 1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(seed + static_cast<float>(i));
    tensors["base_model.model." + name] = {std::move(shape), std::move(values)};
  }
  void low_rank(const std::string& module, int64_t rank, int64_t out, int64_t in) {
    add(module + ".lora_A.weight", {rank, in});
    add(module + ".lora_B.weight", {out, rank});
  }
  const std::vector<float>& values(const std::string& name) const {
    return tensors.at("base_model.model." + name).second;
  }

  AdapterFile read(const fs::path& folder, const spec::ModelSpec& model) const {
    fs::create_directories(folder);
    std::ofstream(folder / "adapter_config.json") << config.dump();
    std::vector<formats::TensorDeclaration> declarations;
    for (const auto& [name, tensor] : tensors) declarations.push_back({name, "F32", tensor.first});
    formats::SafetensorsWriter writer(folder / "adapter_model.safetensors", declarations);
    for (const formats::TensorDeclaration& declaration : writer.layout()) {
      writer.write(declaration.name, std::as_bytes(std::span(tensors.at(declaration.name).second)));
    }
    writer.finish();
    return read_adapter(folder, model);
  }
};

constexpr const char* first_q = "model.layers.0.self_attn.q_proj";

std::vector<std::string> modules_of(const AdapterFile& adapter) {
  std::vector<std::string> names;
  for (const AdapterModule& module : adapter.modules) names.push_back(module.param.module);
  return names;
}

TEST(AdapterConfig, PatternsGiveEachLayerItsRankAndFactor) {
  const Scratch scratch;
  HandMade made;  // model "a": hidden size 64, 4 query heads and 2 key/value heads of size 16, MLP size 96, 2 layers
  made.config["target_modules"] = {"q_proj", "k_proj"};
  made.config["rank_pattern"]["layers.1.self_attn.q_proj"] = 3;
  made.config["alpha_pattern"] = {{"k_proj", 10}, {"0.self_attn.q_proj", 6}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
    made.low_rank(prefix + "q_proj", layer == 1 ? 3 : 2, 64, 64);
    made.low_rank(prefix + "k_proj", 2, 32, 64);
  }
  const AdapterFile adapter = made.read(scratch.path / "a", spec_of("a"));
  ASSERT_EQ(adapter.modules.size(), 4U);
  EXPECT_EQ(adapter.modules[0].factor, 3.0F);
  EXPECT_EQ(adapter.modules[1].factor, 5.0F);
  EXPECT_EQ(adapter.modules[2].param.rank, 3);
  EXPECT_FLOAT_EQ(adapter.modules[2].factor, 4.0F / 3);
  EXPECT_EQ(adapter.modules[3].factor, 5.0F);
  EXPECT_FALSE(adapter.replaces_weights());
  made.config["use_rslora"] = true;
  EXPECT_FLOAT_EQ(made.read(scratch.path / "b", spec_of("a")).modules[2].factor, 4.0F / std::sqrt(3.0F));
}

TEST(AdapterConfig, InvalidNumbersAreNamed) {
  const Scratch scratch;
  const spec::ModelSpec model = spec_of("a");
  const fs::path folder = copy_adapter("a", scratch.path / "x");
  const std::string config = read_file(folder / "adapter_config.json");
  const auto refused = [&](const char* key, const json& value, const std::vector<std::string>& words) {
    edit_json(folder / "adapter_config.json", [&](json& edited) { edited[key] = value; });
    expect_error(ErrorKind::corrupt, words, [&] { read_adapter(folder, model); });
    expect_error(ErrorKind::corrupt, words, [&] { inspect_adapter(folder, model); });
    write_file(folder / "adapter_config.json", config);
  };
  refused("lora_alpha", 1e308, {"lora_alpha", "1e+308", "not finite"});
  refused("lora_alpha", 1e40, {"lora_alpha", "not finite"});
  refused("alpha_pattern", {{"q_proj", 1e308}}, {"q_proj", "1e+308", "not finite"});
  refused("r", 1'000'000'000, {"\"r\" is 1000000000", "from 1 to"});
  refused("r", 0, {"\"r\" is 0"});
  refused("r", 2.5, {"\"r\" is not a whole number"});
  refused("r", uint64_t{1} << 63, {"\"r\" is 9223372036854775808"});
  refused("r", 1e300, {"\"r\" is 1e+300"});
  refused("rank_pattern", {{"q_proj", 1e9}}, {"rank_pattern", "q_proj", "from 1 to"});
  refused("target_modules", "(q_proj", {"target_modules", "does not compile"});
  // The expression compiles but exceeds the matching limit. That is an error of the file, not a lack of memory.
  refused("target_modules", "(([a-z0-9._]*)*)*([a-z0-9._]*)*[A-Z]", {"target_modules"});
}

TEST(Adapter, InspectionAgreesWithReading) {
  const AdapterFile read = read_adapter(golden("a") / "lora", spec_of("a"));
  const AdapterFile inspected = inspect_adapter(golden("a") / "lora", spec_of("a"));
  ASSERT_EQ(inspected.modules.size(), read.modules.size());
  for (size_t i = 0; i < read.modules.size(); ++i) {
    EXPECT_EQ(inspected.modules[i].param.module, read.modules[i].param.module);
    EXPECT_EQ(inspected.modules[i].a.shape, read.modules[i].a.shape);
    EXPECT_EQ(inspected.modules[i].factor, read.modules[i].factor);
  }
}

TEST(AdapterConfig, TargetsAreChosenByExpressionLayerAndExclusion) {
  const Scratch scratch;
  HandMade made;
  made.low_rank("model.layers.1.self_attn.q_proj", 2, 64, 64);
  const std::vector<std::string> expected = {"model.layers.1.self_attn.q_proj"};
  const auto read = [&](const char* name) { return modules_of(made.read(scratch.path / name, spec_of("a"))); };
  made.config["target_modules"] = R"(.*\.1\.self_attn\.(q|bogus)_proj)";
  EXPECT_EQ(read("regex"), expected);
  made.config["target_modules"] = {"q_proj"};
  made.config["layers_to_transform"] = 1;
  EXPECT_EQ(read("layer"), expected);
  made.config["layers_pattern"] = "layers";
  EXPECT_EQ(read("pattern"), expected);
  made.config["layers_pattern"] = "h";
  expect_error(ErrorKind::corrupt, {"q_proj"}, [&] { read("otherpattern"); });
  made.config.erase("layers_pattern");
  made.config.erase("layers_to_transform");
  made.config["exclude_modules"] = {"layers.0.self_attn.q_proj"};
  EXPECT_EQ(read("list"), expected);
  made.config["exclude_modules"] = R"(model\.layers\.0\..*)";
  EXPECT_EQ(read("excluded"), expected);
}

// DoRA: W' = m / |V| V with V = W + factor B A, row by row, in double.
TEST(Merge, AppliesDora) {
  const Scratch scratch;
  HostDevice device;
  HandMade made;
  made.config["use_dora"] = true;
  made.config["layers_to_transform"] = {0};
  made.low_rank(first_q, 2, 64, 64);
  made.add(std::string(first_q) + ".lora_magnitude_vector", {64});
  const AdapterFile adapter = made.read(scratch.path / "a", spec_of("a"));
  EXPECT_TRUE(adapter.replaces_weights());
  LoadedModel model = load_model(open_model(golden("a").string(), ""), {.device = device, .writable = true});
  const size_t base = adapter.modules.at(0).param.base;
  const std::vector<float> w = values_of(model.weights.parameters[base]);
  merge_adapter(model.weights, device, adapter, 1, nullptr);
  const std::vector<float> merged = values_of(model.weights.parameters[base]);
  const std::vector<float>& a = made.values(std::string(first_q) + ".lora_A.weight");
  const std::vector<float>& b = made.values(std::string(first_q) + ".lora_B.weight");
  const std::vector<float>& m = made.values(std::string(first_q) + ".lora_magnitude_vector");
  for (size_t o = 0; o < 64; ++o) {
    std::vector<double> v(64);
    double norm = 0;
    for (size_t i = 0; i < 64; ++i) {
      v[i] = static_cast<double>(w[o * 64 + i]);
      for (size_t r = 0; r < 2; ++r)
        v[i] += 2.0 * static_cast<double>(b[o * 2 + r]) * static_cast<double>(a[r * 64 + i]);
      norm += v[i] * v[i];
    }
    norm = std::sqrt(norm);
    const double magnitude = static_cast<double>(m[o]);
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_NEAR(static_cast<double>(merged[o * 64 + i]), magnitude * v[i] / norm,
                  tolerance(DType::f32, 64) * std::abs(magnitude));
    }
  }
  expect_error(ErrorKind::usage, {"unmerged"}, [&] { merge_adapter(model.weights, device, adapter, -1, nullptr); });
}

// modules_to_save and trained biases replace tensors of the base, under PEFT's old and new names.
TEST(Merge, ReplacesSavedModulesAndBiases) {
  const Scratch scratch;
  HostDevice device;
  const spec::ModelSpec spec = spec_of("b");  // model "b": hidden size 32, vocabulary 41, biases, untied head
  HandMade made;
  made.config["modules_to_save"] = {"lm_head", "input_layernorm"};
  made.config["bias"] = "lora_only";
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    made.low_rank(prefix + "self_attn.q_proj", 2, 32, 32);
    made.add(prefix + "self_attn.q_proj.base_layer.bias", {32});
    made.add(prefix + "input_layernorm.modules_to_save.default.weight", {32});
  }
  made.add("lm_head.weight", {41, 32});
  const AdapterFile adapter = made.read(scratch.path / "a", spec);
  EXPECT_EQ(adapter.saved.size(), 5U);
  LoadedModel model = load_model(open_model(golden("b").string(), ""), {.device = device, .writable = true});
  merge_adapter(model.weights, device, adapter, 1, nullptr);
  const auto table = spec::parameters(spec);
  size_t seen = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    std::string name = table[i].name;
    if (name == "model.layers.1.self_attn.q_proj.bias") name = "model.layers.1.self_attn.q_proj.base_layer.bias";
    if (name == "model.layers.0.input_layernorm.weight")
      name = "model.layers.0.input_layernorm.modules_to_save.default.weight";
    if (!made.tensors.contains("base_model.model." + name)) continue;
    EXPECT_EQ(values_of(model.weights.parameters[i]), made.values(name)) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 3U);
  made.config["modules_to_save"] = {"lm_head"};
  expect_error(ErrorKind::corrupt, {"input_layernorm", "modules_to_save"},
               [&] { made.read(scratch.path / "b", spec); });

  HandMade tied;
  tied.config["layers_to_transform"] = {0};
  tied.config["modules_to_save"] = {"embed_tokens"};
  tied.low_rank(first_q, 2, 64, 64);
  tied.add("model.embed_tokens.weight", {131, 64});
  expect_error(ErrorKind::unsupported, {"embed_tokens", "embedding"},
               [&] { tied.read(scratch.path / "c", spec_of("a")); });
}

// Another program overwrites the file in place: the adapter in memory does not change. A truncated file is named.
TEST(Adapter, LoadedAdaptersDoNotDependOnTheFile) {
  const Scratch scratch;
  const spec::ModelSpec model = spec_of("a");
  const fs::path folder = copy_adapter("a", scratch.path), file = folder / "adapter_model.safetensors";
  const AdapterFile before = read_adapter(golden("a") / "lora", model), adapter = read_adapter(folder, model);
  const uintmax_t whole = fs::file_size(file);
  fs::resize_file(file, 0);
  for (size_t i = 0; i < adapter.modules.size(); ++i) {
    EXPECT_EQ(floats(adapter.modules[i].a), floats(before.modules[i].a));
    EXPECT_EQ(floats(adapter.modules[i].b), floats(before.modules[i].b));
  }
  for (const uintmax_t bytes : {uintmax_t{0}, uintmax_t{7}, whole / 2, whole - 1}) {
    fs::copy_file(golden("a") / "lora/adapter_model.safetensors", file, fs::copy_options::overwrite_existing);
    fs::resize_file(file, bytes);
    expect_error(ErrorKind::corrupt, {file.string()}, [&] { read_adapter(folder, model); });
  }
  fs::resize_file(file, whole);
  expect_error(ErrorKind::resource, {file.string(), std::to_string(whole - 1)},
               [&] { read_adapter(folder, model, whole - 1); });
}

TEST(Adapter, RefusesNonFiniteValues) {
  const Scratch scratch;
  HandMade made;
  made.config["layers_to_transform"] = {0};
  made.low_rank(first_q, 2, 64, 64);
  made.tensors.at(std::string("base_model.model.") + first_q + ".lora_B.weight").second[9] = NAN;
  expect_error(ErrorKind::corrupt, {"lora_B", "element 9", "not finite"},
               [&] { made.read(scratch.path / "a", spec_of("a")); });
}

// Compared with the product in double, element by element.
TEST(Merge, MergesAndUnmerges) {
  ThreadPool pool(2);
  for (const char* name : {"a", "b"}) {
    HostDevice device;
    const AdapterFile adapter = read_adapter(golden(name) / "lora", spec_of(name));
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      LoadedModel model = load_model(open_model(golden(name).string(), ""),
                                     {.device = device, .storage = {storage_of(dtype)}, .writable = true});
      const LoadedModel before = load_model(open_model(golden(name).string(), ""), {.device = device});
      merge_adapter(model.weights, device, adapter, +1, &pool);
      for (const AdapterModule& module : adapter.modules) {
        const std::vector<float> w = values_of(before.weights.parameters[module.param.base]);
        const std::vector<float> merged = values_of(model.weights.parameters[module.param.base]);
        for (int64_t o = 0; o < module.param.out; ++o) {
          for (int64_t i = 0; i < module.param.in; ++i) {
            const auto at = static_cast<size_t>(o * module.param.in + i);
            double sum = static_cast<double>(w[at]);
            double scale = std::abs(sum);
            for (int64_t r = 0; r < 4; ++r) {
              const double term = adapter.lora.factor() * static_cast<double>(module.b.as<float>()[o * 4 + r]) *
                                  static_cast<double>(module.a.as<float>()[r * module.param.in + i]);
              sum += term;
              scale += std::abs(term);
            }
            ASSERT_NEAR(static_cast<double>(merged[at]), sum, tolerance(dtype, 5) * scale) << module.param.module;
          }
        }
        EXPECT_NE(merged, w) << module.param.module;
      }
      merge_adapter(model.weights, device, adapter, -1, nullptr);
      const std::vector<float> first = values_of(model.weights.parameters[adapter.modules[0].param.base]);
      const std::vector<float> w = values_of(before.weights.parameters[adapter.modules[0].param.base]);
      const float largest = *std::max_element(w.begin(), w.end());
      for (size_t k = 0; k < w.size(); ++k) {
        EXPECT_NEAR(first[k], w[k], 2 * tolerance(dtype, 5) * static_cast<double>(largest));
      }
    }
  }
}

TEST(Merge, RefusesQuantizedWeights) {
  HostDevice device;
  LoadedModel model = load_model(open_model(golden("a").string(), ""),
                                 {.device = device, .storage = {StorageType::q8_0}, .writable = true});
  const AdapterFile adapter = read_adapter(golden("a") / "lora", model.spec);
  expect_error(ErrorKind::unsupported, {"q_proj", "q8_0"},
               [&] { merge_adapter(model.weights, device, adapter, 1, nullptr); });
}

}  // namespace
}  // namespace ingot::checkpoint

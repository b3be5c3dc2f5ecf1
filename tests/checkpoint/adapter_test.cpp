#include "checkpoint/adapter.h"

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

TEST(Adapter, ReadsWhatPeftWrote) {
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

TEST(Adapter, WrittenAsPeftDoes) {
  const Scratch scratch;
  HostDevice device;
  const AdapterFile adapter = read_adapter(golden("b") / "lora", spec_of("b"));
  write_adapter(scratch.path, adapter.lora, "models/b", adapter.modules, device);
  EXPECT_EQ(read_file(scratch.path / "adapter_model.safetensors"),
            read_file(golden("b") / "lora/adapter_model.safetensors"));
  const json written = json::parse(read_file(scratch.path / "adapter_config.json"));
  const json wanted = json::parse(read_file(golden("b") / "lora/adapter_config.json"));
  for (const auto& [key, value] : written.items()) {
    if (key == "base_model_name_or_path") {
      EXPECT_EQ(value, "models/b");
    } else if (key == "target_modules") {
      EXPECT_TRUE(std::is_sorted(value.begin(), value.end()));
      EXPECT_EQ(value.size(), wanted.at(key).size());
    } else {
      EXPECT_EQ(value, wanted.at(key)) << key;
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

TEST(Adapter, RefusesWhatItWouldNotApply) {
  const Scratch scratch;
  const spec::ModelSpec model = spec_of("a");
  const auto refused = [&](ErrorKind kind, const std::vector<std::string>& words, const auto& edit) {
    const fs::path folder = copy_adapter("a", scratch.path / "x");
    edit_json(folder / "adapter_config.json", edit);
    expect_error(kind, words, [&] { read_adapter(folder, model); });
  };
  refused(ErrorKind::unsupported, {"IA3"}, [](json& c) { c["peft_type"] = "IA3"; });
  refused(ErrorKind::unsupported, {"use_dora"}, [](json& c) { c["use_dora"] = true; });
  refused(ErrorKind::unsupported, {"modules_to_save", "lm_head"}, [](json& c) { c["modules_to_save"] = {"lm_head"}; });
  refused(ErrorKind::unsupported, {"lora_bias"}, [](json& c) { c["lora_bias"] = true; });
  refused(ErrorKind::unsupported, {"bias 'all'"}, [](json& c) { c["bias"] = "all"; });
  refused(ErrorKind::unsupported, {"rank_pattern"}, [](json& c) { c["rank_pattern"]["q_proj"] = 2; });
  refused(ErrorKind::unsupported, {"alpha_pattern"}, [](json& c) { c["alpha_pattern"]["q_proj"] = 2; });
  refused(ErrorKind::unsupported, {"layers_to_transform"}, [](json& c) { c["layers_to_transform"] = {0}; });
  refused(ErrorKind::unsupported, {"pissa_niter_4"}, [](json& c) { c["init_lora_weights"] = "pissa_niter_4"; });
  refused(ErrorKind::unsupported, {"regular expression"}, [](json& c) { c["target_modules"] = ".*_proj"; });
  refused(ErrorKind::corrupt, {"lora_A.weight", "[4, 64]", "[3, 64]"}, [](json& c) { c["r"] = 3; });
  refused(ErrorKind::corrupt, {"down_proj", "target_modules"}, [](json& c) { c["target_modules"] = {"q_proj"}; });
  refused(ErrorKind::corrupt, {"c_attn"}, [](json& c) { c["target_modules"] = {"c_attn"}; });
  expect_error(ErrorKind::not_found, {"adapter_config.json"}, [&] { read_adapter(golden("a"), model); });
  expect_error(ErrorKind::corrupt, {"q_proj.lora_A.weight", "[4, 64]", "[4, 32]", "another base"},
               [&] { read_adapter(golden("a") / "lora", spec_of("c")); });
  const fs::path folder = copy_adapter("a", scratch.path / "pickled");
  fs::rename(folder / "adapter_model.safetensors", folder / "adapter_model.bin");
  expect_error(ErrorKind::unsupported, {"pickle"}, [&] { read_adapter(folder, model); });
}

// Against the product in double, element by element.
TEST(Merge, AddsAndTakesOutAgain) {
  ThreadPool pool(2);
  for (const char* name : {"a", "b"}) {
    HostDevice device;
    const AdapterFile adapter = read_adapter(golden(name) / "lora", spec_of(name));
    for (DType dtype : {DType::f32, DType::bf16}) {
      LoadedModel model =
          load_model(open_model(golden(name).string(), ""), {.device = device, .compute = dtype, .writable = true});
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

TEST(Merge, RefusesOtherStorages) {
  HostDevice device;
  LoadedModel model =
      load_model(open_model(golden("a").string(), ""), {.device = device, .compute = DType::f16, .writable = true});
  const AdapterFile adapter = read_adapter(golden("a") / "lora", model.spec);
  expect_error(ErrorKind::unsupported, {"q_proj", "f16"},
               [&] { merge_adapter(model.weights, device, adapter, 1, nullptr); });
}

}  // namespace
}  // namespace ingot::checkpoint

// Every family through every format: configuration and weights are written and read back.
#include "tests/checkpoint/families.h"

#include "checkpoint/export.h"
#include "checkpoint/gguf_config.h"
#include "formats/gguf.h"

namespace ingot::checkpoint {
namespace {

using nlohmann::json;

LoadedModel load_family(const fs::path& path, HostDevice& device, const LoadOptions* options = nullptr) {
  return load_model(open_model(path.string(), ""), options ? *options : LoadOptions{.device = device});
}

class Families : public testing::TestWithParam<TinyFamily> {};

TEST_P(Families, ConfigurationSurvivesARoundTrip) {
  HfConfig config = parse_hf_config(GetParam().config, "config.json");
  config.dtype = "bfloat16";
  const std::string text = write_hf_config(config);
  EXPECT_EQ(parse_hf_config(text, "again").model, config.model) << text;
  EXPECT_EQ(json::parse(text).at("model_type"), config.model.family);
}

TEST_P(Families, HuggingFaceFolderReproducesTheWeights) {
  const Scratch scratch;
  ThreadPool pool(2);
  HostDevice visible;
  HostDevice hidden(false);
  const RandomModel model(spec_of_config(GetParam().config));
  const ExportModel what{model.spec, model.weights, visible, "m", {}, &pool};
  write_hf(scratch.path / "f32", what, DType::f32);
  write_hf(scratch.path / "bf16", what, DType::bf16, 20000);
  for (HostDevice* device : {&visible, &hidden}) {
    for (const char* folder : {"f32", "bf16"}) {
      const LoadedModel back = load_family(scratch.path / folder, *device);
      EXPECT_EQ(back.spec, model.spec);
      EXPECT_EQ(back.stored_dtype, folder);
      expect_same_weights(back.weights, model.weights, model.spec);
    }
  }
}

// Each tensor-parallel rank of each stage reads its part of the whole, from either kind of file.
TEST_P(Families, RanksReadTheirPartsOnly) {
  const Scratch scratch;
  ThreadPool pool(2);
  HostDevice visible, hidden(false);
  const RandomModel model(spec_of_config(GetParam().config));
  const ExportModel what{model.spec, model.weights, visible, "m", {}, &pool};
  std::vector<fs::path> files = {scratch.path / "f32"};
  write_hf(files.back(), what, DType::f32);
  try {
    spec::check(model.spec, {.tp = 2, .pp = 2});
  } catch (const Error&) {
    const LoadOptions options{.device = visible, .shards = {{.tp = 2, .pp = 2}}};
    EXPECT_THROW(load_model(open_model(files.back().string(), ""), options), Error);
    return;
  }
  if (GetParam().gguf) {
    files.push_back(scratch.path / "bf16.gguf");
    write_gguf(files.back(), what, StorageType::bf16);
  }
  const std::vector<spec::ParamSpec> table = spec::parameters(model.spec);
  for (const fs::path& file : files) {
    for (HostDevice* device : {&visible, &hidden}) {
      std::vector<int64_t> read(table.size());
      for (const int64_t stage : {0, 1}) {
        for (const int64_t rank : {0, 1}) {
          const std::vector<spec::ModelShard> shards = {{.tp = 2, .tp_rank = rank, .pp = 2, .stage = stage}};
          const LoadOptions options{.device = *device, .pool = &pool, .shards = shards};
          const LoadedModel part = load_model(open_model(file.string(), ""), options);
          EXPECT_EQ(part.copied_bytes, weight_sizes(open_model(file.string(), ""), options).copied);
          for (const spec::HeldParameter& p : spec::held_parameters(model.spec, shards)) {
            const std::vector<float> all = values_of(model.weights.parameters[p.whole]);
            std::vector<float> expected;
            const int64_t width = table[p.whole].shape.size() > 1 ? table[p.whole].shape[1] : 1;
            spec::for_runs(p.slice, width, [&](int64_t first, int64_t count, int64_t at) {
              EXPECT_EQ(at, std::ssize(expected));
              expected.insert(expected.end(), all.begin() + first, all.begin() + first + count);
            });
            EXPECT_EQ(values_of(part.weights.parameters[p.whole]), expected) << p.held.name;
            if (!p.copy) read[p.whole] += p.counted_elements(shards.front());
          }
        }
      }
      for (size_t i = 0; i < table.size(); ++i) EXPECT_EQ(read[i], table[i].elements()) << table[i].name;
    }
  }
}

// Pieces of every parameter, cut at any byte, are those of the whole: in each storage type, on devices of both kinds,
// of the whole model and of a tensor-parallel rank's part.
TEST_P(Families, AnyBytesOfAParameterAreLoaded) {
  const Scratch scratch;
  ThreadPool pool(2);
  HostDevice visible, hidden(false);
  const RandomModel model(spec_of_config(GetParam().config));
  write_hf(scratch.path / "m", {model.spec, model.weights, visible, "m", {}, &pool}, DType::f32);
  const ModelSource source = open_model((scratch.path / "m").string(), "");
  std::vector<std::vector<spec::ModelShard>> parts = {{{}}, {{.tp = 2, .tp_rank = 1}}};
  try {
    spec::check(model.spec, {.tp = 2});
  } catch (const Error&) {
    parts.pop_back();
  }
  for (const StorageType storage : {StorageType::f32, StorageType::bf16, StorageType::fp8_e4m3}) {
    for (const std::vector<spec::ModelShard>& shards : parts) {
      LoadOptions options{.device = visible, .storage = {storage}, .writable = true, .pool = &pool, .shards = shards};
      const LoadedModel whole = load_model(source, options);
      const std::vector<ParameterForm> forms = parameter_forms(source, options);
      EXPECT_EQ(forms.size(), spec::held_parameters(model.spec, shards).size());
      for (HostDevice* device : {&visible, &hidden}) {
        // Thirds, so that most cuts are within rows, and one parameter of which nothing is kept.
        for (int piece = 0; piece < 3; ++piece) {
          LoadOptions some{.device = *device, .storage = {storage}, .pool = &pool, .shards = shards};
          some.kept.resize(whole.weights.parameters.size());
          std::vector<std::vector<std::byte>> memory(some.kept.size());
          for (const ParameterForm& form : forms) {
            if (form.number == 1) continue;
            const auto bytes = static_cast<int64_t>(form.bytes());
            const spec::Range range{bytes * piece / 3, bytes * (piece + 1) / 3};
            // Guarded by bytes that must not change.
            memory[form.number].assign(static_cast<size_t>(range.count()) + 2, std::byte{0x5A});
            some.kept[form.number] = {range, memory[form.number].data() + 1};
          }
          EXPECT_FALSE(load_model(source, some).weights.parameters[0].matrix);
          for (const ParameterForm& form : forms) {
            if (form.number == 1) continue;
            const std::vector<std::byte>& found = memory[form.number];
            const spec::Range& range = some.kept[form.number].bytes;
            const Parameter& p = whole.weights.parameters[form.number];
            const auto* all = static_cast<const std::byte*>(p.matrix ? p.matrix.data : p.vector.data);
            EXPECT_EQ(std::memcmp(found.data() + 1, all + range.begin, static_cast<size_t>(range.count())), 0)
                << form.number << ", piece " << piece << ", " << name(storage);
            EXPECT_EQ(found.front(), std::byte{0x5A});
            EXPECT_EQ(found.back(), std::byte{0x5A});
          }
        }
      }
    }
  }
}

// A rank's columns must be whole blocks: 32 of 64 inputs are, 48 of 96 are not.
TEST(QuantizedParts, BlocksAreNotCut) {
  const Scratch scratch;
  HostDevice device;
  const RandomModel model(spec_of_config(tiny_families().front().config));
  write_hf(scratch.path / "m", {model.spec, model.weights, device, "m", {}, nullptr}, DType::f32);
  const std::vector<spec::ModelShard> second = {{.tp = 2, .tp_rank = 1}};
  const auto load_part = [&](const fs::path& path, std::vector<spec::ModelShard> shards) {
    return load_model(open_model(path.string(), ""),
                      {.device = device, .storage = {StorageType::q8_0}, .shards = std::move(shards)});
  };
  const LoadedModel whole = load_part(scratch.path / "m", {}), part = load_part(scratch.path / "m", second);
  size_t cut = 0;
  for (const spec::HeldParameter& p : spec::held_parameters(whole.spec, second)) {
    if (p.held.split != spec::Split::columns || p.held.shape.size() < 2) continue;
    ++cut;
    const Weight &all = whole.weights.parameters[p.whole].matrix, &own = part.weights.parameters[p.whole].matrix;
    ASSERT_EQ(own.storage, StorageType::q8_0);
    const size_t row = row_bytes(own.storage, own.in), whole_row = row_bytes(all.storage, all.in);
    EXPECT_EQ(2 * row, whole_row);
    for (int64_t r = 0; r < own.out; ++r) {
      const auto* from = static_cast<const std::byte*>(all.data) + static_cast<size_t>(r) * whole_row;
      const auto* to = static_cast<const std::byte*>(own.data) + static_cast<size_t>(r) * row;
      EXPECT_EQ(std::memcmp(to, from + row, row), 0) << p.held.name << " " << r;
    }
  }
  EXPECT_GT(cut, 0U);
  expect_error(ErrorKind::unsupported, {"tp cuts", "elements 48 and 96", "inside blocks of 32"},
               [&] { load_part(golden("a"), second); });
}

TEST_P(Families, GgufReproducesTheWeights) {
  const Scratch scratch;
  ThreadPool pool(2);
  HostDevice device;
  const RandomModel model(spec_of_config(GetParam().config));
  const ExportModel what{model.spec, model.weights, device, "m", {}, &pool};
  if (!GetParam().gguf) {
    expect_error(ErrorKind::unsupported, {"llama.cpp", "which this model needs"},
                 [&] { write_gguf(scratch.path / "m.gguf", what, StorageType::f32); });
    EXPECT_FALSE(fs::exists(scratch.path / "m.gguf"));
    return;
  }
  for (StorageType storage : {StorageType::f32, StorageType::bf16}) {
    const fs::path file = scratch.path / (std::string(ingot::name(storage)) + ".gguf");
    write_gguf(file, what, storage);
    const LoadedModel back = load_family(file, device);
    spec::ModelSpec expected = model.spec;
    if (expected.family == "mistral") expected.family = "llama";  // both use the llama architecture
    if (expected.family == "gpt_neox") expected.tied_head = false;
    EXPECT_EQ(back.spec, expected);
    expect_same_weights(back.weights, model.weights, model.spec);
  }
  for (StorageType storage : {StorageType::q8_0, StorageType::q4_0}) {
    const fs::path file = scratch.path / (std::string(ingot::name(storage)) + ".gguf");
    write_gguf(file, what, storage);
    const LoadedModel back = load_family(file, device);
    EXPECT_EQ(back.stored_dtype, ingot::name(storage));
    const auto table = spec::parameters(model.spec);
    // Half a quantization step (the largest value, at most 2, over 127 or 8), plus the rounding of the scale to f16.
    const float bound =
        storage == StorageType::q8_0 ? 2.0F / 127 * (0.5F + 127 * 0x1p-11F) : 2.0F / 8 * (1.0F + 8 * 0x1p-11F);
    for (size_t i = 0; i < table.size(); ++i) {
      const std::vector<float> x = values_of(model.weights.parameters[i]);
      const std::vector<float> y = values_of(back.weights.parameters[i]);
      for (size_t k = 0; k < x.size(); ++k) {
        ASSERT_NEAR(x[k], y[k], table[i].shape.size() == 2 ? bound : 0) << table[i].name << " " << k;
      }
    }
  }
}

// Quantized blocks keep their bytes, whatever the order of rows.
TEST_P(Families, QuantizedBlocksKeepTheirBytes) {
  if (!GetParam().gguf) return;  // llama.cpp does not support the family
  const Scratch scratch;
  HostDevice device;
  const RandomModel model(spec_of_config(GetParam().config));
  write_gguf(scratch.path / "m.gguf", {model.spec, model.weights, device, "m", {}, nullptr}, StorageType::q8_0);
  const LoadedModel plain = load_family(scratch.path / "m.gguf", device);
  const LoadOptions as_stored{.device = device, .storage = {}};
  const LoadedModel stored = load_family(scratch.path / "m.gguf", device, &as_stored);
  write_hf(scratch.path / "from_blocks", {stored.spec, stored.weights, device, "m", {}, nullptr}, DType::f32);
  expect_same_weights(load_family(scratch.path / "from_blocks", device).weights, plain.weights, plain.spec);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Families, testing::ValuesIn(tiny_families()),
                         [](const auto& test) { return test.param.name; });

json tiny(const char* name) {
  for (const TinyFamily& family : tiny_families()) {
    if (family.name == name) return json::parse(family.config);
  }
  return {};
}

spec::ModelSpec read(const char* name, const std::function<void(json&)>& edit) {
  json config = tiny(name);
  edit(config);
  return parse_hf_config(config.dump(), "config.json").model;
}

std::vector<int64_t> windows(const char* name, const std::function<void(json&)>& edit) {
  const spec::ModelSpec model = read(name, edit);
  HfConfig written{.model = model};
  EXPECT_EQ(parse_hf_config(write_hf_config(written), "again").model, model) << "the written configuration differs";
  std::vector<int64_t> found;
  for (const spec::LayerSpec& layer : model.layers) found.push_back(layer.attention.window);
  return found;
}

TEST(HfConfig, KeysThatChangeTheFunctionAreReadOrRefused) {
  using Edit = std::function<void(json&)>;
  struct Refused {
    const char* family;
    std::vector<std::string> words;
    Edit edit;
  };
  const std::vector<Refused> refused = {
      {"qwen3", {"layer_types", "chunked_attention"}, [](json& c) { c["layer_types"][0] = "chunked_attention"; }},
      {"qwen2", {"hidden_act", "relu"}, [](json& c) { c["hidden_act"] = "relu"; }},
      {"qwen2", {"dynamic"}, [](json& c) { c["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2}}; }},
      {"qwen2", {"yarn"}, [](json& c) { c["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 2}}; }},
      {"mistral", {"longrope"}, [](json& c) { c["rope_parameters"]["rope_type"] = "longrope"; }},
      {"mistral", {"partial_rotary_factor"}, [](json& c) { c["rope_parameters"]["partial_rotary_factor"] = 0.5; }},
      {"gemma2", {"full_attention"}, [](json& c) { c["rope_parameters"]["full_attention"] = json::object(); }},
      {"gemma2", {"use_bidirectional_attention"}, [](json& c) { c["use_bidirectional_attention"] = true; }},
      {"gpt2", {"scale_attn_by_inverse_layer_idx"}, [](json& c) { c["scale_attn_by_inverse_layer_idx"] = true; }},
      {"gpt2", {"add_cross_attention"}, [](json& c) { c["add_cross_attention"] = true; }},
      {"gpt2", {"activation_function", "relu"}, [](json& c) { c["activation_function"] = "relu"; }},
      {"mpt", {"prefix_lm"}, [](json& c) { c["attn_config"]["prefix_lm"] = true; }},
      {"mpt", {"\"rope\""}, [](json& c) { c["attn_config"]["rope"] = true; }},
      {"mpt", {"qk_gn"}, [](json& c) { c["attn_config"]["qk_gn"] = true; }},
      {"mpt", {"sliding_window_size"}, [](json& c) { c["attn_config"]["sliding_window_size"] = 16; }},
      {"mpt", {"attn_type", "latent"}, [](json& c) { c["attn_config"]["attn_type"] = "latent"; }},
      {"mpt", {"norm_type", "rmsnorm"}, [](json& c) { c["norm_type"] = "rmsnorm"; }},
      {"mpt", {"ffn_type", "mptglu"}, [](json& c) { c["ffn_config"]["ffn_type"] = "mptglu"; }},
      {"mpt", {"block_overrides"}, [](json& c) { c["block_overrides"]["order"] = json::array(); }},
      {"mpt",
       {"without position encoding"},
       [](json& c) {
         c["attn_config"]["alibi"] = false;
         c["learned_pos_emb"] = false;
       }},
      {"mixtral", {"quantised", "gptq"}, [](json& c) { c["quantization_config"]["quant_method"] = "gptq"; }},
      {"mixtral", {"'dbrx'", "mixtral"}, [](json& c) { c["model_type"] = "dbrx"; }},
  };
  for (const Refused& r : refused) {
    std::vector<std::string> words = r.words;
    words.emplace_back("config.json");
    expect_error(ErrorKind::unsupported, words, [&] { read(r.family, r.edit); });
  }
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("mistral_window", [](json&) {}), (Windows{8, 8}));
  EXPECT_EQ(windows("mistral_window", [](json& c) { c.erase("sliding_window"); }), (Windows{4096, 4096}));
  EXPECT_EQ(windows("mistral_window", [](json& c) { c["sliding_window"] = nullptr; }), (Windows{0, 0}));
  EXPECT_EQ(windows("qwen2",
                    [](json& c) {
                      c["use_sliding_window"] = true;
                      c["max_window_layers"] = 0;
                    }),
            (Windows{4096, 4096}));
  EXPECT_EQ(windows("qwen2", [](json& c) { c["use_sliding_window"] = true; }), (Windows{0, 4096}));
  const auto second_slides = [](json& c) {
    c["use_sliding_window"] = true;
    c["sliding_window"] = 6;
    c["layer_types"] = {"full_attention", "sliding_attention"};
  };
  EXPECT_EQ(windows("qwen3", second_slides), (Windows{0, 6}));
  EXPECT_EQ(windows("mistral_window", second_slides), (Windows{0, 6}));
  const auto first = [&](const char* name, const std::function<void(json&)>& edit) {
    return read(name, edit).layers.front().attention;
  };
  EXPECT_EQ(first("gpt2", [](json& c) { c["scale_attn_weights"] = false; }).scale, 1);
  EXPECT_EQ(first("gpt_neox",
                  [](json& c) {
                    c.erase("rotary_pct");
                    c["rope_parameters"] = {{"partial_rotary_factor", 1.0}, {"rope_theta", 500}};
                  })
                .rope->dim,
            0);
  EXPECT_EQ(first("mpt", [](json& c) { c["attn_config"]["attn_type"] = "multiquery_attention"; }).kv_heads, 1);
  EXPECT_EQ(read("gemma2", [](json& c) { c["final_logit_softcapping"] = nullptr; }).final_softcap, 0);
  EXPECT_FALSE(read("mpt", [](json&) {}).norm_bias);         // transformers' default
  EXPECT_TRUE(read("mpt_learned", [](json&) {}).norm_bias);  // llm-foundry's
}

// tests/golden/FAMILY/CASE/refused.json: configuration keys that change what the model computes, with words of the
// error when they are read, or (with "gguf") when a GGUF file is written.
TEST(HfConfig, KeysListedInRefusedJsonAreRefused) {
  for (const auto& entry : fs::recursive_directory_iterator(test_data)) {
    if (entry.path().filename() != "refused.json") continue;
    const json original = json::parse(read_file(entry.path().parent_path() / "config.json"));
    EXPECT_NO_THROW(spec_of_config(original.dump()));
    for (const json& refused : json::parse(read_file(entry.path()))) {
      SCOPED_TRACE(entry.path().string() + " " + refused.dump());
      json config = original;
      config.update(refused.at("keys"));
      auto words = refused.at("words").get<std::vector<std::string>>();
      words.emplace_back("config.json");
      if (refused.value("gguf", false)) {
        const spec::ModelSpec model = spec_of_config(config.dump());
        words.back() = "llama.cpp";
        expect_error(ErrorKind::unsupported, words, [&] { gguf_model_metadata(model, "m", 0); });
      } else {
        expect_error(ErrorKind::unsupported, words, [&] { spec_of_config(config.dump()); });
      }
    }
  }
}

// Such sizes are refused before anything is allocated.
TEST(HfConfig, AbsurdSizesAreRefused) {
  const auto refused = [](const char* family, const char* word, const std::function<void(json&)>& edit) {
    expect_error(ErrorKind::corrupt, {word, "config.json"}, [&] { read(family, edit); });
  };
  refused("qwen2", "2000000000", [](json& c) { c["num_hidden_layers"] = 2000000000; });
  refused("mixtral", "60000", [](json& c) {
    c["num_hidden_layers"] = 60000;
    c["num_local_experts"] = 60000;
  });
  refused("qwen2", "whole number", [](json& c) { c["num_hidden_layers"] = 1e300; });
  refused("qwen2", "-4", [](json& c) { c["num_attention_heads"] = -4; });
  refused("qwen2", "hidden", [](json& c) { c["hidden_size"] = 1LL << 40; });
  refused("gpt2", "heads", [](json& c) { c["n_head"] = 0; });
  refused("gpt_neox", "rotary_pct", [](json& c) { c["rotary_pct"] = -1; });
  refused("mpt", "kv_n_heads", [](json& c) { c["attn_config"]["attn_type"] = "grouped_query_attention"; });
}

// Names under which other programs have stored the same tensors.
TEST(HfNames, PrefixMayBeMissingAndMasksAreIgnored) {
  const Scratch scratch;
  HostDevice device;
  for (const char* name : {"gpt2", "gpt_neox", "mpt", "qwen2"}) {
    const RandomModel model(spec_of_config(tiny(name).dump().c_str()));
    const fs::path folder = scratch.path / name;
    write_hf(folder, {model.spec, model.weights, device, "m", {}, nullptr}, DType::f32);
    rewrite_tensors(folder, [&](std::vector<EditedTensor>& tensors) {
      for (EditedTensor& tensor : tensors) {
        std::string& stored = tensor.declaration.name;
        if (stored.starts_with("embed_out") || stored.starts_with("lm_head")) continue;
        stored.erase(0, stored.find('.') + 1);
      }
      const std::string masks = std::string(name) == "gpt2" ? "h.0.attn.bias" : "layers.0.attention.masked_bias";
      if (std::string(name).starts_with("gpt")) {
        tensors.push_back({{masks, "F32", {1}}, std::vector<std::byte>(4)});
        tensors.push_back({{"layers.0.attention.rotary_emb.inv_freq", "F32", {1}}, std::vector<std::byte>(4)});
      }
    });
    expect_same_weights(load_family(folder, device).weights, model.weights, model.spec);
  }
}

// A missing head is an error and not replaced by the embedding: only the configuration says whether they are tied.
TEST(HfNames, AMissingHeadIsAnError) {
  const Scratch scratch;
  HostDevice device;
  for (const TinyFamily& family : tiny_families()) {
    SCOPED_TRACE(family.name);
    const RandomModel model(spec_of_config(family.config));
    const fs::path folder = scratch.path / family.name;
    write_hf(folder, {model.spec, model.weights, device, "m", {}, nullptr}, DType::f32);
    edit_json(folder / "config.json", [](json& c) { c["tie_word_embeddings"] = false; });
    const std::string head = model.spec.family == "gpt_neox" ? "embed_out.weight" : "lm_head.weight";
    rewrite_tensors(folder, [&](std::vector<EditedTensor>& tensors) {
      std::erase_if(tensors, [&](const EditedTensor& tensor) { return tensor.declaration.name == head; });
    });
    expect_error(ErrorKind::corrupt, {head, "missing", "tie_word_embeddings"}, [&] { load_family(folder, device); });
  }
}

// Mixtral's experts in one tensor per block, as transformers 5 stores them in memory.
TEST(HfNames, ExpertsMayBeInOneTensor) {
  const Scratch scratch;
  HostDevice device;
  const RandomModel model(spec_of_config(tiny("mixtral").dump().c_str()));
  const fs::path folder = scratch.path / "m";
  write_hf(folder, {model.spec, model.weights, device, "m", {}, nullptr}, DType::f32);
  rewrite_tensors(folder, [&](std::vector<EditedTensor>& tensors) {
    std::map<std::string, std::vector<std::byte>> bytes;
    std::vector<EditedTensor> others;
    for (EditedTensor& tensor : tensors) {
      if (tensor.declaration.name.find(".experts.") == std::string::npos) {
        others.push_back(tensor);
      } else {
        bytes[tensor.declaration.name] = tensor.bytes;
      }
    }
    for (int layer = 0; layer < 2; ++layer) {
      EditedTensor in{{fmt::format("model.layers.{}.mlp.experts.gate_up_proj", layer), "F32", {3, 128, 32}}, {}};
      EditedTensor out{{fmt::format("model.layers.{}.mlp.experts.down_proj", layer), "F32", {3, 32, 64}}, {}};
      for (int expert = 0; expert < 3; ++expert) {
        const std::string prefix = fmt::format("model.layers.{}.block_sparse_moe.experts.{}.", layer, expert);
        for (const char* part : {"w1.weight", "w3.weight"}) {
          in.bytes.insert(in.bytes.end(), bytes.at(prefix + part).begin(), bytes.at(prefix + part).end());
        }
        out.bytes.insert(out.bytes.end(), bytes.at(prefix + "w2.weight").begin(), bytes.at(prefix + "w2.weight").end());
      }
      others.push_back(in);
      others.push_back(out);
    }
    tensors = others;
  });
  const LoadedModel back = load_family(folder, device);
  expect_same_weights(back.weights, model.weights, model.spec);
  EXPECT_GT(back.weights.owners.size(), 0U);
}

// llama.cpp's order of GPT-NeoX's fused qkv rows, written out: q of both heads, then k, then v.
TEST(GgufRows, GptNeoxQkvIsReorderedByPart) {
  const Scratch scratch;
  HostDevice device;
  const RandomModel model(spec_of_config(tiny("gpt_neox").dump()));
  write_gguf(scratch.path / "m.gguf", {model.spec, model.weights, device, "m", {}, nullptr}, StorageType::f32);
  const formats::GgufFile file(scratch.path / "m.gguf");
  const auto table = spec::parameters(model.spec);
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].role != spec::Role::qkv || table[i].layer != 1) continue;
    const std::vector<float> ours = values_of(model.weights.parameters[i]);
    std::vector<float> stored(ours.size());
    std::memcpy(stored.data(), file.at(table[i].gguf_name).bytes.data(), stored.size() * 4);
    const size_t row = table[i].bias ? 1 : 32;
    size_t at = 0;
    for (size_t part = 0; part < 3; ++part) {
      for (size_t head = 0; head < 2; ++head) {
        for (size_t d = 0; d < 16; ++d, ++at) {
          for (size_t k = 0; k < row; ++k) {
            ASSERT_EQ(stored[at * row + k], ours[((head * 3 + part) * 16 + d) * row + k]) << table[i].name << at;
          }
        }
      }
    }
  }
}

TEST(GgufConfig, RefusesModelsThatLlamaCppDoesNotSupport) {
  const auto refused = [](const char* name, const char* word, const std::function<void(json&)>& edit) {
    const spec::ModelSpec model = read(name, edit);
    expect_error(ErrorKind::unsupported, {word, "llama.cpp"}, [&] { gguf_model_metadata(model, "m", 0); });
  };
  refused("gemma2", "query_pre_attn_scalar", [](json& c) { c["query_pre_attn_scalar"] = 20; });
  refused("gemma2", "soft caps", [](json& c) { c["attn_logit_softcapping"] = nullptr; });
  refused("gpt2", "gelu_new", [](json& c) { c["activation_function"] = "gelu"; });
  refused("gpt2", "unscaled", [](json& c) { c["scale_attn_weights"] = false; });
  refused("gpt_neox", "without biases", [](json& c) { c["attention_bias"] = false; });
  refused("mpt", "softmax_scale", [](json& c) { c["attn_config"]["softmax_scale"] = 0.3; });
  refused("mpt", "logit_scale", [](json& c) { c["logit_scale"] = 0.5; });
  refused("qwen3", "output", [](json& c) { c["attention_bias"] = true; });
  refused("qwen2", "Llama 3", [](json& c) {
    c["rope_parameters"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 32}};
  });
}

// A config.json that left it out would be one of another model.
TEST(HfConfig, RefusesWhatTheFamilyHasNoKeyFor) {
  const auto refused = [](const char* name, const char* member, const std::function<void(spec::ModelSpec&)>& edit) {
    HfConfig config{.model = read(name, [](json&) {})};
    edit(config.model);
    expect_error(ErrorKind::unsupported, {member, name}, [&] { write_hf_config(config); });
  };
  const auto all = [](const std::function<void(spec::LayerSpec&)>& edit) {
    return [edit](spec::ModelSpec& model) {
      for (spec::LayerSpec& layer : model.layers) edit(layer);
    };
  };
  refused("gpt_neox", "attention.window", all([](spec::LayerSpec& layer) { layer.attention.window = 8; }));
  refused("mistral", "attention.rope", all([](spec::LayerSpec& layer) { layer.attention.rope.reset(); }));
  refused("gpt2", "attention.softcap", all([](spec::LayerSpec& layer) { layer.attention.softcap = 30; }));
  refused("gpt_neox", "mlp.gated", all([](spec::LayerSpec& layer) { spec::dense_of(layer.mlp).gated = true; }));
  refused("qwen3", "mlp.bias", all([](spec::LayerSpec& layer) { spec::dense_of(layer.mlp).bias = true; }));
  refused("qwen2", "logit_scale", [](spec::ModelSpec& model) { model.logit_scale = 0.5; });
  refused("mistral", "final_softcap", [](spec::ModelSpec& model) { model.final_softcap = 30; });
}

}  // namespace
}  // namespace ingot::checkpoint

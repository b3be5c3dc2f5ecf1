#include "checkpoint/adapter.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_object.h"
#include "checkpoint/row_codec.h"
#include "checkpoint/tensor_store.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* config_file = "adapter_config.json";
constexpr const char* weights_file = "adapter_model.safetensors";
constexpr std::string_view prefix = "base_model.model.";

bool is_set(const json& value) {
  if (value.is_null() || value == false || value == 0) return false;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !((value.is_array() || value.is_object()) && value.empty());
}

// Settings that change what an adapter computes, beyond rank, alpha and targets.
void refuse_unknown_functions(const JsonObject& config) {
  const std::string type = config.string("peft_type").value_or("LORA");
  if (type != "LORA") {
    throw_hint(ErrorKind::unsupported, "Ingot has: LORA", "{}: peft_type '{}' is not supported", config.where(), type);
  }
  if (const std::string bias = config.string("bias").value_or("none"); bias != "none") {
    throw_error(ErrorKind::unsupported, "{}: bias '{}' (trained biases of the base) is not supported", config.where(),
                bias);
  }
  for (const char* key :
       {"use_dora", "lora_bias", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform",
        "layers_pattern", "exclude_modules", "target_parameters", "layer_replication", "trainable_token_indices",
        "alora_invocation_tokens", "use_qalora", "use_bdlora", "fan_in_fan_out"}) {
    const json* value = config.find(key);
    if (value == nullptr || !is_set(*value)) continue;
    throw_error(ErrorKind::unsupported, "{}: \"{}\": {} is not supported", config.where(), key, value->dump());
  }
  const json* init = config.find("init_lora_weights");
  if (init == nullptr || init->is_boolean() || *init == "gaussian" || *init == "orthogonal") return;
  throw_hint(ErrorKind::unsupported,
             "save the adapter converted to plain LoRA (PEFT: path_initial_model_for_weight_conversion)",
             "{}: init_lora_weights {} changes the base weights, which are not those of the model", config.where(),
             init->dump());
}

spec::LoraSpec read_config(const JsonObject& config) {
  refuse_unknown_functions(config);
  spec::LoraSpec lora;
  lora.rank = config.integer("r").value_or(8);
  lora.alpha = config.number("lora_alpha").value_or(8);
  lora.dropout = config.number("lora_dropout").value_or(0);
  lora.rslora = config.boolean("use_rslora").value_or(false);
  const json* targets = config.find("target_modules");
  if (targets != nullptr && targets->is_string() && *targets != "all-linear") {
    throw_hint(ErrorKind::unsupported, "list the modules, or \"all-linear\"",
               "{}: target_modules '{}' is a regular expression, which is not supported", config.where(),
               targets->get<std::string>());
  }
  lora.targets = config.strings("target_modules");
  if (targets == nullptr) lora.targets = {"q_proj", "v_proj"};  // PEFT's default for the llama family
  return lora;
}

// "layers.0.q_proj.lora_A.weight" of both the saved form and the one with the adapter's name in it.
std::string plain_name(std::string_view stored) {
  std::string name(stored);
  for (const char* part : {".lora_A.default.", ".lora_B.default."}) {
    if (const size_t at = name.find(part); at != std::string::npos) name.erase(at + 7, 8);
  }
  return name;
}

Tensor tensor_of(const formats::TensorEntry& entry, const std::vector<int64_t>& shape, const std::string& file) {
  if (entry.shape != shape) {
    throw_hint(ErrorKind::corrupt, "the adapter was made for another base model or rank",
               "{}: tensor '{}' has the shape {}, this base needs {}", file, entry.name, shape_text(entry.shape),
               shape_text(shape));
  }
  const std::optional<Storage> storage = storage_from_file(entry.dtype);
  if (!storage || is_block(*storage)) {
    throw_error(ErrorKind::unsupported, "{}: tensor '{}' has the type {}", file, entry.name, entry.dtype);
  }
  const DType dtype = *storage == Storage::f32 ? DType::f32 : *storage == Storage::bf16 ? DType::bf16 : DType::f16;
  return Tensor{const_cast<std::byte*>(entry.bytes.data()), dtype, Shape(std::span<const int64_t>(shape)), nullptr};
}

json config_of(const spec::LoraSpec& lora, const std::string& base_name) {
  std::vector<std::string> targets = lora.targets;
  std::sort(targets.begin(), targets.end());
  json config = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", nullptr},
      {"revision", nullptr},
      {"r", lora.rank},
      {"lora_alpha", lora.alpha},
      {"lora_dropout", lora.dropout},
      {"use_rslora", lora.rslora},
      {"target_modules", targets},
      {"exclude_modules", nullptr},
      {"modules_to_save", nullptr},
      {"layers_to_transform", nullptr},
      {"layers_pattern", nullptr},
      {"bias", "none"},
      {"lora_bias", false},
      {"use_dora", false},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"rank_pattern", json::object()},
      {"alpha_pattern", json::object()},
      {"auto_mapping", nullptr},
  };
  if (!base_name.empty()) config["base_model_name_or_path"] = base_name;
  if (lora.alpha == std::floor(lora.alpha)) config["lora_alpha"] = static_cast<int64_t>(lora.alpha);
  if (targets == std::vector<std::string>{"all-linear"}) config["target_modules"] = "all-linear";
  return config;
}

}  // namespace

AdapterFile read_adapter(const fs::path& folder, const spec::ModelSpec& model) {
  if (!fs::exists(folder / config_file)) {
    throw_hint(ErrorKind::not_found, "an adapter folder has adapter_config.json and adapter_model.safetensors",
               "{}: there is no {} in this folder", folder.string(), config_file);
  }
  if (!fs::exists(folder / weights_file) && fs::exists(folder / "adapter_model.bin")) {
    throw_hint(ErrorKind::unsupported, "save it with PEFT's save_pretrained(folder, safe_serialization=True)",
               "{}: adapter_model.bin is in PyTorch's pickle format, which can run code and is not read",
               folder.string());
  }
  const json document = read_json(folder / config_file);
  const JsonObject config(document, (folder / config_file).string());
  AdapterFile adapter;
  adapter.lora = read_config(config);
  adapter.base_name = config.string("base_model_name_or_path").value_or("");

  const std::string file = (folder / weights_file).string();
  const auto weights = std::make_shared<const formats::SafetensorsFile>(folder / weights_file);
  adapter.owner = weights;
  std::map<std::string, const formats::TensorEntry*> unused;
  for (const formats::TensorEntry& entry : weights->entries()) unused[plain_name(entry.name)] = &entry;
  const auto take = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = unused.find(name);
    if (found == unused.end()) {
      throw_hint(ErrorKind::corrupt, "the adapter was made for another base model, or its file is incomplete",
                 "{}: tensor '{}' {} is missing", file, name, shape_text(shape));
    }
    const Tensor tensor = tensor_of(*found->second, shape, file);
    unused.erase(found);
    return tensor;
  };
  std::vector<spec::LoraParam> params;
  try {
    params = spec::lora_parameters(model, adapter.lora);
  } catch (const Error& error) {
    throw Error(ErrorKind::corrupt, config.where() + ": " + error.message(), error.hint());
  }
  for (const spec::LoraParam& param : params) {
    const std::string base = std::string(prefix) + param.module;
    AdapterModule module{param, {}, {}};
    module.a = take(base + ".lora_A.weight", {param.rank, param.in});
    module.b = take(base + ".lora_B.weight", {param.out, param.rank});
    adapter.modules.push_back(module);
  }
  if (!unused.empty()) {
    throw_hint(ErrorKind::corrupt, "the adapter was made for another base model",
               "{}: tensor '{}' belongs to no layer that target_modules names in this model of {} layers", file,
               unused.begin()->second->name, model.layers);
  }
  return adapter;
}

void write_adapter(const fs::path& folder, const spec::LoraSpec& lora, const std::string& base_name,
                   std::span<const AdapterModule> modules, Device& device) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw_error(ErrorKind::unavailable, "{}: cannot be made: {}", folder.string(), failed.message());
  std::vector<formats::TensorDeclaration> declarations;
  std::map<std::string, Tensor> tensors;
  const auto declare = [&](const std::string& name, const Tensor& tensor) {
    const char* dtype = tensor.dtype == DType::f32 ? "F32" : tensor.dtype == DType::bf16 ? "BF16" : "F16";
    storage_of(tensor.dtype);  // an internal error for what is no floating type
    declarations.push_back({name, dtype, {tensor.shape.dims().begin(), tensor.shape.dims().end()}});
    tensors[name] = tensor;
  };
  for (const AdapterModule& module : modules) {
    const std::string base = std::string(prefix) + module.param.module;
    declare(base + ".lora_A.weight", module.a);
    declare(base + ".lora_B.weight", module.b);
  }
  formats::SafetensorsWriter writer(folder / weights_file, declarations);
  std::vector<std::byte> host;
  for (const formats::TensorDeclaration& declaration : writer.layout()) {
    const Tensor& tensor = tensors.at(declaration.name);
    host.resize(tensor.bytes());
    device.copy_to_host(host.data(), tensor.data, host.size());
    writer.write(declaration.name, host);
  }
  writer.finish();
  write_file(folder / config_file, config_of(lora, base_name).dump(2) + "\n");
}

}  // namespace ingot::checkpoint

#include "checkpoint/adapter.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/placement.h"
#include "checkpoint/row_codec.h"
#include "checkpoint/tensor_store.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* config_file = "adapter_config.json";
constexpr const char* weights_file = "adapter_model.safetensors";
constexpr std::string_view prefix = "base_model.model.";

// The tensor's name as current PEFT writes it: without the adapter's name and the wrappers "base_layer" and
// "modules_to_save", and with ".weight" removed from magnitudes.
std::string plain_name(std::string_view stored) {
  std::string name(stored);
  const auto drop = [&](std::string_view part, size_t keep) {
    if (const size_t at = name.find(part); at != std::string::npos) name.erase(at + keep, part.size() - 1 - keep);
  };
  drop(".lora_A.default.", 7);
  drop(".lora_B.default.", 7);
  drop(".lora_magnitude_vector.default.", 22);
  drop(".modules_to_save.default.", 0);
  drop(".modules_to_save.", 0);
  drop(".base_layer.", 0);
  if (name.ends_with(".lora_magnitude_vector.weight")) name.erase(name.rfind('.'));
  return name;
}

enum class Values { checked, unread };

Tensor tensor_of(const formats::TensorEntry& entry, const std::vector<int64_t>& shape, const std::string& file,
                 Values values) {
  if (entry.shape != shape) {
    throw_hint(ErrorKind::corrupt, "the adapter was made for another base model or rank",
               "{}: tensor '{}' has the shape {}, but this base model needs {}", file, entry.name,
               shape_text(entry.shape), shape_text(shape));
  }
  const std::optional<StorageType> storage = storage_from_file(entry.dtype);
  if (!storage || !is_plain(*storage)) {
    throw_error(ErrorKind::unsupported, "{}: tensor '{}' has the unsupported type {}", file, entry.name, entry.dtype);
  }
  const int64_t elements = std::ssize(entry.bytes) / static_cast<int64_t>(block_bytes(*storage));
  if (const int64_t at = values == Values::unread ? -1 : find_non_finite(*storage, entry.bytes.data(), elements);
      at >= 0) {
    throw_hint(ErrorKind::corrupt, "the file is damaged, or the run that wrote it had diverged",
               "{}: tensor '{}' has a value that is not finite: element {}", file, entry.name, at);
  }
  const DType dtype = *storage == StorageType::f32    ? DType::f32
                      : *storage == StorageType::bf16 ? DType::bf16
                                                      : DType::f16;
  return Tensor{const_cast<std::byte*>(entry.bytes.data()), dtype, Shape(std::span<const int64_t>(shape)), nullptr};
}

// A copy of the file. It is not mapped, because accessing a mapped file that has been truncated kills the process.
struct Weights {
  Weights(const fs::path& path, uint64_t max_bytes)
      : bytes(read_file(path, max_bytes)), file(std::as_bytes(std::span(bytes.data(), bytes.size())), path.string()) {}
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  const std::string bytes;
  const formats::SafetensorsFile file;  // refers to `bytes`
};

// The tensors of the file that have not been assigned to a layer yet.
class Tensors {
 public:
  Tensors(const formats::SafetensorsFile& weights, Values values) : file_(weights.source()), values_(values) {
    for (const formats::TensorEntry& entry : weights.entries()) unused_[plain_name(entry.name)] = &entry;
  }

  bool has(const std::string& name) const { return unused_.contains(name); }
  Tensor take(const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = unused_.find(name);
    if (found == unused_.end()) {
      throw_hint(ErrorKind::corrupt, "the adapter was made for another base model, or its file is incomplete",
                 "{}: tensor '{}' {} is missing", file_, name, shape_text(shape));
    }
    const Tensor tensor = tensor_of(*found->second, shape, file_, values_);
    unused_.erase(found);
    return tensor;
  }
  const std::map<std::string, const formats::TensorEntry*>& unused() const { return unused_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  Values values_;
  std::map<std::string, const formats::TensorEntry*> unused_;
};

// Parameters that the file stores in full, under the base model's names.
std::vector<SavedParameter> take_saved(Tensors& tensors, const AdapterConfig& config, const spec::ModelSpec& model) {
  std::vector<SavedParameter> saved;
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  for (size_t i = 0; i < table.size(); ++i) {
    const spec::ParamSpec& p = table[i];
    const Placement placement = hf_placements(model, p).front();
    const std::string name = std::string(prefix) + placement.name;
    const bool wanted = saves_module(config, p.module()) || (config.biases && p.bias);
    if (!wanted || !tensors.has(name)) continue;
    if (model.tied_head && p.role == spec::Role::embedding) {
      throw_hint(ErrorKind::unsupported,
                 "train with PEFT's ensure_weight_tying, or use a base model without tied embeddings",
                 "{}: tensor '{}' replaces the embedding of a model with tied embeddings", tensors.file(), name);
    }
    saved.push_back({i, tensors.take(name, placement.shape), placement.transposed});
  }
  return saved;
}

void check_files(const fs::path& folder) {
  if (!path_exists(folder / config_file)) {
    throw_hint(ErrorKind::not_found, "an adapter folder has adapter_config.json and adapter_model.safetensors",
               "{}: there is no {} in this folder", folder.string(), config_file);
  }
  if (!path_exists(folder / weights_file) && path_exists(folder / "adapter_model.bin")) {
    throw_hint(ErrorKind::unsupported, "save it with PEFT's save_pretrained(folder, safe_serialization=True)",
               "{}: adapter_model.bin is in PyTorch's pickle format, which can run code and is not read",
               folder.string());
  }
}

// `owner` owns the file's bytes.
AdapterFile adapter_of(const AdapterConfig& config, const formats::SafetensorsFile& file,
                       std::shared_ptr<const void> owner, const spec::ModelSpec& model, Values values) {
  AdapterFile adapter;
  adapter.lora = config.lora;
  adapter.base_name = config.base_name;
  adapter.owner = std::move(owner);
  Tensors tensors(file, values);
  for (const AdaptedLayer& layer : config.layers) {
    const spec::LoraParam& param = layer.param;
    const std::string base = std::string(prefix) + param.module;
    if (layer.optional && !tensors.has(base + ".lora_A.weight")) continue;
    AdapterModule module{param, layer.factor, {}, {}, {}};
    module.a = tensors.take(base + ".lora_A.weight", {param.rank, param.in});
    module.b = tensors.take(base + ".lora_B.weight", {param.out, param.rank});
    if (config.dora) module.magnitude = tensors.take(base + ".lora_magnitude_vector", {param.out});
    adapter.modules.push_back(std::move(module));
  }
  adapter.saved = take_saved(tensors, config, model);
  if (!tensors.unused().empty()) {
    throw_hint(ErrorKind::corrupt, "the adapter was made for another base model",
               "{}: tensor '{}' belongs to none of the layers that target_modules or modules_to_save select in this {} "
               "model of {} layers",
               tensors.file(), tensors.unused().begin()->second->name, model.family, model.num_layers());
  }
  if (adapter.modules.empty() && adapter.saved.empty()) {
    throw_error(ErrorKind::corrupt, "{}: the adapter has no layers", tensors.file());
  }
  return adapter;
}

}  // namespace

AdapterFile read_adapter(const fs::path& folder, const spec::ModelSpec& model, uint64_t max_bytes) {
  check_files(folder);
  const AdapterConfig config = read_adapter_config(folder / config_file, model);
  const auto weights = std::make_shared<const Weights>(folder / weights_file, max_bytes);
  return adapter_of(config, weights->file, weights, model, Values::checked);
}

AdapterFile inspect_adapter(const fs::path& folder, const spec::ModelSpec& model) {
  check_files(folder);
  const AdapterConfig config = read_adapter_config(folder / config_file, model);
  const auto weights = std::make_shared<const formats::SafetensorsFile>(folder / weights_file);
  return adapter_of(config, *weights, weights, model, Values::unread);
}

bool AdapterFile::replaces_weights() const {
  return !saved.empty() || std::any_of(modules.begin(), modules.end(),
                                       [](const AdapterModule& module) { return bool(module.magnitude); });
}

void write_adapter(const fs::path& folder, const spec::ModelSpec& model, const spec::LoraSpec& lora,
                   const std::string& base_name, std::span<const AdapterModule> modules, Device& device) {
  make_folders(folder);
  std::vector<formats::TensorDeclaration> declarations;
  std::map<std::string, Tensor> tensors;
  const auto declare = [&](const std::string& name, const Tensor& tensor) {
    const char* dtype = tensor.dtype == DType::f32 ? "F32" : tensor.dtype == DType::bf16 ? "BF16" : "F16";
    storage_of(tensor.dtype);  // internal error for a non-floating type
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
  write_file(folder / config_file, write_adapter_config(lora, base_name, model));
}

}  // namespace ingot::checkpoint

// LoRA adapters in PEFT's own layout. Format: specs/peft_lora.md, sections 2 to 4.
#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "spec/lora.h"
#include "spec/model.h"
#include "tensor/tensor.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

// One adapted layer: y += factor B A x. Letters: R rank. With a magnitude m (DoRA, Liu et al. 2024, arXiv 2402.09353)
// the layer's weight is V = W + factor B A with each row scaled to the norm m instead.
struct AdapterModule {
  spec::LoraParam param;  // the layer; param.base is its index in spec::parameters
  float factor = 1;
  Tensor a;          // [R, in], f32, bf16 or f16
  Tensor b;          // [out, R]
  Tensor magnitude;  // [out], absent without DoRA
};

// A parameter that an adapter brings in full: of modules_to_save, and trained biases.
struct SavedParameter {
  size_t base = 0;  // index in spec::parameters
  Tensor values;    // f32, bf16 or f16, in the shape of the file
  bool transposed = false;
};

// An adapter as its files hold it. Tensors are in host memory (their `device` is null), in a copy of the file: what
// becomes of that later does not matter.
struct AdapterFile {
  spec::LoraSpec lora;
  std::string base_name;               // base_model_name_or_path; "" when it is null
  std::vector<AdapterModule> modules;  // in parameter order
  std::vector<SavedParameter> saved;
  std::shared_ptr<const void> owner;

  // Whether the adapter is more than low-rank terms, so that it must be merged into the weights to be used.
  bool replaces_weights() const;
};

// Reads adapter_config.json and adapter_model.safetensors and checks them against the base model: rank and alpha
// patterns, layer subsets, excluded modules, targets by regular expression, rsLoRA, DoRA, modules_to_save and trained
// biases are PEFT's.
// Errors: not_found for missing files; resource for weights of more than `max_bytes`; corrupt, naming the file, for
// one that is cut short, also while it is read, and, naming tensor and shapes, for an adapter of another base, and for
// values that are not finite; those of read_adapter_config; unsupported, by name, for pickled weights, for embeddings
// as targets, and for a head or embedding in modules_to_save where the model has one weight for both.
AdapterFile read_adapter(const std::filesystem::path& folder, const spec::ModelSpec& model,
                         uint64_t max_bytes = std::numeric_limits<uint64_t>::max());

// The same without the values: of an adapter that is not used now, to know whether it could be. Only headers are read;
// tensors are in a map of the file. Errors: read_adapter's, but for values.
AdapterFile inspect_adapter(const std::filesystem::path& folder, const spec::ModelSpec& model);

// Writes both files as PEFT does, complete or absent, the configuration last. Tensors are on `device`; each is stored
// in the type it has. `modules` as of spec::lora_parameters(model, lora). The folder is made if it is not there.
void write_adapter(const std::filesystem::path& folder, const spec::ModelSpec& model, const spec::LoraSpec& lora,
                   const std::string& base_name, std::span<const AdapterModule> modules, Device& device);

// W += sign * factor * B A, computed in fp32 and rounded once to the weight's type; DoRA and saved parameters likewise
// (sign +1 only). sign -1 takes an adapter of plain LoRA out again (up to that rounding). The weights must be writable,
// f32, bf16 or f16, in memory that the host can write.
// Errors: unsupported naming the layer for another storage or device; usage for taking out what replaced weights.
void merge_adapter(WeightSet& weights, Device& device, const AdapterFile& adapter, double sign, ThreadPool* pool);

}  // namespace ingot::checkpoint

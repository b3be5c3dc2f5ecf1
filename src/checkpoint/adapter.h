// LoRA adapters in PEFT's file format. Format: github.com/huggingface/peft, docs/source/developer_guides/checkpoint.md.
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
// the layer's weight is instead V = W + factor B A with each row rescaled to the norm given by m.
struct AdapterModule {
  spec::LoraParam param;  // the layer; param.base is its index in spec::parameters
  float factor = 1;
  Tensor a;          // [R, in], f32, bf16 or f16
  Tensor b;          // [out, R]
  Tensor magnitude;  // [out], absent without DoRA
};

// A parameter whose full values the adapter contains: a module of modules_to_save, or a trained bias.
struct SavedParameter {
  size_t base = 0;  // index in spec::parameters
  Tensor values;    // f32, bf16 or f16, in the file's shape
  bool transposed = false;
};

// An adapter as stored in its files. Tensors are in host memory (their `device` is null), in a copy of the file: later
// changes to the file do not affect them.
struct AdapterFile {
  spec::LoraSpec lora;
  std::string base_name;               // base_model_name_or_path; "" when the file has null
  std::vector<AdapterModule> modules;  // in parameter order
  std::vector<SavedParameter> saved;
  std::shared_ptr<const void> owner;

  // Whether the adapter contains more than low-rank terms, so that it can only be applied by merging it into the
  // weights.
  bool replaces_weights() const;
};

// Reads adapter_config.json and adapter_model.safetensors and checks them against the base model. Supports PEFT's rank
// and alpha patterns, layer subsets, excluded modules, regular-expression targets, rsLoRA, DoRA, modules_to_save and
// trained biases.
// Errors: not_found for missing files; resource for weights of more than `max_bytes`; corrupt, naming the file, for a
// truncated file (also if it is truncated during the read); corrupt, naming tensor and shapes, for an adapter of
// another base model and for non-finite values; those of read_adapter_config; unsupported, by name, for pickled
// weights, for embeddings as targets, and for an output head or embedding in modules_to_save where the model ties the
// two.
AdapterFile read_adapter(const std::filesystem::path& folder, const spec::ModelSpec& model,
                         uint64_t max_bytes = std::numeric_limits<uint64_t>::max());

// Like read_adapter, but does not read the values: checks whether an adapter that is not in use now could be used.
// Reads only headers; tensors point into a memory map of the file. Errors: those of read_adapter, except those about
// values.
AdapterFile inspect_adapter(const std::filesystem::path& folder, const spec::ModelSpec& model);

// Writes both files in PEFT's format, each complete or absent, the configuration last. Tensors are on `device` and
// stored in their own dtype. `modules` are in the order of spec::lora_parameters(model, lora). Creates the folder if
// needed.
void write_adapter(const std::filesystem::path& folder, const spec::ModelSpec& model, const spec::LoraSpec& lora,
                   const std::string& base_name, std::span<const AdapterModule> modules, Device& device);

// W += sign * factor * B A, computed in fp32 and rounded once to the weight's type. DoRA and saved parameters replace
// values likewise (sign +1 only). sign -1 removes a plain LoRA adapter again (up to that rounding). The weights must be
// writable, f32, bf16 or f16, in memory that the host can write.
// Errors: unsupported, naming the layer, for another storage type or device; usage for removing an adapter that
// replaced weights.
void merge_adapter(WeightSet& weights, Device& device, const AdapterFile& adapter, double sign, ThreadPool* pool);

}  // namespace ingot::checkpoint

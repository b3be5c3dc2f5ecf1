// LoRA adapters in PEFT's own layout. Format: specs/peft_lora.md, sections 2 and 3.
#pragma once

#include <filesystem>
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

// One adapted layer: y += factor B A x. Letters: R rank.
struct AdapterModule {
  spec::LoraParam param;  // the layer; param.base is its index in spec::parameters
  Tensor a;               // [R, in], f32, bf16 or f16
  Tensor b;               // [out, R]
};

// An adapter as its files hold it. Tensors are in host memory (their `device` is null) and point into the mapped file.
struct AdapterFile {
  spec::LoraSpec lora;
  std::string base_name;               // base_model_name_or_path; "" when it is null
  std::vector<AdapterModule> modules;  // in the order of spec::lora_parameters
  std::shared_ptr<const void> owner;
};

// Reads adapter_config.json and adapter_model.safetensors and checks them against the base model.
// Errors: not_found for missing files; corrupt, naming tensor and shapes, for an adapter of another base; unsupported,
// by name, for what Ingot does not apply: other PEFT types, DoRA, modules_to_save, trained biases, rank and alpha
// patterns, layer subsets, excluded modules, targets given as a regular expression, embeddings, pickled weights, and
// initialisations that change the base weights (PiSSA, OLoRA, CorDA, LoftQ, ...).
AdapterFile read_adapter(const std::filesystem::path& folder, const spec::ModelSpec& model);

// Writes both files as PEFT does, complete or absent, the configuration last. Tensors are on `device`; each is stored
// in the type it has. `modules` as of spec::lora_parameters(model, lora). The folder is made if it is not there.
void write_adapter(const std::filesystem::path& folder, const spec::LoraSpec& lora, const std::string& base_name,
                   std::span<const AdapterModule> modules, Device& device);

// W += sign * factor * B A, computed in fp32 and rounded once to the weight's type. sign -1 takes an adapter out again
// (up to that rounding). The weights must be writable, f32 or bf16, in memory that the host can write.
// Errors: unsupported naming the layer for another storage or device.
void merge_adapter(WeightSet& weights, Device& device, const AdapterFile& adapter, double sign, ThreadPool* pool);

}  // namespace ingot::checkpoint

// Models from memory to files that other programs read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/model_source.h"
#include "spec/model.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

// A model to write. Weights are by index of spec::parameters(spec), in any storage, on `device`.
struct ExportModel {
  const spec::ModelSpec& spec;
  const WeightSet& weights;
  Device& device;
  std::string name;                 // general.name of GGUF files
  std::optional<ModelSource> text;  // where tokenizer, template and generation settings come from
  ThreadPool* pool = nullptr;
};

constexpr uint64_t default_shard_bytes = 5'000'000'000;

// Writes a Hugging Face folder: config.json (keys of transformers 4), model.safetensors or shards with an index, and
// tokenizer files: copied from a folder, made from the vocabulary of a GGUF file. `dtype`: f32, bf16 or f16, for every
// tensor. Files are complete or absent, config.json last. The folder is made if it is not there.
// Errors: those of FileWriter; usage when the folder holds a model already; unsupported, naming the tensor, for a
// value beyond the range of f16.
void write_hf(const std::filesystem::path& folder, const ExportModel& model, DType dtype,
              uint64_t shard_bytes = default_shard_bytes);

// Writes one GGUF file in llama.cpp's layout. `matrices`: f32, f16, bf16, q8_0 or q4_0; vectors, tables of
// positions and routers are F32; rows, norms and experts are as llama.cpp's converter writes them (placement.h); Llama
// 3 scaling becomes rope_freqs.weight. The tokenizer's keys are copied from a GGUF source and made from a folder's
// tokenizer.json or tokenizer.model. Returns what of the model the file could not say, a sentence each. Errors as
// above; unsupported, naming the tensor, for rows that are no whole blocks, and those of gguf_vocabulary_of and of
// gguf_model_metadata (what llama.cpp does not compute).
std::vector<std::string> write_gguf(const std::filesystem::path& file, const ExportModel& model, Storage matrices);

}  // namespace ingot::checkpoint

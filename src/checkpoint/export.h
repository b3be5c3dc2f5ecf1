// Export of in-memory models to files that other programs read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/model_source.h"
#include "spec/model.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

// A model to export. Weights are indexed as spec::parameters(spec), in any storage type, on `device`. With `fetch` they
// come from there, one at a time: its result is valid until the next call.
struct ExportModel {
  const spec::ModelSpec& spec;
  const WeightSet& weights;
  Device& device;
  std::string name;                 // general.name of GGUF files
  std::optional<ModelSource> text;  // source of tokenizer, chat template and generation settings
  ThreadPool* pool = nullptr;
  std::function<Parameter(size_t index)> fetch = {};

  Parameter parameter(size_t index) const { return fetch ? fetch(index) : weights.parameters.at(index); }
};

constexpr uint64_t default_shard_bytes = 5'000'000'000;

// Writes a Hugging Face folder: config.json (keys of transformers 4), model.safetensors or shards with an index, and
// tokenizer files, which are copied from a source folder or made from the vocabulary of a source GGUF file. `dtype`:
// f32, bf16 or f16, for every tensor. Files are complete or absent, config.json last. Creates the folder if needed.
// Errors: those of FileWriter; usage when the folder already holds a model; unsupported, naming the tensor, for a value
// beyond the range of f16.
void write_hf(const std::filesystem::path& folder, const ExportModel& model, DType dtype,
              uint64_t shard_bytes = default_shard_bytes);

// Writes one GGUF file in llama.cpp's layout. `matrices`: f32, f16, bf16, q8_0 or q4_0; vectors, position embeddings
// and routers are F32. Row order, norm offsets and stacked experts follow llama.cpp's converter (placement.h); Llama 3
// rope scaling becomes rope_freqs.weight. Tokenizer keys are copied from a GGUF source, or made from a folder's
// tokenizer.json or tokenizer.model. Returns one sentence for each property of the model that the file cannot express.
// Errors: as write_hf; unsupported, naming the tensor, for rows that are not whole blocks; those of gguf_vocabulary_of
// and of gguf_model_metadata (models that llama.cpp does not compute).
std::vector<std::string> write_gguf(const std::filesystem::path& file, const ExportModel& model, StorageType matrices);

}  // namespace ingot::checkpoint

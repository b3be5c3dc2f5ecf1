// Hyper-parameters in the metadata of GGUF files, by llama.cpp's architectures (github.com/ggml-org/llama.cpp: keys in
// gguf-py/gguf/constants.py, what is computed from them in src/models): llama (families llama, mistral and mixtral),
// qwen2, qwen3, gemma2, gpt2, gptneox and mpt. Format: specs/gguf.md, section 3.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_store.h"
#include "formats/gguf_metadata.h"
#include "spec/model.h"

namespace ingot::checkpoint {

// The hyper-parameters of a GGUF file. What it does not tell takes the family's defaults (initializer_range). Whether
// there are biases and a head is told by the tensors, Llama 3 rope scaling by rope_freqs.weight. Numbers that the file
// has in fp32 become the shortest decimal number that rounds to them (1e-05, not 9.99999974e-06).
// Errors: corrupt; unsupported, by name, for another architecture, partial rotary positions where llama.cpp has none,
// other rope scalings, and divisors in rope_freqs.weight that are not those of Llama 3.
spec::ModelSpec gguf_model(const TensorStore& store);

// The hyper-parameters as key-values, without the tokenizer's. `file_type`: the id of general.file_type.
// Errors: unsupported, by name, for a model that llama.cpp's architecture does not compute.
formats::GgufMetadata gguf_model_metadata(const spec::ModelSpec& model, const std::string& name, uint32_t file_type);

// Whether llama.cpp wants a tensor of the head also where the head is the embedding.
bool gguf_needs_head(const spec::ModelSpec& model);

// What rope_freqs.weight holds for Llama 3 scaling: D/2 numbers that the unscaled frequencies are divided by.
std::vector<float> rope_divisors(const spec::ModelSpec& model);

}  // namespace ingot::checkpoint

// Hyper-parameters in the metadata of GGUF files, for the llama.cpp architectures of family_formats.h
// (github.com/ggml-org/llama.cpp: keys in gguf-py/gguf/constants.py, computation in src/models). Format:
// github.com/ggml-org/ggml, docs/gguf.md.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_store.h"
#include "formats/gguf_metadata.h"
#include "spec/model.h"

namespace ingot::checkpoint {

// Reads the hyper-parameters of a GGUF file. Values that the format lacks are the family's defaults
// (initializer_range). Biases and an output head are detected from the tensors, Llama 3 rope scaling from
// rope_freqs.weight. Numbers stored in fp32 become the shortest decimal number that rounds to them (1e-05, not
// 9.99999974e-06).
// Errors: corrupt; unsupported, by name, for another architecture, partial rotary positions where llama.cpp has none,
// other rope scalings, and divisors in rope_freqs.weight that are not those of Llama 3.
spec::ModelSpec gguf_model(const TensorStore& store);

// Returns the hyper-parameters as key-values, without the tokenizer's keys. `file_type`: the id of general.file_type.
// Errors: unsupported, by name, for a model that llama.cpp's architecture does not compute.
formats::GgufMetadata gguf_model_metadata(const spec::ModelSpec& model, const std::string& name, uint32_t file_type);

// Whether llama.cpp requires an output head tensor even for a tied head.
bool gguf_needs_head(const spec::ModelSpec& model);

// Values of rope_freqs.weight for Llama 3 scaling: D/2 divisors of the unscaled frequencies. Empty for other layers.
std::vector<float> rope_divisors(const spec::Attention& attention);

}  // namespace ingot::checkpoint

// Name and layout of a parameter in a file. Sources: the module names of github.com/huggingface/transformers, and
// llama.cpp's converter (github.com/ggml-org/llama.cpp, folder conversion).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/model.h"

namespace ingot::checkpoint {

// The order of a parameter's rows in a file. Letters: D rows per head.
enum class RowOrder {
  same,
  interleaved,  // GGUF's llama: rows i and i + D/2 of each head are stored at 2i and 2i + 1
  by_part,      // GGUF's gptneox: q of all heads, then k, then v; in memory q, k, v of head 0, of head 1, ...
};

// One parameter in a file. The tensor `name` may contain other parameters too (all experts of a block are one tensor);
// a parameter is a range of whole rows.
struct Placement {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor, outermost first
  int64_t first_row = 0;       // first row of the parameter, in rows of the tensor's last dimension
  bool transposed = false;     // the file has a matrix [in, out]
  RowOrder order = RowOrder::same;
  int64_t heads = 0;  // used by `order`
  double offset = 0;  // the file holds value + offset
  bool plain() const { return !transposed && order == RowOrder::same && offset == 0; }
};

// Index in the file of row `row` of a parameter of `rows` rows, relative to the parameter's first row; and the inverse.
int64_t file_row(const Placement& placement, int64_t rows, int64_t row);
int64_t memory_row(const Placement& placement, int64_t rows, int64_t row);

// The possible placements of a parameter in files of each kind. Ingot writes the first; it also reads the others.
// Hugging Face: names without the base model's prefix, as saved from the model class without a head; all
// experts of a block in one tensor, as in transformers 5's in-memory layout. GGUF: one tensor for each expert
// (files of 2023).
std::vector<Placement> hf_placements(const spec::ModelSpec& model, const spec::ParamSpec& p);
std::vector<Placement> gguf_placements(const spec::ModelSpec& model, const spec::ParamSpec& p);

// Whether a tensor that is not a parameter may be in the file, and is not read: values computed from the configuration
// (rotary frequencies, attention masks), and the output head of a tied model.
bool is_ignorable(const std::string& name, const spec::ModelSpec& model, bool gguf);

}  // namespace ingot::checkpoint

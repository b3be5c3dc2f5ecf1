// Where a file keeps a parameter, and in which form. Names and forms: specs/hf_models.md section 2, specs/gguf.md
// section 4, and llama.cpp's converter (github.com/ggml-org/llama.cpp, folder conversion).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/model.h"

namespace ingot::checkpoint {

// The order of a parameter's rows in a file. Letters: D rows a head.
enum class RowOrder {
  same,
  interleaved,  // GGUF's llama: of each head, rows i and i + D/2 lie at 2i and 2i + 1
  by_part,      // GGUF's gptneox: q of all heads, then k, then v; in memory q, k, v of head 0, of head 1, ...
};

// One parameter in a file. The tensor `name` may hold more than it (a block's experts lie in one), in whole rows.
struct Placement {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor, outermost first
  int64_t first_row = 0;       // the parameter's, in rows of the tensor's last dimension
  bool transposed = false;     // a matrix [in, out]
  RowOrder order = RowOrder::same;
  int64_t heads = 0;  // of `order`
  double offset = 0;  // the file holds value + offset
  bool plain() const { return !transposed && order == RowOrder::same && offset == 0; }
};

// Where row `row` of a parameter of `rows` rows lies among its rows in the file, and the inverse.
int64_t file_row(const Placement& placement, int64_t rows, int64_t row);
int64_t memory_row(const Placement& placement, int64_t rows, int64_t row);

// How files of each kind may hold a parameter. The first is how Ingot writes it; the others are read too:
// Hugging Face: without the base model's prefix, as saved from the model without its head; Mixtral's experts of a block
// in one tensor, as transformers 5 has them in memory. GGUF: Mixtral's experts in a tensor each (files of 2023).
std::vector<Placement> hf_placements(const spec::ModelSpec& model, const spec::ParamSpec& p);
std::vector<Placement> gguf_placements(const spec::ModelSpec& model, const spec::ParamSpec& p);

// Tensors that a file may have besides the parameters and that are not read: what is computed from the configuration
// (rotary frequencies, attention masks), and a head that is the embedding.
bool is_derived(const std::string& name, const spec::ModelSpec& model, bool gguf);

}  // namespace ingot::checkpoint

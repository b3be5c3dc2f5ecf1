// A model family's conventions: the names of parameters in files, their storage layout and their initialisation. The
// computation is described by ModelSpec.
#pragma once

#include <span>
#include <string_view>

#include "spec/parameter.h"

namespace ingot::spec {

// The module's name in Hugging Face's files, without ".weight" or ".bias". In a block it follows the block's prefix;
// "{}" in it is the number of the expert.
struct RoleName {
  Role role;
  const char* name;
};

struct Family {
  std::string_view name;             // Hugging Face's model_type
  std::span<const RoleName> names;   // names that only this family uses; looked up first
  std::span<const RoleName> shared;  // names in common with another family
  const char* block;                 // prefix of a block's names; "{}" is the number of the layer
  // PEFT's target_modules for a file that names none.
  std::span<const std::string_view> lora_targets;
  bool mlp_norm_first = false;  // a block's parameters begin with both norms
  bool transposed = false;      // files store the blocks' matrices as [in, out] (GPT-2's Conv1D)
  bool small_residual_init =
      false;  // the initial std of layers that add to the residual is divided by sqrt(number of such layers)
  bool interleaved_rope = false;  // GGUF stores the rows of q and k with a rotary pair's rows next to each other
  std::span<const std::string_view> buffers = {};  // suffixes of names of tensors in files that are not parameters

  // ErrorKind::unsupported when its files have no parameter of that role.
  const char* name_of(Role role) const;
};

// ErrorKind::unsupported, naming families(), for an unknown family.
const Family& family_named(std::string_view name);

// The layer's name in GGUF, which is the same in every family; without ".weight" or ".bias", in a block after "blk.N.".
const char* gguf_name(Role role);

}  // namespace ingot::spec

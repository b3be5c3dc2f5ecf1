// Elements in memory that are f32 or bf16, as masters and optimizer states are.
#pragma once

namespace ingot::cpu {

struct EitherMemory {
  void* data;
  bool is_bf16;
};

}  // namespace ingot::cpu

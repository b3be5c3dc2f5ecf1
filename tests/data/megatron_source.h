// Writes a Megatron data set with the tokens that tools/reference/megatron_reference.py derives from a source's
// lengths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "formats/megatron.h"

namespace ingot::data {

inline void write_source(const std::filesystem::path& prefix, const std::vector<int32_t>& lengths, int32_t source) {
  formats::MegatronWriter writer(prefix, formats::MegatronDtype::u16);
  int32_t number = source * 10000;
  for (const int32_t length : lengths) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < length; ++i) tokens.push_back(number++ % 60000);
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.finish();
}

}  // namespace ingot::data

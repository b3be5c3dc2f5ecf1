// The JSON header of a safetensors file. Its structure is validated (names, types, duplicates), but not against the
// data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::formats {

struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    std::string dtype;  // any string
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // offset in the data buffer
    uint64_t end = 0;
  };
  std::vector<Tensor> tensors;  // in the order of the header
  std::map<std::string, std::string> metadata;
};

// Errors: `corrupt`, the message beginning with `source`.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& source);

}  // namespace ingot::formats
